# SPDX-License-Identifier: Apache-2.0
"""What a pointer means in a message type: the leaf it names and the columns it can become.

A pointer is a JSON Pointer (RFC 6901) over field names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from thadam_ros.dataset.types import ColumnType, natural_list, natural_type
from thadam_ros.decode.schema import (
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    StringType,
    StructRef,
)
from thadam_ros.errors import RecordError

_TIME = "builtin_interfaces/msg/Time"
_DURATION = "builtin_interfaces/msg/Duration"


class Shape(Enum):
    """What a pointer names."""

    SCALAR = "value"
    LIST = "array"
    TIME = "time"
    DURATION = "duration"
    STRUCT = "structure"
    STRUCTS = "array of structures"


@dataclass(frozen=True, slots=True)
class Leaf:
    """The field a pointer names.

    Attributes:
        pointer: From the message's root, or relative to an element (then without leading slash).
        type_name: Primitive (``float64``) or message type name (``std_msgs/msg/Header``).
    """

    pointer: str
    shape: Shape
    type_name: str

    @property
    def column(self) -> str:
        """Name of the column ``all_fields`` makes of it."""
        return self.pointer.strip("/").replace("/", "_")

    @property
    def natural(self) -> ColumnType | None:
        """Column type that holds every value; None for structures."""
        if self.shape is Shape.SCALAR:
            return natural_type(self.type_name)
        if self.shape is Shape.LIST:
            return natural_list(self.type_name)
        if self.shape is Shape.TIME:
            return ColumnType("timestamp")
        return ColumnType("long") if self.shape is Shape.DURATION else None

    @property
    def parts(self) -> tuple[str, ...]:
        """Pointers the decoder is asked for: a Time is fetched as its two integers."""
        if self.shape in (Shape.TIME, Shape.DURATION):
            return (f"{self.pointer}/sec", f"{self.pointer}/nanosec")
        return (self.pointer,)

    def __str__(self) -> str:
        arrays = {Shape.LIST: "[]", Shape.STRUCTS: "[]"}
        return self.type_name + arrays.get(self.shape, "")


def find_leaf(schema: MessageSchema, pointer: str, root: str | None = None) -> Leaf | None:
    """Return what ``pointer`` names in the message, or in the structure ``root``; None if nothing.

    Args:
        pointer: ``/pose/position/x``; relative to ``root`` when that is given.
        root: A structure's full name, such as ``diagnostic_msgs/msg/DiagnosticStatus``.
    """
    view = schema if root is None else MessageSchema(root, schema.structs)
    try:
        return _leaf(pointer, view.resolve(pointer))
    except RecordError:
        return None


def element_leaf(leaf: Leaf) -> Leaf:
    """Return the leaf of one element of an array; its pointer is the array's."""
    if leaf.shape is Shape.LIST:
        return Leaf(leaf.pointer, Shape.SCALAR, leaf.type_name)
    if leaf.shape is Shape.STRUCTS:
        shape = {_TIME: Shape.TIME, _DURATION: Shape.DURATION}.get(leaf.type_name, Shape.STRUCT)
        return Leaf(leaf.pointer, shape, leaf.type_name)
    raise ValueError(f"{leaf.pointer} is a {leaf.shape.value}")


def expand(schema: MessageSchema, root: str | None = None, prefix: str = "") -> Iterator[Leaf]:
    """Yield what ``all_fields`` covers, in wire order; Time and Duration are leaves.

    Args:
        root: Expand this structure instead of the message.
        prefix: Pointer put before each pointer found.
    """
    for member in schema.structs[root or schema.type_name].fields:
        leaf = _leaf(f"{prefix}/{member.name}", member.type)
        if leaf.shape is Shape.STRUCT:
            yield from expand(schema, leaf.type_name, leaf.pointer)
        else:
            yield leaf


def nearest_pointer(schema: MessageSchema, pointer: str, root: str | None = None) -> str | None:
    """Return the pointer of the message (or of ``root``) most like ``pointer``."""
    known: set[str] = set()
    for leaf in expand(schema, root):
        parts = leaf.pointer.split("/")
        known.update("/".join(parts[: i + 1]) for i in range(1, len(parts)))
    return next(iter(difflib.get_close_matches(pointer, sorted(known), 1)), None)


def _leaf(pointer: str, kind: FieldType) -> Leaf:
    if isinstance(kind, PrimitiveType):
        return Leaf(pointer, Shape.SCALAR, kind.name)
    if isinstance(kind, StringType):
        return Leaf(pointer, Shape.SCALAR, "wstring" if kind.wide else "string")
    if isinstance(kind, StructRef):
        shape = {_TIME: Shape.TIME, _DURATION: Shape.DURATION}.get(kind.name, Shape.STRUCT)
        return Leaf(pointer, shape, kind.name)
    assert isinstance(kind, ListType)
    inner = _leaf(pointer, kind.element)
    shape = Shape.LIST if inner.shape is Shape.SCALAR else Shape.STRUCTS
    return Leaf(pointer, shape, inner.type_name)
