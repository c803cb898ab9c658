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
        kind, scope = output.kind, level.scope
        if isinstance(kind, PrimitiveType):
            return self._primitives(kind, scope.slots[output.position], output.pattern, level)
        if isinstance(kind, StringType):
            return self._strings(output, kind, level)
        if isinstance(kind, StructRef):
            return self._struct(output, level)
        return self._list(output, kind, level)

    # Numbers

    def _gather(self, kind: PrimitiveType, places: Ints) -> npt.NDArray[np.generic]:
        """Read one primitive at each place, in native byte order; booleans stay bytes."""
        if kind.size == 1:
            return self.payload[places].view(_dtype(kind))
        dtype = _dtype(kind).newbyteorder("<" if self.little else ">")
        view = np.ndarray((self.payload.size - kind.size + 1,), dtype, self.payload, strides=(1,))
        native: npt.NDArray[np.generic] = view[places].astype(_dtype(kind), copy=False)
        return native

    def _primitives(
        self, kind: PrimitiveType, places: Ints, pattern: str, level: Level
    ) -> pa.Array:
        values = self._gather(kind, places)
        if kind.name == "bool":
            self._note(pattern, np.flatnonzero(values > 1), level)  # type: ignore[operator]
        return _to_arrow(kind, values)

    def _note(self, pattern: str, entries: Ints, level: Level) -> None:
        if entries.size:
            self.bad[pattern] = level.messages(entries)

    # Byte ranges

    def _ranges(self, places: Ints, sizes: Ints) -> tuple[npt.NDArray[np.int32], Bytes]:
        """Copy byte ranges; return their offsets in the copy (n + 1 entries) and the copy."""
        ends = places + sizes
        count = len(places)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        if count == 0 or offsets[-1] == 0:
            return offsets, np.zeros(0, np.uint8)
        if not bool((places[1:] >= ends[:-1]).all()):
            return offsets, self.payload[ragged_range(places, sizes)]
        cuts = np.empty(2 * count, np.int32)
        cuts[0::2] = places
        cuts[1::2] = ends
        cut = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self.payload)]
        )
        taken = cut.take(pa.array(np.arange(0, 2 * count, 2)))
        return offsets, np.frombuffer(taken.buffers()[2], np.uint8, int(offsets[-1]))

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
        if output.count is not None:
            counts = np.full(scope.size, output.count, np.int64)
        else:
            counts = scope.slots[output.length]
        element = kind.element
        if isinstance(element, PrimitiveType):
            return self._primitive_list(output, element, counts, level)
        assert output.step is not None
        if isinstance(output.step, FixedListStep):
            inner = expand_fixed(output.step, scope)
        else:
            inner = scope.children[output.length]
        values = self.build(output.children[0], Level(inner, level, counts))
        return pa.ListArray.from_arrays(_offsets(counts), values)

    def _primitive_list(
        self, output: Output, element: PrimitiveType, counts: Ints, level: Level
    ) -> pa.Array:
        offsets, data = self._ranges(level.scope.slots[output.position], counts * element.size)
        if element.name in BYTE_PRIMITIVES:
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.BinaryArray.from_buffers(pa.binary(), len(counts), buffers)
        dtype = _dtype(element)
        wire_dtype = dtype.newbyteorder("<" if self.little else ">")
        values = data.view(wire_dtype).astype(dtype, copy=False)
        if element.name == "bool":
            inner = Level(Scope(values.size), level, counts)
            entries = np.flatnonzero(values > 1)
            self._note(f"{output.pattern}/*", entries, inner)
        return pa.ListArray.from_arrays(
            pa.array(offsets // element.size), _to_arrow(element, values)
        )


def _dtype(kind: PrimitiveType) -> np.dtype[np.generic]:
    """Return the numpy type in memory; booleans are bytes until they are checked."""
    return np.dtype("u1" if kind.name == "bool" else PRIMITIVES[kind.name].numpy)


def _to_arrow(kind: PrimitiveType, values: npt.NDArray[np.generic]) -> pa.Array:
    if kind.name == "bool":
        return pa.array(values != 0)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(PRIMITIVES[kind.name].arrow, len(values), buffers)


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
