# SPDX-License-Identifier: Apache-2.0
"""Slots of a scope -> Arrow arrays: gathers of bytes, without Python per value.

Multi-byte values are gathered through views of the payload whose elements overlap (stride 1), so
nothing needs to be aligned in memory. Text and sequences are byte ranges in ascending order: the
payload itself, cut into ranges and gaps, is an Arrow binary array, and *take* of the ranges copies
exactly the wanted bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.decode.cursor import Ints, Scope, expand_fixed, ragged_range
from thadam_ros.decode.plan import FixedListStep, Output
from thadam_ros.decode.schema import (
    BYTE_PRIMITIVES,
    PRIMITIVES,
    ListType,
    PrimitiveType,
    StringType,
    StructRef,
)

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Level:
    """A scope with what is needed to find the message of an entry.

    Attributes:
        counts: Entries per entry of the parent level.
    """

    scope: Scope
    parent: Level | None = None
    counts: Ints | None = None

    def messages(self, entries: Ints) -> Ints:
        """Return the message numbers of ``entries`` (numbers within this level)."""
        if self.parent is None or self.counts is None:
            return entries
        owners = np.searchsorted(np.cumsum(self.counts), entries, side="right")
        return self.parent.messages(owners)


@dataclass(slots=True)
class ArrayBuilder:
    """Builds arrays from one payload and endianness, and collects content errors.

    Attributes:
        bad: Pattern -> message numbers (repeats possible) with text or booleans that are none.
    """

    payload: Bytes
    little: bool
    bad: dict[str, Ints] = field(default_factory=dict)

    def build(self, output: Output, level: Level) -> pa.Array:
        """Return the array of ``output`` with one value per entry of ``level``."""
        kind = output.kind
        if isinstance(kind, PrimitiveType):
            return self._primitives(kind, output, level)
        if isinstance(kind, StringType):
            return self._strings(output, kind, level)
        if isinstance(kind, StructRef):
            return self._struct(output, level)
        return self._list(output, kind, level)

    # Numbers

    def _members(
        self, output: Output, kind: PrimitiveType, count: int, scope: Scope
    ) -> npt.NDArray[np.generic]:
        """Return a copy of ``count`` values per entry, native and one after the other.

        Never a view of the payload: that may be a mapped file, and its values are not aligned.
        """
        size = count * kind.size
        if scope.blocks is None or output.position not in scope.blocks:
            return self._native(kind, self._matrix(scope.slots[output.position], size))
        block, offset = scope.blocks[output.position]
        if block.matrix is None:
            block.matrix = self._matrix(block.places, block.size, block.stride)
        return self._native(kind, block.matrix[:, offset : offset + size], copy=True)

    def _matrix(self, places: Ints, size: int, stride: int = 0) -> Bytes:
        """Return ``size`` bytes from each place; a view of the payload if a stride is known."""
        if places.size == 0:
            return np.zeros((0, size), np.uint8)
        if stride:
            shape, first = (places.size, size), int(places[0])
            view: Bytes = np.ndarray(shape, np.uint8, self.payload, first, (stride, 1))
            return view
        chunks: npt.NDArray[np.void] = np.ndarray(
            (self.payload.size - size + 1,), f"V{size}", self.payload, strides=(1,)
        )
        gathered: Bytes = chunks[places].view(np.uint8)
        return gathered.reshape(-1, size)

    def _native(
        self, kind: PrimitiveType, raw: Bytes, copy: bool = False
    ) -> npt.NDArray[np.generic]:
        """Return bytes as values in native order; booleans stay bytes."""
        dtype = np.dtype("u1" if kind.name == "bool" else PRIMITIVES[kind.name].numpy)
        swapped = dtype.newbyteorder("<" if self.little else ">")
        values: npt.NDArray[np.generic] = raw.view(swapped).astype(dtype, order="C", copy=copy)
        return values.reshape(-1)

    def _primitives(self, kind: PrimitiveType, output: Output, level: Level) -> pa.Array:
        values = self._members(output, kind, 1, level.scope)
        if kind.name == "bool":
            self._note(output.pattern, _not_boolean(values), level)
        return _to_arrow(kind, values)

    def _note(self, pattern: str, entries: Ints, level: Level) -> None:
        if entries.size:
            self.bad[pattern] = level.messages(entries)

    # Byte ranges

    def _ranges(self, places: Ints, sizes: Ints) -> tuple[npt.NDArray[np.int32], Bytes]:
        """Copy byte ranges; return their offsets in the copy (n + 1 entries) and the copy."""
        count = len(places)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        total = int(offsets[-1])
        if total == 0:
            return offsets, np.zeros(0, np.uint8)
        size = int(sizes[0])
        if size * count == total and bool((sizes == size).all()):
            return offsets, self._matrix(places, size, 0).reshape(-1)
        ends = places + sizes
        if not bool((places[1:] >= ends[:-1]).all()):
            return offsets, self.payload[ragged_range(places, sizes)]
        cuts = np.empty(2 * count, np.int32)
        cuts[0::2] = places
        cuts[1::2] = ends
        cut = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self.payload)]
        )
        taken = cut.take(pa.array(np.arange(0, 2 * count, 2)))
        return offsets, np.frombuffer(taken.buffers()[2], np.uint8, total)

    def _strings(self, output: Output, kind: StringType, level: Level) -> pa.Array:
        places = level.scope.slots[output.position]
        lengths = level.scope.slots[output.length]
        if kind.wide:
            return self._wide_strings(places, lengths, output.pattern, level)
        offsets, data = self._ranges(places, lengths)
        built = _string_array(offsets, data)
        if data.size and data.max() >= 0x80:
            try:
                built.validate(full=True)
            except pa.ArrowInvalid:
                bad = _bad_text(offsets, data)
                self._note(output.pattern, bad, level)
                lengths = lengths.copy()
                lengths[bad] = 0
                built = _string_array(*self._ranges(places, lengths))
        return built

    def _wide_strings(self, places: Ints, lengths: Ints, pattern: str, level: Level) -> pa.Array:
        offsets, data = self._ranges(places, lengths * 4)
        units = data.view("<u4" if self.little else ">u4")
        offsets = offsets // 4
        if not units.size or units.max() < 0x80:
            return _string_array(offsets, units.astype(np.uint8))
        texts: list[str] = []
        bad: list[int] = []
        for number, (start, end) in enumerate(pairwise(offsets.tolist())):
            text = _wide_text(units[start:end])
            if text is None:
                bad.append(number)
            texts.append(text or "")
        self._note(pattern, np.array(bad, np.int64), level)
        return pa.array(texts, pa.string())

    # Structures and lists

    def _struct(self, output: Output, level: Level) -> pa.Array:
        size = level.scope.size
        if not output.children:
            return pa.StructArray.from_buffers(pa.struct([]), size, [None])
        children = [self.build(child, level) for child in output.children]
        names = [child.pattern.rsplit("/", 1)[1] for child in output.children]
        return pa.StructArray.from_arrays(children, names)

    def _list(self, output: Output, kind: ListType, level: Level) -> pa.Array:
        scope = level.scope
        if isinstance(kind.element, PrimitiveType):
            if output.count is None:
                return self._sequence(output, kind.element, level)
            return self._array(output, kind.element, output.count, level)
        assert output.step is not None
        counts = scope.slots[output.length]
        if isinstance(output.step, FixedListStep):
            inner = expand_fixed(output.step, scope)
        else:
            inner = scope.children[output.length]
        values = self.build(output.children[0], Level(inner, level, counts))
        return pa.ListArray.from_arrays(_offsets(counts), values)

    def _sequence(self, output: Output, element: PrimitiveType, level: Level) -> pa.Array:
        counts = level.scope.slots[output.length]
        places = level.scope.slots[output.position]
        offsets, data = self._ranges(places, counts * element.size)
        values = self._native(element, data)
        return self._primitive_list(output, element, offsets // element.size, values, level)

    def _array(self, output: Output, element: PrimitiveType, count: int, level: Level) -> pa.Array:
        values = self._members(output, element, count, level.scope)
        offsets = np.arange(level.scope.size + 1, dtype=np.int32) * count
        return self._primitive_list(output, element, offsets, values, level)

    def _primitive_list(
        self,
        output: Output,
        element: PrimitiveType,
        offsets: npt.NDArray[np.int32],
        values: npt.NDArray[np.generic],
        level: Level,
    ) -> pa.Array:
        if element.name in BYTE_PRIMITIVES:
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
            return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        if element.name == "bool":
            inner = Level(Scope(values.size), level, np.diff(offsets).astype(np.int64))
            self._note(f"{output.pattern}/*", _not_boolean(values), inner)
        return pa.ListArray.from_arrays(pa.array(offsets), _to_arrow(element, values))


def _to_arrow(kind: PrimitiveType, values: npt.NDArray[np.generic]) -> pa.Array:
    if kind.name == "bool":
        return pa.array(values != 0)
    buffers = [None, pa.py_buffer(values)]
    return pa.Array.from_buffers(PRIMITIVES[kind.name].arrow, len(values), buffers)


def _not_boolean(values: npt.NDArray[np.generic]) -> Ints:
    """Return the numbers of the bytes that are neither 0 nor 1."""
    return np.flatnonzero(values.view(np.uint8) > 1)


def _string_array(offsets: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.StringArray.from_buffers(len(offsets) - 1, buffers[1], buffers[2])


def _offsets(counts: Ints) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def _bad_text(offsets: npt.NDArray[np.int32], data: Bytes) -> Ints:
    """Return the numbers of the strings that are not UTF-8; looks only at those beyond ASCII."""
    beyond = np.flatnonzero(data >= 0x80)
    candidates = np.unique(np.searchsorted(offsets, beyond, side="right") - 1)
    bad = []
    for number in candidates.tolist():
        try:
            data[offsets[number] : offsets[number + 1]].tobytes().decode()
        except UnicodeDecodeError:
            bad.append(number)
    return np.array(bad, np.int64)


def _wide_text(units: npt.NDArray[np.uint32]) -> str | None:
    """Decode UTF-16 units in 4 bytes each (a unit above 0xFFFF is a code point), or None."""
    if units.size and units.max() > 0x10FFFF:
        return None
    text = "".join(map(chr, units.tolist()))
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None
