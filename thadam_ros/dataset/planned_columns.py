# SPDX-License-Identifier: Apache-2.0
"""The declared and expanded columns of a dataset (spec 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from thadam_ros.config.schema import FieldConfig
from thadam_ros.dataset.envelope import COLUMN_NAME, ENVELOPE_IDS, FIRST_FIELD_ID
from thadam_ros.dataset.message import Leaf, Shape, element_leaf, expand
from thadam_ros.dataset.plan import PlannedField, Source
from thadam_ros.dataset.planned_field import FieldError, plan_field, plan_untyped
from thadam_ros.dataset.planned_sources import Sources
from thadam_ros.model.globs import glob_matches
from thadam_ros.transforms.step import nearest

_NAME_CHARS_MAX = 63
#: Column name -> the fields that want it: one, none when its plan failed, or too many.
Declared = dict[str, list[PlannedField]]


def plan_columns(
    sources: Sources, identity: Sequence[PlannedField], notes: list[str]
) -> list[PlannedField]:
    """Return identity levels and columns; ids are given later.

    Args:
        notes: Takes one sentence per field that ``all_fields`` leaves out.
    """
    fields = {field.name: field for field in identity}
    declared: Declared = {}
    if sources.config.all_fields:
        _expand(sources, declared, notes)
    for name, config in sources.config.fields.items():
        if config.pointer is None and name in declared:
            continue  # all_fields made it, with these settings
        planned = _declare(sources, name, config)
        if planned is not None:
            declared[name] = [planned]
    for same_name in declared.values():
        for field in same_name:
            _add_column(sources, fields, field)
    return list(fields.values())


def _add_column(sources: Sources, fields: dict[str, PlannedField], field: PlannedField) -> None:
    path = f"fields.{field.name}"
    pointer = field.source.pointer if field.source else None
    if field.name in fields:
        other = fields[field.name]
        what = "an identity level" if other.identity else f"the column of {_origin(other)}"
        sources.problem(path, pointer, f"has the same name as {what}; exclude or rename one.")
    elif not COLUMN_NAME.fullmatch(field.name):
        sources.problem(
            path,
            pointer,
            f"is no column name (lower case, digits and _, at most {_NAME_CHARS_MAX} "
            "characters); exclude it and declare it under another name.",
        )
    elif field.name in ENVELOPE_IDS:
        sources.problem(path, pointer, "is a column of the envelope; choose another name.")
    else:
        fields[field.name] = field


def _expand(sources: Sources, declared: Declared, notes: list[str]) -> None:
    """Add a column for every field of the message that is not excluded."""
    if sources.schema is None:
        sources.problem(
            "all_fields", True, f"needs a message definition; {sources.config.decode} has none."
        )
        return
    exploded = set(sources.explode.arrays if sources.explode else ())
    for leaf in expand(sources.schema):
        if leaf.pointer in exploded:
            _expand_element(sources, leaf, declared, notes)
        elif not _excluded(sources, leaf.pointer):
            _expand_leaf(sources, leaf.column, Source(leaf), declared, notes)
    known = [leaf.pointer for leaf in expand(sources.schema)]
    known += [
        leaf.pointer
        for array in expand(sources.schema)
        if array.pointer in exploded and element_leaf(array).shape is Shape.STRUCT
        for leaf in expand(sources.schema, array.type_name, array.pointer)
    ]
    for pattern in sources.config.exclude:
        if not any(_covers(pattern, pointer) for pointer in known):
            near = nearest(pattern, known)
            sources.problem("exclude", pattern, "matches no field of the message.", near)


def _expand_element(sources: Sources, array: Leaf, declared: Declared, notes: list[str]) -> None:
    assert sources.schema is not None
    if array.shape is Shape.LIST or element_leaf(array).shape is not Shape.STRUCT:
        leaf = Leaf("", element_leaf(array).shape, array.type_name)
        if not _excluded(sources, array.pointer):
            source = Source(leaf, array.pointer)
            _expand_leaf(sources, array.column, source, declared, notes)
        return
    for leaf in expand(sources.schema, array.type_name):
        source = Source(leaf, array.pointer)
        if not _excluded(sources, source.pointer):
            name = source.pointer.strip("/").replace("/", "_")
            _expand_leaf(sources, name, source, declared, notes)


def _excluded(sources: Sources, pointer: str) -> bool:
    """Tell whether a pattern matches the field or a structure it lies in."""
    return any(_covers(pattern, pointer) for pattern in sources.config.exclude)


def _covers(pattern: str, pointer: str) -> bool:
    parts = pointer.split("/")
    return any(glob_matches(pattern, "/".join(parts[:n])) for n in range(2, len(parts) + 1))


def _expand_leaf(
    sources: Sources, name: str, source: Source, declared: Declared, notes: list[str]
) -> None:
    if source.leaf.shape is Shape.STRUCTS:
        notes.append(
            f"{source.pointer} ({source.leaf}) is an array of structures and is left out of "
            "all_fields; use explode to get one row per element"
        )
        return
    override = sources.config.fields.get(name)
    if override is not None and override.pointer is not None:
        return  # the entry under `fields` takes the name for another value
    columns = declared.setdefault(name, [])
    try:
        columns.append(plan_field(name, override or FieldConfig(name), source))
    except FieldError as exc:
        sources.problem(f"fields.{name}{exc.key}", exc.value, str(exc), exc.suggestion)
        return
    sources.want(source)


def _declare(sources: Sources, name: str, config: FieldConfig) -> PlannedField | None:
    path = f"fields.{name}"
    if config.id is not None and config.id < FIRST_FIELD_ID:
        sources.problem(
            f"{path}.id", config.id, f"must be {FIRST_FIELD_ID} or more; lower ids are reserved."
        )
        return None
    try:
        if sources.schema is None:
            return plan_untyped(name, config)
        if config.metric is not None:
            raise FieldError("metric", config.metric, "exists in sparkplug_b datasets only.")
        if not config.pointer:
            raise FieldError("", None, "needs `from`: the pointer to its value.")
        source = sources.source(config.pointer, path)
        if source is None:
            return None
        planned = plan_field(name, config, source)
    except FieldError as exc:
        sources.problem(path + exc.key, exc.value, str(exc), exc.suggestion)
        return None
    sources.want(source)
    return planned


def _origin(field: PlannedField) -> str:
    return field.source.pointer if field.source else field.name
