# SPDX-License-Identifier: Apache-2.0
"""Random message definitions, values for them, and a CDR writer that shares nothing with ours."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from thadam_ros.decode.cdr_columns import CdrColumnDecoder
from thadam_ros.decode.cdr_reference import ReferenceMessage, decode_message
from thadam_ros.decode.columns import DecodedColumns
from thadam_ros.decode.schema import (
    PRIMITIVES,
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    SchemaField,
    StringType,
    StructDefinition,
    StructRef,
)
from thadam_ros.errors import RecordError

ROOT = "test_pkg/msg/Root"
CODES = {
    "bool": "?", "byte": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
PRIMITIVE_NAMES = sorted(CODES)


# Definitions


@st.composite
def schemas(draw: st.DrawFn) -> MessageSchema:
    """A message of up to four structures, each using only those below it."""
    names = [f"test_pkg/msg/Part{i}" for i in range(draw(st.integers(0, 3)))]
    structs: dict[str, StructDefinition] = {}
    for index, name in enumerate([*names, ROOT]):
        kinds = draw(st.lists(field_types(names[:index]), max_size=5))
        fields = tuple(SchemaField(f"f{i}", kind) for i, kind in enumerate(kinds))
        structs[name] = StructDefinition(name, fields)
    used, pending = {}, [ROOT]
    while pending:
        name = pending.pop()
        used[name] = structs[name]
        for field in structs[name].fields:
            inner = field.type.element if isinstance(field.type, ListType) else field.type
            if isinstance(inner, StructRef):
                pending.append(inner.name)
    return MessageSchema(ROOT, used)


@st.composite
def field_types(draw: st.DrawFn, names: Sequence[str]) -> FieldType:
    """A type that may refer to the structures in ``names``."""
    scalars: list[st.SearchStrategy[PrimitiveType | StringType | StructRef]] = [
        st.sampled_from(PRIMITIVE_NAMES).map(PrimitiveType),
        st.builds(StringType, st.booleans(), st.sampled_from([None, None, 3])),
    ]
    if names:
        scalars.append(st.sampled_from(names).map(StructRef))
    scalar = draw(st.one_of(scalars))
    shape = draw(st.sampled_from(["scalar", "scalar", "array", "sequence", "bounded"]))
    if shape == "scalar":
        return scalar
    if shape == "array":
        return ListType(scalar, length=draw(st.integers(1, 3)))
    return ListType(scalar, bound=3 if shape == "bounded" else None)


def render(schema: MessageSchema) -> str:
    """The schema as concatenated ``ros2msg`` text."""
    parts = [_render_struct(schema.structs[schema.type_name])]
    for name, definition in schema.structs.items():
        if name != schema.type_name:
            package, _, short = name.split("/")
            parts.append(f"{'=' * 80}\nMSG: {package}/{short}\n{_render_struct(definition)}")
    return "\n".join(parts)


def _render_struct(definition: StructDefinition) -> str:
    lines = ["# generated", "uint8 A_CONSTANT=3 # of no consequence"]
    lines += [f"{_render_type(field.type)} {field.name}" for field in definition.fields]
    return "\n".join(lines) + "\n"


def _render_type(kind: FieldType) -> str:
    if isinstance(kind, ListType):
        size = f"<={kind.bound}" if kind.bound is not None else ""
        return f"{_render_type(kind.element)}[{kind.length if kind.length is not None else size}]"
    if isinstance(kind, StringType):
        bound = "" if kind.bound is None else f"<={kind.bound}"
        return f"{'wstring' if kind.wide else 'string'}{bound}"
    if isinstance(kind, StructRef):
        return kind.name.rpartition("/")[2]
    return kind.name


# Values


def random_value(schema: MessageSchema, kind: FieldType, rng: random.Random) -> object:
    """A value of ``kind``."""
    if isinstance(kind, StructRef):
        fields = schema.structs[kind.name].fields
        return {field.name: random_value(schema, field.type, rng) for field in fields}
    if isinstance(kind, StringType):
        most = rng.choice([0, 4, 9]) if kind.bound is None else min(kind.bound, 9)
        letters = "aé€" if not kind.wide else "aé€😀"
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))
        return _fit(text, kind)
    if isinstance(kind, ListType):
        count = kind.length
        if count is None:
            count = rng.randint(0, 5 if kind.bound is None else min(kind.bound, 5))
        values = [random_value(schema, kind.element, rng) for _ in range(count)]
        return bytes(values) if _is_bytes(kind) else values  # type: ignore[arg-type]
    return random_number(kind.name, rng)


def _fit(text: str, kind: StringType) -> str:
    encoding, width = ("utf-16-le", 2) if kind.wide else ("utf-8", 1)
    while kind.bound is not None and len(text.encode(encoding)) // width > kind.bound:
        text = text[:-1]
    return text


def random_number(name: str, rng: random.Random) -> object:
    """A number of a primitive type, extremes included."""
    if name == "bool":
        return rng.random() < 0.5
    if name.startswith("float"):
        value = rng.choice([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, rng.uniform(-9, 9)])
        size = "<f" if name == "float32" else "<d"
        return struct.unpack(size, struct.pack(size, value))[0]
    bits = PRIMITIVES[name].size * 8
    low = -(1 << (bits - 1)) if name.startswith("int") else 0
    high = low + (1 << bits) - 1
    return rng.choice([low, high, 0, 1, rng.randint(low, high)])


def _is_bytes(kind: ListType) -> bool:
    return isinstance(kind.element, PrimitiveType) and kind.element.name in ("uint8", "byte")


# Writer


def encode(schema: MessageSchema, value: object, little: bool = True) -> bytes:
    """Write a payload as Fast CDR does: plain XCDR1 with its encapsulation header."""
    body = bytearray()
    _write(schema, StructRef(schema.type_name), value, body, "<" if little else ">")
    return (b"\x00\x01\x00\x00" if little else b"\x00\x00\x00\x00") + bytes(body)


def _write(
    schema: MessageSchema, kind: FieldType, value: object, body: bytearray, order: str
) -> None:
    if isinstance(kind, StructRef):
        assert isinstance(value, dict)
        fields = schema.structs[kind.name].fields
        if not fields:
            body.append(0)
        for field in fields:
            _write(schema, field.type, value[field.name], body, order)
    elif isinstance(kind, StringType):
        assert isinstance(value, str)
        if kind.wide:
            raw = value.encode("utf-16-le")
            units = struct.unpack(f"<{len(raw) // 2}H", raw)
            for number in (len(units), *units):
                _write_number("I", number, body, order)
        else:
            raw = value.encode() + b"\0"
            _write_number("I", len(raw), body, order)
            body += raw
    elif isinstance(kind, ListType):
        assert isinstance(value, list | bytes)
        if kind.length is None:
            _write_number("I", len(value), body, order)
        for item in value:
            _write(schema, kind.element, item, body, order)
    else:
        _write_number(CODES[kind.name], value, body, order)


def _write_number(code: str, value: object, body: bytearray, order: str) -> None:
    raw = struct.pack(order + code, value)
    body += b"\xaa" * (-len(body) % len(raw)) + raw


# Comparison


def pack(messages: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put messages behind each other: (payload, starts, ends)."""
    ends = np.cumsum([len(m) for m in messages], dtype=np.int64)
    starts = ends - np.array([len(m) for m in messages], np.int64)
    return np.frombuffer(b"".join(messages), np.uint8), starts, ends


def decode_columns(
    schema: MessageSchema,
    messages: Sequence[bytes],
    pointers: Sequence[str] = ("",),
    scan_rows_max: int = 32,
) -> DecodedColumns:
    """Decode messages with the fast decoder."""
    decoder = CdrColumnDecoder(schema, pointers, scan_rows_max=scan_rows_max)
    return decoder.decode(*pack(messages))


def reference(
    schema: MessageSchema, message: bytes, pointers: Sequence[str] = ("",)
) -> ReferenceMessage | RecordError:
    """What the reference decoder makes of a message."""
    try:
        return decode_message(schema, message, pointers)
    except RecordError as error:
        return error


def equal(left: object, right: object) -> bool:
    """Equality of decoded values, types included, in which NaN equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and left == right


def assert_same_as_reference(
    schema: MessageSchema,
    messages: Sequence[bytes],
    pointers: Sequence[str] = ("",),
    scan_rows_max: Iterable[int] = (1, 3, 1_000),
) -> None:
    """Both decoders agree about every message: values, codes, reasons, surplus."""
    for rows_max in scan_rows_max:
        got = decode_columns(schema, messages, pointers, rows_max)
        columns = {}
        for pointer in pointers:
            got.columns[pointer].validate(full=True)
            assert got.columns[pointer].type == schema.arrow_type(pointer)
            assert len(got.columns[pointer]) == len(messages)
            columns[pointer] = got.columns[pointer].to_pylist()
        for row, message in enumerate(messages):
            expected = reference(schema, message, pointers)
            if isinstance(expected, RecordError):
                assert got.errors.get(row) == (expected.code, expected.reason), message.hex()
                assert not got.ok[row]
                assert not got.surplus[row]
                assert all(columns[pointer][row] is None for pointer in pointers)
                continue
            assert row not in got.errors, (got.errors[row], message.hex())
            assert got.ok[row]
            assert got.surplus[row] == expected.surplus
            for pointer in pointers:
                assert equal(columns[pointer][row], expected.values[pointer]), pointer
