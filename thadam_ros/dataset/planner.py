# SPDX-License-Identifier: Apache-2.0
"""How a dataset declaration becomes a plan; every mistake is noted, none is raised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thadam_ros.config.schema import DatasetConfig, FieldConfig, LimitsConfig, TransformConfig
from thadam_ros.dataset.envelope import ENVELOPE_IDS
from thadam_ros.dataset.identity import Template, TemplateError, parse_template
from thadam_ros.dataset.lock import (
    DatasetLock,
    LockedVersion,
    WantedColumn,
    evolve,
    show_columns,
)
from thadam_ros.dataset.message import (
    Leaf,
    Shape,
    element_leaf,
    expand,
    find_leaf,
    nearest_pointer,
)
from thadam_ros.dataset.plan import (
    Catalog,
    DatasetPlan,
    KeyPart,
    PlannedExplode,
    PlannedField,
    PlannedTime,
    Source,
)
from thadam_ros.dataset.planned_field import FieldError, plan_field, plan_number, plan_untyped
from thadam_ros.dataset.planned_steps import plan_steps
from thadam_ros.dataset.types import ColumnType
from thadam_ros.decode.definition import normalize_type_name, parse_definition
from thadam_ros.decode.schema import MessageSchema, type_hash
from thadam_ros.errors import Problem, RecordError
from thadam_ros.model.globs import glob_matches
from thadam_ros.transforms.step import nearest, stable_hash

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME_CHARS_MAX = 63
DOMAINS = ("utc", "tai", "monotonic", "sim", "unknown")
_LABEL = ColumnType("string")
_LABEL_TYPES = ("string", "int", "long", "boolean")


class Planner:
    """Plans one dataset; used once."""

    def __init__(
        self,
        config: DatasetConfig,
        edge_identity: Mapping[str, str],
        catalog: Catalog,
        lock: DatasetLock | None,
        limits: LimitsConfig,
        transforms: Sequence[TransformConfig],
        row_hash: str,
    ) -> None:
        self._config = config
        self._edge_identity = edge_identity
        self._catalog = catalog
        self._pinned = lock.version(config.name, config.version) if lock else None
        self._limits = limits
        self._transforms = transforms
        self._row_hash = row_hash
        self._path = f"datasets.{config.name}"
        self._problems: list[Problem] = []
        self._notes: list[str] = []
        self._schema: MessageSchema | None = None
        self._explode: PlannedExplode | None = None
        self._elements: dict[str, Leaf] = {}
        self._pointers: dict[str, None] = {}
        self._fetched: dict[str, Source] = {}

    def plan(self) -> tuple[DatasetPlan, list[Problem]]:
        """Return the plan and all problems."""
        config = self._config
        if config.decode == "cdr":
            self._schema = self._load_schema()
            if self._schema is None:
                return DatasetPlan(config, row_hash=self._row_hash), self._problems
        self._explode = self._plan_explode()
        fields = self._plan_columns()
        time = self._plan_time()
        key = self._plan_key()
        fields = self._give_ids(fields)
        steps = plan_steps(
            config,
            self._transforms,
            fields,
            self._limits,
            self._fetch,
            self._problems,
            time_hash=self._time_hash(time),
            has_time=time is not None,
            exploded=self._explode is not None,
        )
        if config.dedup and not key:
            self._problem("dedup", None, "needs event_id.key: only a key from content repeats.")
        supported = self._schema is not None
        reason = "" if supported else f"decode: {config.decode} is not built yet in this version"
        plan = DatasetPlan(
            config=config,
            fields=tuple(fields),
            type_name=self._schema.type_name if self._schema else "",
            pointers=tuple(self._pointers),
            explode=self._explode,
            time=time,
            key=key,
            dedup=config.dedup,
            fetched=self._fetched,
            steps=tuple(steps),
            row_hash=self._row_hash,
            pinned=self._version,
            notes=tuple(self._notes),
            supported=supported,
            reason=reason,
        )
        return plan, self._problems

    # --- message type -----------------------------------------------------------------

    def _load_schema(self) -> MessageSchema | None:
        name = self._config.type
        if not name:
            self._problem("type", None, "is required for decode: cdr, such as sensor_msgs/msg/Imu.")
            return None
        try:
            full = normalize_type_name(name)
            text = self._catalog.definition(full)
            if text is None:
                self._problem(
                    "type",
                    name,
                    "has no definition; install or source the package that holds the message.",
                )
                return None
            return parse_definition(text, full)
        except RecordError as exc:
            self._problem("type", name, f"{exc.reason}.")
            return None

    # --- explode ------------------------------------------------------------------------

    def _plan_explode(self) -> PlannedExplode | None:
        explode = self._config.explode
        if explode is None:
            return None
        arrays = explode.zip or ((explode.pointer,) if explode.pointer else ())
        if self._schema is None:
            return PlannedExplode(tuple(arrays), explode.empty_as_null)
        for pointer in arrays:
            leaf = self._find(pointer, "explode", None)
            if leaf is None:
                continue
            if leaf.shape not in (Shape.LIST, Shape.STRUCTS):
                self._problem("explode", pointer, f"is a {leaf.shape.value}, no array.")
                continue
            name = pointer.rsplit("/", 1)[1]
            if name in self._elements:
                self._problem("explode", pointer, f"has the same last segment {name!r} as another.")
                continue
            if leaf.natural == ColumnType("binary"):
                self._problem("explode", pointer, "is bytes; bytes are one value.")
                continue
            self._elements[name] = element_leaf(leaf)
            self._pointers[pointer] = None
        return PlannedExplode(tuple(arrays), explode.empty_as_null)

    # --- columns -------------------------------------------------------------------------

    def _plan_columns(self) -> list[PlannedField]:
        fields: dict[str, PlannedField] = {}
        for field in self._identity():
            fields[field.name] = field
        declared: list[PlannedField] = []
        if self._config.all_fields:
            declared += self._expand()
        names = {field.name: index for index, field in enumerate(declared)}
        for name, field_config in self._config.fields.items():
            planned = self._declare(name, field_config)
            if planned is None:
                continue
            if name in names:
                declared[names[name]] = planned
            else:
                declared.append(planned)
        for field in declared:
            self._add_column(fields, field)
        return list(fields.values())

    def _add_column(self, fields: dict[str, PlannedField], field: PlannedField) -> None:
        path = f"fields.{field.name}"
        pointer = field.source.pointer if field.source else None
        if field.name in fields:
            other = fields[field.name]
            what = "an identity level" if other.identity else f"the column of {_origin(other)}"
            self._problem(path, pointer, f"has the same name as {what}; exclude or rename one.")
        elif not _NAME.fullmatch(field.name):
            self._problem(
                path,
                pointer,
                f"is no column name (lower case, digits and _, at most {_NAME_CHARS_MAX} "
                "characters); exclude it and declare it under another name.",
            )
        elif field.name in ENVELOPE_IDS:
            self._problem(path, pointer, "is a column of the envelope; choose another name.")
        else:
            fields[field.name] = field

    def _identity(self) -> list[PlannedField]:
        levels: dict[str, PlannedField] = {}
        for origin, mapping in (
            ("edge", self._edge_identity),
            (self._path, self._config.identity),
        ):
            for name, value in mapping.items():
                path = f"{origin}.identity.{name}"
                if name in levels:
                    self._problems.append(
                        Problem(path, value, "repeats an identity level of the edge.")
                    )
                    continue
                if name in ENVELOPE_IDS or not _NAME.fullmatch(name):
                    self._problems.append(Problem(path, value, "is no name for a level."))
                    continue
                planned = self._level(path, name, value, pointers=origin != "edge")
                if planned:
                    levels[name] = planned
        return list(levels.values())

    def _level(self, path: str, name: str, value: str, pointers: bool) -> PlannedField | None:
        if pointers and value.startswith(("/", "./")):
            if self._schema is None:
                leaf = Leaf(value, Shape.SCALAR, "string")
                return PlannedField(name, _LABEL, 0, source=Source(leaf), identity=True)
            source = self._source(value, f"identity.{name}")
            if source is None:
                return None
            natural = source.leaf.natural
            if natural is None or natural.name not in _LABEL_TYPES:
                self._problems.append(
                    Problem(path, value, f"is {source.leaf}; a level is text or a whole number.")
                )
                return None
            self._want(source)
            return PlannedField(name, _LABEL, 0, source=source, identity=True)
        if self._config.decode == "sparkplug_b" and "{device}" in value:
            # Filled by the Sparkplug decoder from the topic; the plan only has to name the level.
            return PlannedField(name, _LABEL, 0, template=Template((value,)), identity=True)
        try:
            template = parse_template(value)
        except TemplateError as exc:
            self._problems.append(Problem(path, value, str(exc)))
            return None
        return PlannedField(name, _LABEL, 0, template=template, identity=True)

    def _expand(self) -> list[PlannedField]:
        if self._schema is None:
            self._problem(
                "all_fields", True, f"needs a message definition; {self._config.decode} has none."
            )
            return []
        fields: list[PlannedField] = []
        exploded = set(self._explode.arrays if self._explode else ())
        for leaf in expand(self._schema):
            if leaf.pointer in exploded:
                fields += self._expand_element(leaf)
            elif not self._excluded(leaf.pointer):
                fields += self._expand_leaf(leaf.column, Source(leaf), None)
        known = [leaf.pointer for leaf in expand(self._schema)]
        known += [
            leaf.pointer
            for array in expand(self._schema)
            if array.pointer in exploded and element_leaf(array).shape is Shape.STRUCT
            for leaf in expand(self._schema, array.type_name, array.pointer)
        ]
        for pattern in self._config.exclude:
            if not any(_covers(pattern, pointer) for pointer in known):
                near = nearest(pattern, known)
                self._problem("exclude", pattern, "matches no field of the message.", near)
        return fields

    def _expand_element(self, array: Leaf) -> list[PlannedField]:
        assert self._schema is not None
        if array.shape is Shape.LIST or element_leaf(array).shape is not Shape.STRUCT:
            leaf = Leaf("", element_leaf(array).shape, array.type_name)
            if self._excluded(array.pointer):
                return []
            return self._expand_leaf(array.column, Source(leaf, array.pointer), None)
        fields: list[PlannedField] = []
        for leaf in expand(self._schema, array.type_name):
            source = Source(leaf, array.pointer)
            if not self._excluded(source.pointer):
                name = source.pointer.strip("/").replace("/", "_")
                fields += self._expand_leaf(name, source, None)
        return fields

    def _excluded(self, pointer: str) -> bool:
        """Tell whether a pattern matches the field or a structure it lies in."""
        return any(_covers(pattern, pointer) for pattern in self._config.exclude)

    def _expand_leaf(
        self, name: str, source: Source, config: FieldConfig | None
    ) -> list[PlannedField]:
        if source.leaf.shape is Shape.STRUCTS:
            # An override that names the column under `fields` was planned on its own.
            self._notes.append(
                f"{self._config.name}: {source.pointer} ({source.leaf}) is an array of structures "
                "and is left out of all_fields; use explode to get one row per element"
            )
            return []
        if name in self._config.fields and not self._config.fields[name].pointer:
            config = self._config.fields[name]
        try:
            field = plan_field(name, config or FieldConfig(name), source)
        except FieldError as exc:
            self._problem(f"fields.{name}{exc.key}", exc.value, str(exc), exc.suggestion)
            return []
        self._want(source)
        return [field]

    def _declare(self, name: str, config: FieldConfig) -> PlannedField | None:
        path = f"fields.{name}"
        if config.id is not None and config.id < 100:
            self._problem(f"{path}.id", config.id, "must be 100 or more; lower ids are reserved.")
            return None
        try:
            if self._schema is None:
                return plan_untyped(name, config)
            if config.metric is not None:
                raise FieldError("metric", config.metric, "exists in sparkplug_b datasets only.")
            if not config.pointer:
                if self._config.all_fields and self._expands_to(name):
                    return None  # all_fields made it, with these settings
                raise FieldError("", None, "needs `from`: the pointer to its value.")
            source = self._source(config.pointer, path)
            if source is None:
                return None
            planned = plan_field(name, config, source)
        except FieldError as exc:
            self._problem(path + exc.key, exc.value, str(exc), exc.suggestion)
            return None
        self._want(source)
        return planned

    def _expands_to(self, name: str) -> bool:
        assert self._schema is not None
        return any(leaf.column == name for leaf in expand(self._schema))

    # --- pointers ---------------------------------------------------------------------------

    def _find(self, pointer: str, path: str, root: str | None) -> Leaf | None:
        assert self._schema is not None
        leaf = find_leaf(self._schema, pointer, root) if pointer.startswith("/") else None
        if leaf is None:
            where = root or self._schema.type_name
            near = nearest_pointer(self._schema, pointer, root)
            self._problem(path, pointer, f"{where} has no such field.", near)
        return leaf

    def _source(self, pointer: str, path: str) -> Source | None:
        """Return what ``/x`` (message) or ``./x`` (element of the exploded array) names."""
        if not pointer.startswith("."):
            leaf = self._find(pointer, path, None)
            return Source(leaf) if leaf else None
        if self._explode is None:
            self._problem(path, pointer, "starts with '.', but the dataset does not explode.")
            return None
        inner = pointer[1:]
        if len(self._explode.arrays) == 1 and not (
            self._config.explode and self._config.explode.zip
        ):
            array = self._explode.arrays[0]
            element = self._elements.get(array.rsplit("/", 1)[1])
        else:
            name, _, rest = inner.lstrip("/").partition("/")
            element = self._elements.get(name)
            if element is None:
                near = nearest(name, self._elements)
                self._problem(
                    path,
                    pointer,
                    f"names none of the zipped arrays: {', '.join(self._elements)}.",
                    f"./{near}" if near else None,
                )
                return None
            array, inner = element.pointer, f"/{rest}" if rest else ""
        if element is None:
            return None  # the explode pointer itself is a problem, noted before
        if not inner.strip("/"):
            return Source(Leaf("", element.shape, element.type_name), array)
        if element.shape is not Shape.STRUCT:
            self._problem(path, pointer, f"goes into {array}, whose elements are {element}.")
            return None
        leaf = self._find(inner, path, element.type_name)
        return Source(leaf, array) if leaf else None

    def _want(self, source: Source) -> None:
        """Ask the decoder for what a source reads."""
        if source.array is None:
            self._pointers.update(dict.fromkeys(source.leaf.parts))

    def _fetch(self, pointer: str) -> str | None:
        """Make a whole number of the message available to steps."""
        if self._schema is None:
            return None
        leaf = find_leaf(self._schema, pointer)
        if leaf is None:
            near = nearest_pointer(self._schema, pointer)
            hint = f" Did you mean {near!r}?" if near else ""
            return f"{self._schema.type_name} has no such field.{hint}"
        if leaf.shape is not Shape.SCALAR or leaf.natural not in (
            ColumnType("int"),
            ColumnType("long"),
        ):
            return f"is {leaf}, no whole number."
        self._fetched[pointer] = Source(leaf)
        self._want(self._fetched[pointer])
        return None

    # --- time and key -------------------------------------------------------------------------

    def _plan_time(self) -> PlannedTime | None:
        time = self._config.time
        if time is None:
            return None
        if time.domain not in DOMAINS:
            message = f"is no time domain; valid: {', '.join(DOMAINS)}."
            self._problem("time.domain", time.domain, message, nearest(time.domain, DOMAINS))
        if self._schema is None:
            source: Source | None = Source(Leaf(time.pointer, Shape.SCALAR, "int64"))
        else:
            source = self._source(time.pointer, "time.from")
        if source is None:
            return None
        self._want(source)
        tick = None
        if source.leaf.shape is not Shape.TIME:
            try:
                tick = plan_number(source.leaf, time.unit)
            except FieldError as exc:
                self._problem(f"time{exc.key}", exc.value, str(exc), exc.suggestion)
                return None
        elif time.unit is not None:
            self._problem("time.unit", time.unit, "is for numbers; a Time structure has its own.")
        return PlannedTime(source, time.domain, tick, time.max_skew_ns, time.correct_offset_ns)

    def _plan_key(self) -> tuple[KeyPart, ...]:
        parts = []
        levels = {**self._edge_identity, **self._config.identity}
        for name in self._config.event_id_key:
            value = name if name.startswith("/") else levels.get(name)
            if value is None:
                near = nearest(name, levels)
                self._problem("event_id.key", name, "is no identity level and no pointer.", near)
                continue
            is_pointer = value.startswith("/") and (
                name.startswith("/") or name in self._config.identity
            )
            if not is_pointer:
                try:
                    parts.append(KeyPart(name, template=parse_template(value)))
                except TemplateError:
                    continue  # noted where the level is declared
                continue
            if self._schema is None:
                parts.append(KeyPart(name))
                continue
            leaf = self._find(value, "event_id.key", None)
            if leaf is None:
                continue
            if leaf.natural is None or leaf.natural.element:
                self._problem("event_id.key", name, f"is {leaf}; a key part is one value.")
                continue
            source = Source(leaf)
            self._want(source)
            parts.append(KeyPart(name, source=source))
        return tuple(parts)

    def _time_hash(self, time: PlannedTime | None) -> str:
        described = None
        if time is not None:
            described = [time.source.pointer, time.domain, time.tick_ns, time.correct_offset_ns]
        return stable_hash(described, dict(self._config.identity))

    # --- lock ------------------------------------------------------------------------------------

    def _give_ids(self, fields: list[PlannedField]) -> list[PlannedField]:
        wanted = [
            WantedColumn(
                f.name,
                f.type,
                f.source.pointer if f.source else "",
                f.unit,
                self._config.fields[f.name].id if f.name in self._config.fields else None,
            )
            for f in fields
        ]
        schema = self._schema
        version, refusals = evolve(
            self._pinned,
            wanted,
            type_name=schema.type_name if schema else "",
            type_hash=type_hash(schema) if schema else "",
            exploded=self._explode is not None,
        )
        self._version: LockedVersion = version
        for refusal in refusals:
            shown = ""
            if self._pinned:
                asked = {want.name: version.columns[want.name] for want in wanted}
                shown = (
                    f" Pinned: {show_columns(self._pinned.columns)}. Now: {show_columns(asked)}."
                    " Raise `version` to start a new table."
                )
            self._problem("version", self._config.version, f"{refusal}.{shown}")
        numbered = [
            replace(
                f,
                field_id=version.columns[f.name].field_id,
                element_id=version.columns[f.name].element_id,
            )
            for f in fields
        ]
        return sorted(numbered, key=lambda f: f.field_id)

    def _problem(
        self, key: str, value: object, message: str, suggestion: str | None = None
    ) -> None:
        self._problems.append(Problem(f"{self._path}.{key}", value, message, suggestion))


def _covers(pattern: str, pointer: str) -> bool:
    parts = pointer.split("/")
    return any(glob_matches(pattern, "/".join(parts[:n])) for n in range(2, len(parts) + 1))


def _origin(field: PlannedField) -> str:
    return field.source.pointer if field.source else field.name
