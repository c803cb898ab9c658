# SPDX-License-Identifier: Apache-2.0
"""Slow, obviously correct CDR decoder: one message, one value at a time (spec 3.4).

The oracle of :mod:`.cdr_columns`: both give the same values, the same reject code and the same
reason for the same bytes. Order of errors: see :mod:`.wire`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thadam_ros.decode import wire
from thadam_ros.decode.estimate import is_estimate, may_be_overestimated
from thadam_ros.decode.limits import minimum_size, minimum_sizes
from thadam_ros.decode.schema import (
    BYTE_PRIMITIVES,
    PRIMITIVES,
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    StringType,
    StructRef,
    split_pointer,
)
from thadam_ros.errors import RecordError

_STRUCT_CODES: Final = {
    "bool": "B",
    "byte": "B",
    "char": "B",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


@dataclass(frozen=True, slots=True)
class ReferenceMessage:
    """One decoded message.

    Attributes:
        values: Pointer -> value: numbers, str, bytes (lists of uint8, byte, char), lists, dicts.
        surplus: More than padding follows the message (:mod:`.wire`).
    """

    values: Mapping[str, object]
    surplus: bool

    @property
    def value(self) -> object:
        """The whole message, when no pointers were asked for."""
        return self.values[""]


def decode_message(
    schema: MessageSchema, data: bytes, pointers: Sequence[str] | None = None
) -> ReferenceMessage:
    """Decode one payload, encapsulation header included.

    Args:
        schema: The message's definition.
        data: The payload as received.
        pointers: Wanted values; None for the whole message. The structure of the whole payload
            is checked either way, text and booleans only in what is wanted.

    Raises:
        RecordError: ``decode.*`` for the payload, ``schema.pointer_unknown`` for a pointer.
    """
    wanted = ("",) if pointers is None else tuple(pointers)
    kinds = {pointer: schema.resolve(pointer) for pointer in wanted}
    if refused := wire.header_error(data[: wire.HEADER_BYTES]):
        raise RecordError(*refused)
    little = data[:2] == wire.CDR_LE
    reader = _Reader(schema, data, little)
    try:
        root = reader.read(StructRef(schema.type_name), "")
    except RecordError as error:
        if _reads_cleanly(schema, data, not little):
            reason = wire.endianness_reason(little, error.reason)
            raise RecordError(wire.ENDIANNESS, reason) from None
        raise
    found = {pointer: _follow(root, pointer) for pointer in wanted}
    _check_content(schema, kinds, found)
    values = {pointer: _finish(schema, kinds[pointer], found[pointer]) for pointer in wanted}
    surplus = wire.is_surplus(reader.trailing, len(data))
    if surplus and may_be_overestimated(schema):
        surplus = not is_estimate(schema, data, little)
    return ReferenceMessage(values, surplus)


def _reads_cleanly(schema: MessageSchema, data: bytes, little: bool) -> bool:
    reader = _Reader(schema, data, little)
    try:
        reader.read(StructRef(schema.type_name), "")
    except RecordError:
        return False
    return not wire.is_surplus(reader.trailing, len(data))


class _Reader:
    """Cursor over one body. Text stays raw: bytes for strings, a tuple of units for wstrings."""

    def __init__(self, schema: MessageSchema, data: bytes, little: bool) -> None:
        self._structs = schema.structs
        self._sizes = minimum_sizes(schema.structs, schema.type_name)
        self._body = data[wire.HEADER_BYTES :]
        self._order = "<" if little else ">"
        self._pos = 0

    @property
    def trailing(self) -> int:
        return len(self._body) - self._pos

    def read(self, kind: FieldType, pattern: str) -> object:
        """Read one value; ``pattern`` is its pointer with ``*`` for list elements."""
        if isinstance(kind, PrimitiveType):
            return self._numbers(kind.name, 1)[0]
        if isinstance(kind, StringType):
            return self._wide_string(kind, pattern) if kind.wide else self._string(kind, pattern)
        if isinstance(kind, StructRef):
            fields = self._structs[kind.name].fields
            if not fields:
                self._take(1)  # structure_needs_at_least_one_member
            return {f.name: self.read(f.type, f"{pattern}/{f.name}") for f in fields}
        return self._list(kind, pattern)

    def _take(self, size: int) -> bytes:
        if size > len(self._body) - self._pos:
            reason = wire.truncated_reason(len(self._body) + wire.HEADER_BYTES)
            raise RecordError(wire.TRUNCATED, reason)
        taken = self._body[self._pos : self._pos + size]
        self._pos += size
        return taken

    def _numbers(self, name: str, count: int) -> tuple[object, ...]:
        size = PRIMITIVES[name].size
        # Padding that reaches behind the end is an end inside the message, too.
        self._pos += -self._pos % size
        return struct.unpack(f"{self._order}{count}{_STRUCT_CODES[name]}", self._take(size * count))

    def _length(self) -> tuple[int, int]:
        """Read a uint32 length; return it with its offset in the payload."""
        (length,) = self._numbers("uint32", 1)
        assert isinstance(length, int)
        return length, self._pos - 4 + wire.HEADER_BYTES

    def _string(self, kind: StringType, pattern: str) -> bytes:
        length, offset = self._length()
        if length == 0:
            raise RecordError(wire.STRING, wire.empty_string_reason(pattern, offset))
        if kind.bound is not None and length - 1 > kind.bound:
            raise RecordError(wire.LENGTH, wire.string_bound_reason(pattern, offset))
        raw = self._take(length)
        if raw[-1] != 0:
            raise RecordError(wire.STRING, wire.terminator_reason(pattern, offset))
        return raw[:-1]

    def _wide_string(self, kind: StringType, pattern: str) -> tuple[object, ...]:
        length, offset = self._length()
        if kind.bound is not None and length > kind.bound:
            raise RecordError(wire.LENGTH, wire.string_bound_reason(pattern, offset))
        return self._numbers("uint32", length)

    def _list(self, kind: ListType, pattern: str) -> object:
        count = kind.length
        if count is None:
            count, offset = self._length()
            if kind.bound is not None and count > kind.bound:
                raise RecordError(wire.LENGTH, wire.bound_reason(pattern, offset))
            if count * minimum_size(kind.element, self._sizes) > self.trailing:
                raise RecordError(wire.LENGTH, wire.length_reason(pattern, offset))
            if count == 0:
                return b"" if _is_bytes(kind) else []
        if _is_bytes(kind):
            return self._take(count)
        if isinstance(kind.element, PrimitiveType):
            return list(self._numbers(kind.element.name, count))
        return [self.read(kind.element, f"{pattern}/*") for _ in range(count)]


def _is_bytes(kind: ListType) -> bool:
    return isinstance(kind.element, PrimitiveType) and kind.element.name in BYTE_PRIMITIVES


def _follow(root: object, pointer: str) -> object:
    for name in split_pointer(pointer):
        assert isinstance(root, dict)
        root = root[name]
    return root


def _check_content(
    schema: MessageSchema, kinds: Mapping[str, FieldType], found: Mapping[str, object]
) -> None:
    """Raise for the first field in schema order with bad text, else with a bad boolean."""
    bad_text: set[str] = set()
    bad_boolean: set[str] = set()
    for pointer, kind in kinds.items():
        for pattern, scalar, value in _scalars(schema, kind, found[pointer], pointer):
            if isinstance(scalar, StringType):
                if _text(value) is None:
                    bad_text.add(pattern)
            elif scalar.name == "bool" and value not in (0, 1):
                bad_boolean.add(pattern)
    if not bad_text and not bad_boolean:
        return
    for pattern, scalar in _scalar_kinds(schema, StructRef(schema.type_name), ""):
        if pattern in bad_text:
            assert isinstance(scalar, StringType)
            raise RecordError(wire.STRING, wire.text_reason(pattern, scalar.wide))
    for pattern, _ in _scalar_kinds(schema, StructRef(schema.type_name), ""):
        if pattern in bad_boolean:
            raise RecordError(wire.BOOLEAN, wire.boolean_reason(pattern))


def _scalars(
    schema: MessageSchema, kind: FieldType, value: object, pattern: str
) -> Iterator[tuple[str, PrimitiveType | StringType, object]]:
    """Yield (pattern, kind, raw value) of everything that is neither structure nor list."""
    if isinstance(kind, StructRef):
        assert isinstance(value, dict)
        for field in schema.structs[kind.name].fields:
            yield from _scalars(schema, field.type, value[field.name], f"{pattern}/{field.name}")
    elif isinstance(kind, ListType):
        assert isinstance(value, list | bytes)
        for item in value:
            yield from _scalars(schema, kind.element, item, f"{pattern}/*")
    else:
        yield pattern, kind, value


def _scalar_kinds(
    schema: MessageSchema, kind: FieldType, pattern: str
) -> Iterator[tuple[str, PrimitiveType | StringType]]:
    if isinstance(kind, StructRef):
        for field in schema.structs[kind.name].fields:
            yield from _scalar_kinds(schema, field.type, f"{pattern}/{field.name}")
    elif isinstance(kind, ListType):
        yield from _scalar_kinds(schema, kind.element, f"{pattern}/*")
    else:
        yield pattern, kind


def _text(raw: object) -> str | None:
    """Decode raw text; None when it is no Unicode."""
    try:
        if isinstance(raw, bytes):
            return raw.decode()
        assert isinstance(raw, tuple)
        # rmw_fastrtps writes UTF-16 units, each in 4 bytes; a unit above 0xFFFF is a code point.
        units = "".join(map(chr, raw))
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except (ValueError, OverflowError):
        return None


def _finish(schema: MessageSchema, kind: FieldType, value: object) -> object:
    """Turn raw text into str and boolean bytes into bool."""
    if isinstance(kind, StructRef):
        assert isinstance(value, dict)
        fields = schema.structs[kind.name].fields
        return {f.name: _finish(schema, f.type, value[f.name]) for f in fields}
    if isinstance(kind, ListType):
        if isinstance(value, bytes):
            return value
        assert isinstance(value, list)
        return [_finish(schema, kind.element, item) for item in value]
    if isinstance(kind, StringType):
        return _text(value)
    return bool(value) if kind.name == "bool" else value
