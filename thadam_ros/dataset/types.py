# SPDX-License-Identifier: Apache-2.0
"""Column types of datasets and how the types of ROS messages map to them (spec 3.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

#: Types a field may declare, besides ``list<T>`` of all but ``list``.
SCALAR_TYPES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "timestamp",
)
#: Declarable, but built in a later version.
RESERVED_TYPES = ("object_ref",)

_LIST = re.compile(r"list<\s*([a-z_]+)\s*>")

#: ROS primitive -> column type that holds every value (uint64 above 2^63-1 is a reject).
_NATURAL = {
    "bool": "boolean",
    "byte": "int",
    "char": "int",
    "int8": "int",
    "uint8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "long",
    "int64": "long",
    "uint64": "long",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "wstring": "string",
}
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
#: Column types a value of the key may be stored in without losing anything but range, which is
#: checked per value (int from long).
_CASTS = {
    "boolean": {"boolean"},
    "int": {"int", "long", "float", "double"},
    "long": {"int", "long", "double"},
    "float": {"float", "double"},
    "double": {"double"},
    "string": {"string"},
    "binary": {"binary"},
    "timestamp": {"timestamp", "long"},
}
#: Changes a later configuration may make under the same version (spec 3.2, evolution).
_WIDENINGS = {("int", "long"), ("float", "double")}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column type; ``element`` is set for ``list`` only."""

    name: str
    element: str | None = None

    def __str__(self) -> str:
        return f"list<{self.element}>" if self.element else self.name

    def arrow(self, timestamp_unit: str, element_id: int | None = None) -> pa.DataType:
        """Return the Arrow type; list elements carry ``element_id`` as their field id."""
        if self.element is not None:
            metadata = None if element_id is None else field_id_metadata(element_id)
            inner = ColumnType(self.element).arrow(timestamp_unit)
            return pa.list_(pa.field("element", inner, metadata=metadata))
        if self.name == "timestamp":
            return pa.timestamp(timestamp_unit, "UTC")
        return _ARROW[self.name]

    def accepts(self, natural: ColumnType) -> bool:
        """Tell whether values of ``natural`` can be stored here without losing precision."""
        if self.element is not None:
            if natural == ColumnType("binary"):  # uint8[] read as numbers on request
                return self.element in _CASTS["int"]
            return natural.element is not None and self.element in _CASTS[natural.element]
        return natural.element is None and self.name in _CASTS.get(natural.name, ())

    def widens(self, older: ColumnType) -> bool:
        """Tell whether a column may become this type from ``older`` under the same version."""
        if self == older:
            return True
        if (self.element is None) != (older.element is None):
            return False
        pair = (older.element or older.name, self.element or self.name)
        return pair in _WIDENINGS


def parse_type(text: str) -> ColumnType | None:
    """Parse ``double`` or ``list<double>``; None when it is no column type."""
    match = _LIST.fullmatch(text.strip())
    if match:
        return ColumnType("list", match[1]) if match[1] in SCALAR_TYPES else None
    return ColumnType(text) if text in SCALAR_TYPES else None


def natural_type(primitive: str) -> ColumnType:
    """Return the column type of a ROS primitive."""
    return ColumnType(_NATURAL[primitive])


def natural_list(primitive: str) -> ColumnType:
    """Return the column type of an array or sequence of a ROS primitive."""
    if primitive in ("uint8", "byte", "char"):
        return ColumnType("binary")
    return ColumnType("list", _NATURAL[primitive])


def field_id_metadata(field_id: int, unit: str | None = None) -> dict[bytes, bytes]:
    """Return the Arrow field metadata that makes Parquet writers set a field id."""
    metadata = {b"PARQUET:field_id": str(field_id).encode()}
    if unit:
        metadata[b"unit"] = unit.encode()
    return metadata
