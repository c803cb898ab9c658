# SPDX-License-Identifier: Apache-2.0
"""The configuration spelled as ROS parameters (spec 3.7), without ROS.

The tree is the document's. Names are dotted (``datasets.imu.match.topics``); maps are named by
lists (``dataset_names``), because an empty map has no parameters; ``transforms`` is a map here,
ordered by ``transform_names``. Empty text and empty lists mean "not given here", so that every
text parameter can be declared. Parameters of the process (``autostart``, ...) are no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from thadam_ros.config.kinds import Integer, Kind, Number, nearest
from thadam_ros.config.schema import Config
from thadam_ros.config.settings import (
    MISSING,
    MapOf,
    Record,
    Setting,
    Slot,
    layout,
    settings_of,
)
from thadam_ros.config.yaml_tree import DEPTH_MAX, join
from thadam_ros.errors import ConfigError, Problem

#: Map -> the parameter that lists its names.
NAME_LISTS: Final[dict[str, str]] = {
    key: setting.shape.names
    for key, (setting, _) in settings_of(Config).items()
    if isinstance(setting.shape, MapOf)
}
_MAP_OF_LIST: Final = {names: key for key, names in NAME_LISTS.items()}
_NOUNS: Final = {
    key: setting.shape.noun
    for key, (setting, _) in settings_of(Config).items()
    if isinstance(setting.shape, MapOf)
}


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """What a node declares for one parameter.

    Attributes:
        name: Dotted name.
        type: ``bool integer double string bool_array integer_array double_array string_array``.
        default: The value of the given tree, else the schema's default; ``""`` and ``[]`` mean
            "not given".
        description: For the descriptor; units and valid values included.
        range: Lowest and highest value of a number, None where unbounded.
        read_only: Changes need a restart of the process.
    """

    name: str
    type: str
    default: object
    description: str
    range: tuple[float | None, float | None] | None = None
    read_only: bool = False


#: Parameters of the process; never part of the tree nor of any hash.
PROCESS_PARAMETERS: Final[dict[str, ParameterSpec]] = {
    spec.name: spec
    for spec in (
        ParameterSpec("config_file", "string", "", "A thadam.yaml; other parameters override it."),
        ParameterSpec("autostart", "bool", True, "Configure and activate at start.", None, True),
        ParameterSpec("isolate_chains", "bool", False, "A process per sink.", None, True),
        ParameterSpec("log_level", "string", "info", "debug, info, warn, error or fatal."),
        ParameterSpec(
            "metrics_port",
            "integer",
            0,
            "Prometheus port on 127.0.0.1; 0 is off.",
            (0, 65535),
            True,
        ),
        ParameterSpec("drain_timeout", "string", "3s", "How long a deactivation may deliver."),
    )
}
_FOREIGN_NAMES: Final = frozenset({"use_sim_time", "start_type_description_service"})
_FOREIGN_PREFIXES: Final = ("qos_overrides.", "diagnostic_updater.", "bond_")


def is_process_parameter(name: str) -> bool:
    """Tell parameters of the process, rclpy or nav2 from those of the configuration tree."""
    return (
        name in PROCESS_PARAMETERS or name in _FOREIGN_NAMES or name.startswith(_FOREIGN_PREFIXES)
    )


def tree_from_parameters(
    flat: Mapping[str, object],
    base: Mapping[str, object] | None = None,
    problems: list[Problem] | None = None,
    ignore: Iterable[str] = (),
) -> dict[str, object]:
    """Return the document tree that parameters spell, over a base document's tree.

    Args:
        flat: Dotted name -> value; arrays may be any sequence, None is "not set".
        base: Tree of the document named by ``config_file``; leaves of ``flat`` override it.
        problems: Where problems go.
        ignore: Further names that are no part of the tree.

    Raises:
        ConfigError: If there are problems and ``problems`` is None.
    """
    found: list[Problem] = [] if problems is None else problems
    ignored = frozenset(ignore)
    listed: dict[str, list[object]] = {}
    nested: dict[str, object] = {}
    for name in sorted(flat):
        value = plain_value(flat[name])
        if is_process_parameter(name) or name in ignored:
            continue
        head = name.split(".", 1)[0]
        if name in _MAP_OF_LIST:
            _take_names(name, value, listed, found)
        elif head not in settings_of(Config):
            _unknown(head, name, value, found)
        elif value is not None and value != "" and value != []:
            _place(nested, name, value, found)
    merged = merge(dict(base) if base else {}, nested)
    _check_names(merged, base or {}, listed, found)
    if problems is None and found:
        raise ConfigError(found)
    return merged


def plain_value(value: object) -> object:
    """Return a parameter value as plain Python: arrays become lists, None stays None."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, Iterable):
        return [v.item() if hasattr(v, "item") else v for v in value]
    return str(value)


def _take_names(
    name: str, value: object, listed: dict[str, list[object]], found: list[Problem]
) -> None:
    if value is None or value == "":
        return
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        shown = value if isinstance(value, str) else None
        found.append(Problem(name, shown, "must be a list of names"))
    elif value:
        listed[_MAP_OF_LIST[name]] = value


def _unknown(head: str, name: str, value: object, found: list[Problem]) -> None:
    valid = sorted([*settings_of(Config), *_MAP_OF_LIST, *PROCESS_PARAMETERS, "use_sim_time"])
    # One problem for a mistyped branch, not one for each of its leaves.
    if any(p.path == head for p in found):
        return
    shown = value if name == head else None
    message = f"is not a known parameter; valid: {', '.join(valid)}"
    found.append(Problem(head, shown, message, nearest(head, valid)))


def _place(nested: dict[str, object], name: str, value: object, found: list[Problem]) -> None:
    *outer, last = name.split(".")
    if len(outer) > DEPTH_MAX:
        message = f"nests deeper than {DEPTH_MAX} levels"
        found.append(Problem(f"{'.'.join(outer[:4])}...", None, message))
        return
    node = nested
    for depth, part in enumerate(outer):
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            path = ".".join(outer[: depth + 1])
            found.append(
                Problem(path, inner, f"is given both as a value and as {name}; keep one of them")
            )
            return
        node = inner
    node[last] = value


def merge(base: dict[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return ``base`` with the leaves of ``over``; neither argument is changed.

    Where a short form (``x: /pose/x``) meets a map, it counts as the map's ``from``.
    """
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        if isinstance(value, dict) and isinstance(below, str):
            below = {"from": below}
        if isinstance(value, dict) and isinstance(below, dict):
            out[key] = merge(below, value)
        else:
            out[key] = value
    return out


def _check_names(
    merged: dict[str, object],
    base: Mapping[str, object],
    listed: Mapping[str, list[object]],
    found: list[Problem],
) -> None:
    for key, parameter in NAME_LISTS.items():
        entries = merged.get(key)
        if not isinstance(entries, dict):
            entries = {}
        below = base.get(key)
        names = listed.get(key)
        if names is None:
            names = list(below) if isinstance(below, dict) else []
        for name in names:
            if name not in entries:
                valid = ", ".join(map(str, entries)) or "none"
                message = f"names a {_NOUNS[key]} without settings {key}.{name}; given: {valid}"
                found.append(Problem(parameter, name, message, nearest(name, list(entries))))
        for name in entries:
            if name not in names:
                message = f"the {_NOUNS[key]} is not listed in {parameter}: {list(names)}"
                found.append(Problem(join(key, name), None, message))
        if key == "transforms" and entries:
            order = [str(n) for n in names if n in entries]
            order += [n for n in entries if n not in order]
            merged[key] = {n: entries[n] for n in dict.fromkeys(order)}


def parameters_from_tree(tree: Mapping[str, object]) -> dict[str, object]:
    """Return the dotted parameters that spell ``tree``; loading them gives the same hash."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if key in NAME_LISTS:
            entries = named_items(value)
            if entries:
                flat[NAME_LISTS[key]] = list(entries)
            _flatten(entries, key, flat)
        else:
            _flatten(value, key, flat)
    return dict(sorted(flat.items()))


def named_items(value: object) -> dict[str, object]:
    """Return a map by name, also of the list spelling of ``transforms``."""
    if isinstance(value, list):
        return {
            str(item["name"]): {k: v for k, v in item.items() if k != "name"}
            for item in value
            if isinstance(item, Mapping) and "name" in item
        }
    return dict(value) if isinstance(value, Mapping) else {}


def _flatten(value: object, path: str, flat: dict[str, object]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(inner, join(path, key), flat)
    elif value is not None and value != [] and value != ():
        flat[path] = list(value) if isinstance(value, (list, tuple)) else value


def parameter_specs(tree: Mapping[str, object]) -> list[ParameterSpec]:
    """Return every parameter of ``tree``: what is given, and what could be, with defaults.

    Optional numbers without a default are left out until they are given, because a number has
    no spelling for "not given".
    """
    specs: list[ParameterSpec] = []
    for key, (setting, _) in settings_of(Config).items():
        shape = setting.shape
        if isinstance(shape, MapOf):
            entries = named_items(tree.get(key))
            text = f"Names of the {shape.noun}s."
            specs.append(ParameterSpec(shape.names, "string_array", list(entries), text))
            for name, value in entries.items():
                _specs_of(setting, shape.value, value, join(key, name), MISSING, specs)
        else:
            _specs_of(setting, shape, tree.get(key), key, MISSING, specs)
    return sorted(specs, key=lambda s: s.name)


def _specs_of(
    setting: Setting,
    shape: object,
    raw: object,
    path: str,
    default: object,
    specs: list[ParameterSpec],
) -> None:
    if isinstance(shape, Record):
        if isinstance(raw, str):
            specs.append(ParameterSpec(path, "string", raw, setting.doc))
        else:
            _specs_of_record(shape, raw if isinstance(raw, Mapping) else {}, path, default, specs)
    elif isinstance(shape, MapOf):
        for name, value in named_items(raw).items():
            _specs_of(setting, shape.value, value, join(path, name), MISSING, specs)
    elif isinstance(shape, Kind):
        spec = _leaf_spec(setting, shape, raw, path, default)
        if spec is not None:
            specs.append(spec)


def _specs_of_record(
    shape: Record,
    raw: Mapping[str, object],
    path: str,
    default: object,
    specs: list[ParameterSpec],
) -> None:
    base = layout(shape.cls)
    chosen = raw.get(base.discriminator) if base.discriminator else ""
    keys = layout(shape.cls, chosen if isinstance(chosen, str) else "")
    for key, slot in keys.slots.items():
        value = _lookup(raw, key)
        if isinstance(slot.setting.shape, Record) and value is None and slot.default is None:
            continue
        inner = _default_of(slot, default)
        _specs_of(slot.setting, slot.setting.shape, value, join(path, key), inner, specs)


def _lookup(raw: Mapping[str, object], key: str) -> object:
    value: object = raw
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _default_of(slot: Slot, parent: object) -> object:
    if parent is not MISSING and parent is not None and len(slot.target) == 1:
        return getattr(parent, slot.target[0], slot.default)
    return slot.default


def _leaf_spec(
    setting: Setting, kind: Kind, raw: object, path: str, default: object
) -> ParameterSpec | None:
    ros_type = kind.ros_type
    value = raw
    if value is None:
        if default is MISSING or default is None:
            if ros_type not in ("string", "string_array"):
                return None
            value = "" if ros_type == "string" else []
        else:
            value = kind.render(default)
    if isinstance(value, str) and ros_type != "string":
        # $(env NAME) may stand for a number; the loader looks at the expanded text.
        ros_type = "string"
    if isinstance(value, int) and not isinstance(value, bool) and ros_type == "double":
        value = float(value)
    description = f"{setting.doc} Valid: {kind.describe()}."
    bounds = _range_of(kind) if ros_type == kind.ros_type else None
    return ParameterSpec(path, ros_type, value, description, bounds)


def _range_of(kind: Kind) -> tuple[float | None, float | None] | None:
    if isinstance(kind, Integer):
        return (kind.low, kind.high)
    if isinstance(kind, Number):
        low = None if math.isinf(kind.low) else kind.low
        high = None if math.isinf(kind.high) else kind.high
        return None if low is None and high is None else (low, high)
    return None
