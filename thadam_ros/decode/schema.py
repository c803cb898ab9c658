# SPDX-License-Identifier: Apache-2.0
"""The shape of a message as the wire and Arrow see it: frozen types, pointers, type hash.

Wire facts (XCDR1 plain CDR, OMG DDSI-RTPS 10 and Fast CDR): a primitive aligns to its size, a
string and a sequence to their uint32 length, a structure to its first member; a structure without
members carries one hidden uint8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from thadam_ros.errors import RecordError


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A number, character or boolean; ``name`` is a key of :data:`PRIMITIVES`."""

    name: str

    @property
    def size(self) -> int:
        """Bytes on the wire, which is also the alignment."""
        return PRIMITIVES[self.name].size


@dataclass(frozen=True, slots=True)
class StringType:
    """A string of 8-bit (UTF-8) or wide (UTF-16) units, at most ``bound`` units when bounded."""

    wide: bool = False
    bound: int | None = None


@dataclass(frozen=True, slots=True)
class StructRef:
    """A nested structure, by its full name such as ``std_msgs/msg/Header``."""

    name: str


@dataclass(frozen=True, slots=True)
class ListType:
    """An array (``length`` given) or a sequence, at most ``bound`` elements when bounded."""

    element: PrimitiveType | StringType | StructRef
    length: int | None = None
    bound: int | None = None


FieldType = PrimitiveType | StringType | StructRef | ListType


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One member of a structure."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Constant:
    """A named constant; ``value`` is its text as written."""

    name: str
    type: FieldType
    value: str


@dataclass(frozen=True, slots=True)
class StructDefinition:
    """A message or nested structure; ``fields`` are in wire order."""

    name: str
    fields: tuple[SchemaField, ...]
    constants: tuple[Constant, ...] = ()


@dataclass(frozen=True, slots=True)
class PrimitiveInfo:
    """Wire size in bytes, type id of the RIHS01 type description, numpy code, Arrow type."""

    size: int
    type_id: int
    numpy: str
    arrow: pa.DataType


#: ``char`` is IDL's; a ``char`` in a .msg is parsed as uint8 (rosidl does the same).
PRIMITIVES: Final[Mapping[str, PrimitiveInfo]] = {
    "int8": PrimitiveInfo(1, 2, "i1", pa.int8()),
    "uint8": PrimitiveInfo(1, 3, "u1", pa.uint8()),
    "int16": PrimitiveInfo(2, 4, "i2", pa.int16()),
    "uint16": PrimitiveInfo(2, 5, "u2", pa.uint16()),
    "int32": PrimitiveInfo(4, 6, "i4", pa.int32()),
    "uint32": PrimitiveInfo(4, 7, "u4", pa.uint32()),
    "int64": PrimitiveInfo(8, 8, "i8", pa.int64()),
    "uint64": PrimitiveInfo(8, 9, "u8", pa.uint64()),
    "float32": PrimitiveInfo(4, 10, "f4", pa.float32()),
    "float64": PrimitiveInfo(8, 11, "f8", pa.float64()),
    "char": PrimitiveInfo(1, 13, "u1", pa.uint8()),
    "bool": PrimitiveInfo(1, 15, "?", pa.bool_()),
    "byte": PrimitiveInfo(1, 16, "u1", pa.uint8()),
}

#: Lists of these are bytes, not lists (spec 3.2).
BYTE_PRIMITIVES: Final = frozenset({"uint8", "char", "byte"})

_TYPE_ID_STRUCT: Final = 1
_TYPE_ID_STRINGS: Final = {
    (False, False): 17,
    (True, False): 18,
    (False, True): 21,
    (True, True): 22,
}


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema:
    """A message definition with everything it refers to.

    Attributes:
        type_name: ``sensor_msgs/msg/Imu``.
        structs: Full name -> definition, the message itself included.
    """

    type_name: str
    structs: Mapping[str, StructDefinition]

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """Members of the message, in wire order."""
        return self.structs[self.type_name].fields

    def resolve(self, pointer: str) -> FieldType:
        """Return the type that an RFC 6901 pointer over field names addresses.

        ``""`` is the whole message. Elements of lists are not addressed by pointers.

        Raises:
            RecordError: ``schema.pointer_unknown`` when there is no such field.
        """
        current: FieldType = StructRef(self.type_name)
        for name in split_pointer(pointer):
            fields = self.structs[current.name].fields if isinstance(current, StructRef) else ()
            found = next((f.type for f in fields if f.name == name), None)
            if found is None:
                raise RecordError(
                    "schema.pointer_unknown", f"{self.type_name} has no field {pointer!r}"
                )
            current = found
        return current

    def arrow_type(self, pointer: str) -> pa.DataType:
        """Return the Arrow type of the column that ``pointer`` gives.

        Structures become structs, arrays and sequences both become lists (an Arrow fixed size
        list is refused by several Parquet readers), lists of uint8, byte or char become binary.

        Raises:
            RecordError: ``schema.pointer_unknown`` when there is no such field.
        """
        return self.arrow_type_of(self.resolve(pointer))

    def arrow_type_of(self, kind: FieldType) -> pa.DataType:
        """Return the Arrow type of values of ``kind``."""
        if isinstance(kind, PrimitiveType):
            return PRIMITIVES[kind.name].arrow
        if isinstance(kind, StringType):
            return pa.string()
        if isinstance(kind, StructRef):
            return pa.struct(
                [(f.name, self.arrow_type_of(f.type)) for f in self.structs[kind.name].fields]
            )
        if isinstance(kind.element, PrimitiveType) and kind.element.name in BYTE_PRIMITIVES:
            return pa.binary()
        return pa.list_(self.arrow_type_of(kind.element))

    def leaves(self) -> Iterator[tuple[str, FieldType]]:
        """Yield (pointer, type) of everything that is not a structure, in wire order."""
        stack: list[tuple[str, FieldType]] = [("", StructRef(self.type_name))]
        while stack:
            pointer, kind = stack.pop()
            if isinstance(kind, StructRef):
                members = self.structs[kind.name].fields
                stack.extend((f"{pointer}/{f.name}", f.type) for f in reversed(members))
            else:
                yield pointer, kind


def split_pointer(pointer: str) -> list[str]:
    """Split an RFC 6901 pointer into its unescaped tokens; ``""`` has none.

    Raises:
        RecordError: ``schema.pointer_unknown`` when it does not start with a slash.
    """
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise RecordError("schema.pointer_unknown", f"a pointer starts with '/': {pointer!r}")
    return [t.replace("~1", "/").replace("~0", "~") for t in pointer[1:].split("/")]


def type_hash(schema: MessageSchema) -> str:
    """Return ``RIHS01_<64 hex>`` of the type description (REP 2016): SHA-256 over its JSON.

    Constants and defaults take no part, so the hash names the wire layout and the field names.
    """
    described: dict[str, dict[str, object]] = {}
    pending = [schema.type_name]
    while pending:
        name = pending.pop()
        if name in described:
            continue
        members = schema.structs[name].fields or (_HIDDEN_MEMBER,)
        described[name] = {"type_name": name, "fields": [_describe(f) for f in members]}
        for member in members:
            inner = member.type.element if isinstance(member.type, ListType) else member.type
            if isinstance(inner, StructRef):
                pending.append(inner.name)
    document = {
        "type_description": described.pop(schema.type_name),
        "referenced_type_descriptions": [described[name] for name in sorted(described)],
    }
    return "RIHS01_" + hashlib.sha256(json.dumps(document).encode()).hexdigest()


_HIDDEN_MEMBER: Final = SchemaField("structure_needs_at_least_one_member", PrimitiveType("uint8"))


def _describe(field: SchemaField) -> dict[str, object]:
    kind = field.type
    family, capacity = 0, 0
    if isinstance(kind, ListType):
        if kind.length is not None:
            family, capacity = 48, kind.length
        elif kind.bound is not None:
            family, capacity = 96, kind.bound
        else:
            family = 144
        kind = kind.element
    string_capacity, nested = 0, ""
    if isinstance(kind, StructRef):
        type_id, nested = _TYPE_ID_STRUCT, kind.name
    elif isinstance(kind, StringType):
        type_id, string_capacity = _TYPE_ID_STRINGS[kind.wide, bool(kind.bound)], kind.bound or 0
    else:
        assert isinstance(kind, PrimitiveType)
        type_id = PRIMITIVES[kind.name].type_id
    return {
        "name": field.name,
        "type": {
            "type_id": family + type_id,
            "capacity": capacity,
            "string_capacity": string_capacity,
            "nested_type_name": nested,
        },
    }
