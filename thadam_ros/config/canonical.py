# SPDX-License-Identifier: Apache-2.0
"""The canonical form of a configuration and its hashes (spec 3.7).

Canonical means: every default filled, maps sorted by key, quantities as integers of their base
unit, numbers by declared type, environment expanded. ``config_hash`` covers all of it. A row hash
covers only what can change a row: never ports, paths, rotation or secrets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from thadam_ros.config.kinds import Kind
from thadam_ros.config.schema import Config, SinkConfig, TransformConfig
from thadam_ros.config.settings import (
    Inline,
    MapOf,
    OptionsBy,
    Record,
    Setting,
    Shape,
    Slot,
    layout,
)

#: Part of every hash: raised when the canonical form itself changes.
_FORM = "thadam-config-1"

Leaf = Callable[[Kind, Any], object]


def canonical_tree(config: Config) -> dict[str, object]:
    """Return the canonical form: typed leaves, document keys, ``None`` left out."""
    return _record(config, lambda _, value: _plain(value), rows_only=False)


def document_tree(config: Config) -> dict[str, object]:
    """Return the complete document that loads to the same configuration, units spelled out."""
    return _record(config, lambda kind, value: kind.render(value), rows_only=False)


def config_hash(config: Config) -> str:
    """Return 64 hex digits over the whole canonical form."""
    return _digest(canonical_tree(config))


def transform_hash(config: Config, name: str) -> str:
    """Return 64 hex digits over one transform; raises KeyError for an unknown name."""
    for step in config.transforms:
        if step.name == name:
            return _digest(_step_tree(step))
    raise KeyError(name)


def row_hash(config: Config, dataset: str, sink: str | None = None) -> str:
    """Return 64 hex digits over what can change rows of ``dataset``.

    Args:
        sink: Only transforms that run for this sink; None takes those of all sinks.
    """
    steps = [
        _step_tree(step)
        for step in config.transforms
        if step.dataset in (None, dataset)
        and (sink is None or not step.sinks or sink in step.sinks)
    ]
    identity = {**config.edge.identity, **config.datasets[dataset].identity}
    tree = {
        "name": dataset,
        "dataset": _record(config.datasets[dataset], _row_leaf, rows_only=True),
        "identity": {k: _plain(v) for k, v in identity.items()},
        "limits": _record(config.limits, _row_leaf, rows_only=True),
        "transforms": steps,
    }
    return _digest(tree)


def sink_row_hash(config: Config, sink: SinkConfig) -> str:
    """Return 64 hex digits over the row hashes of the datasets that ``sink`` takes."""
    taken = datasets_of(config, sink)
    return _digest({name: row_hash(config, name, sink.name) for name in taken})


def datasets_of(config: Config, sink: SinkConfig) -> tuple[str, ...]:
    """Return the names of the datasets that ``sink`` takes, sorted."""
    if "*" in sink.datasets:
        return tuple(sorted(config.datasets))
    return tuple(sorted(n for n in sink.datasets if n in config.datasets))


def _row_leaf(_: Kind, value: Any) -> object:
    return _plain(value)


def _step_tree(step: TransformConfig) -> dict[str, object]:
    return {"name": step.name, **_record(step, _row_leaf, rows_only=True)}


def _digest(tree: Mapping[str, object]) -> str:
    text = json.dumps(
        {"form": _FORM, "tree": tree}, sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, str) else value


def _record(instance: Any, leaf: Leaf, *, rows_only: bool) -> dict[str, object]:
    cls = type(instance)
    key = layout(cls).discriminator
    keys = layout(cls, getattr(instance, key)) if key else layout(cls)
    out: dict[str, object] = {}
    for name in sorted(keys.slots):
        slot = keys.slots[name]
        if rows_only and not slot.setting.row:
            continue
        value = _value_at(instance, slot)
        if value is None:
            continue
        shaped = _value(slot.setting, slot.setting.shape, value, leaf, rows_only)
        if "." in name:
            outer, inner = name.split(".")
            if shaped != []:
                out[outer] = {inner: shaped}
        else:
            out[name] = shaped
    return out


def _value_at(instance: Any, slot: Slot) -> Any:
    value = instance
    for part in slot.target:
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value


def _value(setting: Setting, shape: Shape, value: Any, leaf: Leaf, rows_only: bool) -> object:
    if isinstance(shape, Record):
        return _record(value, leaf, rows_only=rows_only)
    if isinstance(shape, MapOf):
        if shape.ordered:
            items = [_value(setting, shape.value, v, leaf, rows_only) for v in value]
            return [
                {"name": v.name, **item} if isinstance(item, dict) else item
                for v, item in zip(value, items, strict=True)
            ]
        return {
            str(k): _value(setting, shape.value, value[k], leaf, rows_only) for k in sorted(value)
        }
    if isinstance(shape, (Inline, OptionsBy)):
        raise TypeError("inline settings are laid out by their record")
    return leaf(shape, value)
