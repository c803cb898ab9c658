# SPDX-License-Identifier: Apache-2.0
"""The document format as a JSON Schema, for editors and for tools that are not ours.

It is generated from the same settings the loader walks. It says less than ``thadam validate``:
references between parts, units and expressions are beyond a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thadam_ros.config.kinds import Kind, Text
from thadam_ros.config.schema import Config, RotationConfig
from thadam_ros.config.settings import (
    Inline,
    MapOf,
    OptionsBy,
    Record,
    Setting,
    Slot,
    layout,
    types_of,
)

Schema = dict[str, Any]

#: Records whose defaults depend on where they stand, so that the shared schema names none.
_PLACED: Final = (RotationConfig,)


def json_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a configuration document."""
    definitions: dict[str, Schema] = {}
    root = _record_schema(Record(Config), definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "thadam_ros configuration",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _record_schema(record: Record, definitions: dict[str, Schema]) -> Schema:
    types = types_of(record.cls)
    if not types:
        return _typed_schema(record, "", definitions)
    discriminator = layout(record.cls).discriminator
    return {
        "type": "object",
        "required": [discriminator],
        "properties": {discriminator: {"enum": list(types)}},
        "oneOf": [_typed_schema(record, of_type, definitions) for of_type in types],
    }


def _typed_schema(record: Record, of_type: str, definitions: dict[str, Schema]) -> Schema:
    keys = layout(record.cls, of_type)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for key, slot in keys.slots.items():
        outer, _, inner = key.partition(".")
        schema = _slot_schema(slot, definitions)
        if record.cls in _PLACED:
            schema.pop("default", None)
        if key == keys.discriminator:
            schema = {"const": of_type, "description": slot.setting.doc}
        if inner:
            properties[outer] = {
                "type": "object",
                "properties": {inner: schema},
                "additionalProperties": False,
            }
        else:
            properties[key] = schema
            if slot.required:
                required.append(key)
    out: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        out["required"] = required
    return out


def _slot_schema(slot: Slot, definitions: dict[str, Schema]) -> Schema:
    schema = dict(_schema(slot.setting, definitions))
    if slot.setting.doc:
        schema["description"] = slot.setting.doc
    if isinstance(slot.setting.shape, Kind) and isinstance(slot.default, (str, int, float)):
        schema["default"] = slot.setting.shape.render(slot.default)
    return schema


def _schema(setting: Setting, definitions: dict[str, Schema]) -> Schema:
    shape = setting.shape
    if isinstance(shape, Record):
        return _reference(shape, definitions)
    if isinstance(shape, MapOf):
        return _map_schema(shape, definitions)
    if isinstance(shape, (Inline, OptionsBy)):
        raise TypeError("inline settings are laid out by their record")
    return shape.schema()


def _reference(record: Record, definitions: dict[str, Schema]) -> Schema:
    name = record.cls.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _record_schema(record, definitions)
    reference: Schema = {"$ref": f"#/$defs/{name}"}
    if not record.short:
        return reference
    return {"anyOf": [{"type": "string", "minLength": 1}, reference]}


def _map_schema(shape: MapOf, definitions: dict[str, Schema]) -> Schema:
    if shape.ordered:
        return {"type": "array", "items": _with_names(shape, definitions)}
    if isinstance(shape.value, Record):
        value: Mapping[str, Any] = _reference(shape.value, definitions)
    else:
        value = shape.value.schema()
    out: Schema = {"type": "object", "additionalProperties": dict(value)}
    if isinstance(shape.key, Text) and shape.key.pattern:
        out["propertyNames"] = {"pattern": f"^(?:{shape.key.pattern})$"}
    elif not isinstance(shape.key, Text):
        out["propertyNames"] = shape.key.schema()
    return out


def _with_names(shape: MapOf, definitions: dict[str, Schema]) -> Schema:
    if not isinstance(shape.value, Record):
        raise TypeError("only records are spelled as lists of named items")
    name = shape.value.cls.__name__
    key = shape.key.schema()
    if name not in definitions:
        schema = _record_schema(shape.value, definitions)
        for one in schema.get("oneOf", [schema]):
            one["properties"] = {"name": key, **one["properties"]}
            one["required"] = ["name", *one.get("required", [])]
        definitions[name] = schema
    return {"$ref": f"#/$defs/{name}"}
