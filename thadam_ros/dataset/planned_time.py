# SPDX-License-Identifier: Apache-2.0
"""Time and event id key of a dataset (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from thadam_ros.dataset.identity import TemplateError, parse_template
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import KeyPart, PlannedTime, Source
from thadam_ros.dataset.planned_field import FieldError, plan_number
from thadam_ros.dataset.planned_sources import Sources
from thadam_ros.transforms.step import nearest, stable_hash

DOMAINS = ("utc", "tai", "monotonic", "sim", "unknown")


def plan_time(sources: Sources) -> PlannedTime | None:
    """Return what ``time:`` means; None without it or when it cannot work."""
    time = sources.config.time
    if time is None:
        return None
    if time.domain not in DOMAINS:
        message = f"is no time domain; valid: {', '.join(DOMAINS)}."
        sources.problem("time.domain", time.domain, message, nearest(time.domain, DOMAINS))
    if sources.schema is None:
        source: Source | None = Source(Leaf(time.pointer, Shape.SCALAR, "int64"))
    else:
        source = sources.source(time.pointer, "time.from")
    if source is None:
        return None
    sources.want(source)
    tick = None
    if source.leaf.shape is not Shape.TIME:
        try:
            tick = plan_number(source.leaf, time.unit)
        except FieldError as exc:
            sources.problem(f"time{exc.key}", exc.value, str(exc), exc.suggestion)
            return None
    elif time.unit is not None:
        sources.problem("time.unit", time.unit, "is for numbers; a Time structure has its own.")
    return PlannedTime(source, time.domain, tick, time.max_skew_ns, time.correct_offset_ns)


def plan_key(sources: Sources, edge_identity: Mapping[str, str]) -> tuple[KeyPart, ...]:
    """Return the parts of ``event_id.key``, empty when ids come from positions."""
    parts = []
    levels = {**edge_identity, **sources.config.identity}
    for name in sources.config.event_id_key:
        value = name if name.startswith("/") else levels.get(name)
        if value is None:
            near = nearest(name, levels)
            sources.problem("event_id.key", name, "is no identity level and no pointer.", near)
            continue
        is_pointer = value.startswith("/") and (
            name.startswith("/") or name in sources.config.identity
        )
        if not is_pointer:
            try:
                parts.append(KeyPart(name, template=parse_template(value)))
            except TemplateError:
                continue  # noted where the level is declared
            continue
        if sources.schema is None:
            parts.append(KeyPart(name))
            continue
        leaf = sources.find(value, "event_id.key", None)
        if leaf is None:
            continue
        if leaf.natural is None or leaf.natural.element:
            sources.problem("event_id.key", name, f"is {leaf}; a key part is one value.")
            continue
        source = Source(leaf)
        sources.want(source)
        parts.append(KeyPart(name, source=source))
    return tuple(parts)


def time_hash(sources: Sources, time: PlannedTime | None) -> str:
    """Return the hash of what gives ``_source_time`` and the identity their meaning."""
    described = None
    if time is not None:
        described = [time.source.pointer, time.domain, time.tick_ns, time.correct_offset_ns]
    return stable_hash(described, dict(sources.config.identity))
