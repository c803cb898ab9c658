# SPDX-License-Identifier: Apache-2.0
"""A plain tree to configuration dataclasses, collecting every problem on the way.

A wrong value is replaced by its default (or an empty stand-in), so that the rest of the document,
and the checks that look across it, still run; what they say about a replaced value is dropped.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from thadam_ros.config.kinds import Kind, ListOf, Refused, nearest
from thadam_ros.config.settings import (
    MISSING,
    Inline,
    Layout,
    MapOf,
    OptionsBy,
    Record,
    Shape,
    Slot,
    layout,
    settings_of,
)
from thadam_ros.config.yaml_tree import join
from thadam_ros.errors import Problem

_SECRET: Final = re.compile(
    r"(.*_)?(password|passwd|passphrase|pwd|secret.*|token|api_?key|access_key|secret_access_key"
    r"|access_key_id|private_key|credentials|session_token)"
)
_LOOKS_SECRET: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@")
#: Keys that the specification reserves: said as such, not as a typing mistake.
_RESERVED: Final[dict[str, str]] = {
    "encrypt": "field encryption is not in this version",
    "cdc": "CDC mode is not in this version",
}
_WORDS_RESERVED: Final[dict[tuple[str, str], str]] = {
    ("kind", "window"): "`window` is not in this version",
    ("format", "ndjson"): "`ndjson` is reserved and not in this version; valid: parquet",
}


@dataclass(slots=True)
class Builder:
    """Turns raw maps into instances.

    Attributes:
        lines: Dotted path -> line of the document.
        problems: What was found so far.
        broken: Paths whose value was replaced.
    """

    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def report(self, path: str, value: object, message: str, suggestion: str | None = None) -> None:
        """Note a problem and mark its path as replaced, unless the path is known as broken."""
        if self.is_broken(path):
            return
        self.broken.add(path)
        shown = _shown(value)
        self.problems.append(Problem(path, shown, message, suggestion, self.lines.get(path)))

    def is_broken(self, path: str) -> bool:
        """Tell whether ``path``, or something it stands in, was replaced."""
        if path in self.broken:
            return True
        return any(path[i] in ".[" and path[:i] in self.broken for i in range(len(path) - 1, 0, -1))

    def record(
        self, cls: type[Any], raw: object, path: str, base: object = None, name: str | None = None
    ) -> Any:
        """Return an instance of ``cls`` made of the map ``raw``.

        Args:
            base: An instance whose values are the defaults, where a parent decides them.
            name: The entry's name, for classes that carry it.
        """
        if not isinstance(raw, Mapping):
            self.report(path, raw, "must be a map" if raw is not None else "must not be empty")
            raw = {}
        keys = self._layout(cls, raw)
        values: dict[tuple[str, ...], object] = {}
        self._take(keys, dict(raw), path, base, values)
        return _assemble(cls, keys, values, name)

    def _layout(self, cls: type[Any], raw: Mapping[str, object]) -> Layout:
        chosen = raw.get(layout(cls).discriminator) if layout(cls).discriminator else ""
        return layout(cls, chosen if isinstance(chosen, str) else "")

    def _take(
        self,
        keys: Layout,
        raw: dict[str, object],
        path: str,
        base: object,
        values: dict[tuple[str, ...], object],
    ) -> None:
        nested = {k.split(".")[0]: k for k in keys.slots if "." in k}
        for key in raw:
            if key not in keys.slots and key not in nested:
                self._unknown(key, raw, path, keys, [*keys.slots, *nested])
        for key, slot in keys.slots.items():
            here, given = self._locate(key, raw, path)
            default = slot.default
            if base is not None and len(slot.target) == 1:
                default = getattr(base, slot.target[0])
            if given is MISSING or (given is None and default is not MISSING):
                if default is MISSING:
                    if keys.known or not slot.types:
                        self._missing(slot, here)
                    default = _stand_in(slot.setting.shape)
                values[slot.target] = default
                continue
            values[slot.target] = self.value(slot.setting.shape, given, here, default)

    def _locate(self, key: str, raw: Mapping[str, object], path: str) -> tuple[str, object]:
        if "." not in key:
            return join(path, key), raw.get(key, MISSING)
        outer, inner = key.split(".")
        part = raw.get(outer, MISSING)
        if part is MISSING or part is None:
            return join(path, key), MISSING
        if not isinstance(part, Mapping):
            self.report(join(path, outer), part, f"must be a map with the key {inner}")
            return join(path, key), MISSING
        for other in part:
            if other != inner:
                where = join(join(path, outer), other)
                close = nearest(other, [inner])
                self.report(where, part[other], f"is not a known key; valid: {inner}", close)
        return join(path, key), part.get(inner, MISSING)

    def _missing(self, slot: Slot, path: str) -> None:
        shape = slot.setting.shape
        valid = f"; valid is {shape.describe()}" if isinstance(shape, Kind) else ""
        self.report(path, None, f"is missing{valid}")

    def _unknown(
        self, key: str, raw: Mapping[str, object], path: str, keys: Layout, valid: list[str]
    ) -> None:
        where, value = join(path, key), raw[key]
        if _SECRET.fullmatch(key.lower()):
            options = [k for k in valid if k in (f"{key}_env", f"{key}_file")]
            use = " or ".join(options or [f"{key}_env", f"{key}_file"])
            self.report(where, None, f"secrets do not stand in a configuration; use {use}")
        elif key in keys.foreign:
            types = ", ".join(keys.foreign[key])
            self.report(where, value, f"exists only for {keys.discriminator} {types}")
        elif key in _RESERVED:
            self.report(where, None, _RESERVED[key])
        else:
            known = sorted({k.split(".")[0] for k in valid})
            message = f"is not a known key; valid: {', '.join(known)}"
            meant = nearest(key, known)
            self.report(where, value, message, meant)
            if meant is not None and meant not in raw:
                # The mistyped key is the one that is missing: one mistake, one problem.
                self.broken.add(join(path, meant))

    def value(self, shape: Shape, raw: object, path: str, default: object = MISSING) -> Any:
        """Return the typed value of ``raw``, or the default after reporting a problem."""
        if isinstance(shape, Record):
            if shape.short and isinstance(raw, str):
                raw = {shape.short: raw}
                self._alias_short(path, shape.short)
            return self.record(shape.cls, raw, path, default if default is not MISSING else None)
        if isinstance(shape, MapOf):
            return self._map(shape, raw, path)
        if isinstance(shape, (Inline, OptionsBy)):
            raise TypeError(f"{path}: {shape} has no value of its own")
        if isinstance(shape, ListOf):
            return self._list(shape, raw, path, default)
        return self._leaf(shape, raw, path, default)

    def _alias_short(self, path: str, short: str) -> None:
        if self.is_broken(path):
            self.broken.add(join(path, short))

    def _leaf(self, kind: Kind, raw: object, path: str, default: object) -> Any:
        try:
            return kind.check(raw)
        except Refused as refused:
            reserved = _WORDS_RESERVED.get((path.rsplit(".", 1)[-1], str(raw)[:40]))
            if reserved is not None:
                self.report(path, raw, reserved)
            else:
                self.report(path, raw, refused.message, refused.suggestion)
            return _stand_in(kind) if default is MISSING else default

    def _list(self, kind: ListOf, raw: object, path: str, default: object) -> Any:
        fallback = () if default is MISSING else default
        if not isinstance(raw, list):
            self.report(path, raw, f"must be {kind.describe()}")
            return fallback
        if kind.required_items and not raw:
            self.report(path, raw, f"must not be empty; valid is {kind.describe()}")
            return fallback
        values: list[Any] = []
        for index, item in enumerate(raw):
            here = f"{path}[{index}]"
            before = len(self.problems)
            value = self._leaf(kind.item, item, here, MISSING)
            if len(self.problems) > before or self.is_broken(here):
                continue
            if kind.unique and value in values:
                self.report(here, item, "is listed twice; keep one")
                continue
            values.append(value)
        return tuple(values)

    def _map(self, shape: MapOf, raw: object, path: str) -> Any:
        entries = self._entries(shape, raw, path)
        out: dict[str, Any] = {}
        for name, value in entries:
            here = join(path, name)
            try:
                shape.key.check(name)
            except Refused as refused:
                message = f"the {shape.noun} name {name[:80]!r} {refused.message}"
                self.report(here, None, message, refused.suggestion)
                continue
            if isinstance(shape.value, Record):
                if shape.value.short and isinstance(value, str):
                    self._alias_short(here, shape.value.short)
                    value = {shape.value.short: value}
                    self._line_of_short(here, shape.value.short)
                out[name] = self.record(shape.value.cls, value, here, name=name)
            else:
                out[name] = self._leaf(shape.value, value, here, MISSING)
        if shape.ordered:
            return tuple(out.values())
        return dict(sorted(out.items()))

    def _line_of_short(self, path: str, short: str) -> None:
        line = self.lines.get(path)
        if line is not None:
            self.lines.setdefault(join(path, short), line)

    def _entries(self, shape: MapOf, raw: object, path: str) -> list[tuple[str, object]]:
        if raw is None:
            return []
        if not isinstance(raw, Mapping):
            self.report(path, raw, f"must be a map from {shape.noun} name to its settings")
            return []
        return [(str(k), v) for k, v in raw.items()]


def _assemble(
    cls: type[Any], keys: Layout, values: Mapping[tuple[str, ...], object], name: str | None
) -> Any:
    named = name is not None and any(f.name == "name" for f in dataclasses.fields(cls))
    arguments: dict[str, Any] = {"name": name} if named else {}
    parts: dict[str, dict[str, object]] = {}
    for target, value in values.items():
        if len(target) == 1:
            arguments[target[0]] = value
        else:
            parts.setdefault(target[0], {})[target[1]] = value
    chosen = arguments.get(keys.discriminator)
    for attribute, (setting, default) in settings_of(cls).items():
        if isinstance(setting.shape, OptionsBy):
            arguments[attribute] = dict(sorted(parts.get(attribute, {}).items()))
        elif isinstance(setting.shape, Inline):
            wanted = not setting.only or chosen in setting.only
            arguments[attribute] = setting.shape.cls(**parts.get(attribute, {})) if wanted else None
        elif attribute not in arguments and default is not MISSING:
            arguments[attribute] = default
    return cls(**arguments)


def _stand_in(shape: Shape) -> Any:
    """Return an empty value of a required setting that is missing or wrong."""
    if isinstance(shape, Record):
        return Builder().record(shape.cls, {}, "")
    if isinstance(shape, MapOf):
        return () if shape.ordered else {}
    if isinstance(shape, ListOf):
        return ()
    ros_type = shape.ros_type if isinstance(shape, Kind) else ""
    return {"integer": 0, "double": 0.0, "bool": False}.get(ros_type, "")


def _shown(value: object) -> object:
    """Return ``value`` for a message: short, and never a secret."""
    if isinstance(value, str):
        if _LOOKS_SECRET.search(value):
            return "<hidden>"
        return str(value) if len(value) <= 200 else f"{value[:200]}..."
    if isinstance(value, (Mapping, list)):
        return f"<{'map' if isinstance(value, Mapping) else 'list'} of {len(value)}>"
    if isinstance(value, int) and abs(value) >= 1 << 70:
        return "<a huge number>"
    return value
