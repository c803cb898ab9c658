# SPDX-License-Identifier: Apache-2.0
"""Every common message type and every real bag decodes to what rosbags decodes (spec 8.1)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.schema import (
    PRIMITIVES,
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    StructRef,
)

from .messages import assert_same_as_reference, decode_columns, equal, random_value

BYTE = PrimitiveType("byte")
STORE = get_typestore(Stores.ROS2_KILTED)


def to_rosbags(schema: MessageSchema, kind: FieldType, value: Any) -> Any:
    """Our plain values as rosbags' message objects."""
    if isinstance(kind, StructRef):
        members = schema.structs[kind.name].fields
        parts = [to_rosbags(schema, f.type, value[f.name]) for f in members]
        return STORE.types[kind.name](*(parts or [0]))
    if isinstance(kind, ListType):
        if isinstance(kind.element, PrimitiveType):
            return np.array(list(value), np.dtype(PRIMITIVES[kind.element.name].numpy))
        return [to_rosbags(schema, kind.element, item) for item in value]
    if kind == BYTE:
        return value - 256 if value > 127 else value  # rosbags takes a byte for signed
    return value


def from_rosbags(schema: MessageSchema, kind: FieldType, value: Any) -> Any:
    """rosbags' message objects as plain values."""
    if isinstance(kind, StructRef):
        names = [n for n in value.__dataclass_fields__ if not n.isupper() and n != "__msgtype__"]
        members = schema.structs[kind.name].fields
        return {
            field.name: from_rosbags(schema, field.type, getattr(value, name))
            for field, name in zip(members, names, strict=bool(members))
        }
    if isinstance(kind, ListType):
        if isinstance(kind.element, PrimitiveType):
            as_bytes = kind.element.name in ("uint8", "byte")
            return value.tobytes() if as_bytes else value.tolist()
        return [from_rosbags(schema, kind.element, item) for item in value]
    return value & 0xFF if kind == BYTE else value


@pytest.mark.parametrize("package", sorted({name.split("/")[0] for name in STORE.fielddefs}))
def test_every_well_known_type_decodes_what_rosbags_wrote(package: str) -> None:
    """Random values of each type, both endiannesses, serialized by rosbags."""
    catalog = TypeCatalog(prefixes=())
    for name in (n for n in STORE.fielddefs if n.startswith(f"{package}/")):
        text = catalog.definition(name)
        assert text is not None
        schema = parse_definition(text, name)
        rng = random.Random(name)
        root = StructRef(name)
        values = [random_value(schema, root, rng) for _ in range(6)]
        messages = [
            bytes(STORE.serialize_cdr(to_rosbags(schema, root, v), name, little_endian=bool(i % 3)))
            for i, v in enumerate(values)
        ]
        got = decode_columns(schema, messages)
        assert got.ok.all(), (name, got.errors)
        for value, decoded in zip(values, got.columns[""].to_pylist(), strict=True):
            assert equal(decoded, value), name
        assert_same_as_reference(schema, messages, scan_rows_max=(1,))


def bag_paths(bags_dir: Path) -> Iterator[Path]:
    """All bags, with or without metadata."""
    for folder in sorted(p for p in bags_dir.iterdir() if p.is_dir()):
        yield folder if (folder / "metadata.yaml").exists() else next(folder.glob("*.mcap"))


def read_bag(path: Path) -> dict[tuple[str, str], list[bytes]]:
    """(type, definition text) -> payloads."""
    found: dict[tuple[str, str], list[bytes]] = {}
    with Reader(path) as reader:
        for connection, _, raw in reader.messages():
            key = connection.msgtype, connection.msgdef.data
            found.setdefault(key, []).append(bytes(raw))
    return found


def test_every_message_of_the_real_bags_decodes_to_what_rosbags_decodes(bags_dir: Path) -> None:
    """Whole messages of all bags, with the definitions that the bags carry."""
    catalog = TypeCatalog(prefixes=())
    total = 0
    for path in bag_paths(bags_dir):
        for (name, text), messages in read_bag(path).items():
            store = STORE
            if text:
                store = get_typestore(Stores.EMPTY)
                store.register(get_types_from_msg(text, name))
            schema = parse_definition(text or str(catalog.definition(name)), name)
            root = StructRef(schema.type_name)
            got = decode_columns(schema, messages)
            assert got.ok.all(), (path.name, name, got.errors)
            assert not got.surplus.any(), (path.name, name)
            decoded = got.columns[""].to_pylist()
            for raw, ours in zip(messages, decoded, strict=True):
                message = store.deserialize_cdr(raw, schema.type_name)
                theirs = from_rosbags(schema, root, message)
                assert equal(ours, theirs), (path.name, name)
            total += len(messages)
    assert total > 50_000
