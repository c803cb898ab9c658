# SPDX-License-Identifier: Apache-2.0
"""Identity levels as label columns (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from thadam_ros.dataset.envelope import COLUMN_NAME, ENVELOPE_IDS
from thadam_ros.dataset.identity import Template, TemplateError, parse_template
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import PlannedField, Source
from thadam_ros.dataset.planned_sources import Sources
from thadam_ros.dataset.types import ColumnType
from thadam_ros.errors import Problem

_LABEL = ColumnType("string")
_LABEL_TYPES = ("string", "int", "long", "boolean")


def plan_identity(sources: Sources, edge_identity: Mapping[str, str]) -> list[PlannedField]:
    """Return the levels, the edge's first; ids are given later."""
    levels: dict[str, PlannedField] = {}
    for origin, mapping in (
        ("edge", edge_identity),
        (sources.path, sources.config.identity),
    ):
        for name, value in mapping.items():
            path = f"{origin}.identity.{name}"
            if name in levels:
                sources.problems.append(
                    Problem(path, value, "repeats an identity level of the edge.")
                )
                continue
            if name in ENVELOPE_IDS or not COLUMN_NAME.fullmatch(name):
                sources.problems.append(Problem(path, value, "is no name for a level."))
                continue
            planned = _level(sources, path, name, value, pointers=origin != "edge")
            if planned:
                levels[name] = planned
    return list(levels.values())


def _level(
    sources: Sources, path: str, name: str, value: str, pointers: bool
) -> PlannedField | None:
    if pointers and value.startswith(("/", "./")):
        if sources.schema is None:
            leaf = Leaf(value, Shape.SCALAR, "string")
            return PlannedField(name, _LABEL, 0, source=Source(leaf), identity=True)
        source = sources.source(value, f"identity.{name}")
        if source is None:
            return None
        natural = source.leaf.natural
        if natural is None or natural.name not in _LABEL_TYPES:
            sources.problems.append(
                Problem(path, value, f"is {source.leaf}; a level is text or a whole number.")
            )
            return None
        sources.want(source)
        return PlannedField(name, _LABEL, 0, source=source, identity=True)
    if sources.config.decode == "sparkplug_b" and "{device}" in value:
        # Filled by the Sparkplug decoder from the topic; the plan only has to name the level.
        return PlannedField(name, _LABEL, 0, template=Template((value,)), identity=True)
    try:
        template = parse_template(value)
    except TemplateError as exc:
        sources.problems.append(Problem(path, value, str(exc)))
        return None
    return PlannedField(name, _LABEL, 0, template=template, identity=True)
