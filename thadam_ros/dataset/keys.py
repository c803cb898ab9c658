# SPDX-License-Identifier: Apache-2.0
"""Canonical event id keys of messages (spec 3.2).

A key is its parts' canonical bytes one after the other; a part is a type tag (1 byte), a length
(4 bytes, big-endian) and a value:

====  ==========================================================
tag   value
====  ==========================================================
``b``  boolean, 1 byte
``i``  whole number, 8 bytes, signed big-endian
``u``  whole number above 2^63-1, 8 bytes, unsigned big-endian
``f``  double, 8 bytes big-endian; one NaN for all, -0 as 0
``t``  time or duration in ns, 8 bytes, signed big-endian
``s``  text, UTF-8
``x``  bytes
====  ==========================================================

Identity levels are text. Equal values of different ROS types (int8 1, int64 1) are equal keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.dataset.convert import time_structure
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import KeyPart
from thadam_ros.model.message import RecordGroup
from thadam_ros.transforms.rows import Mask, Values, to_values

Index = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_HEADER_BYTES = 5
_TAGS = {"int": b"i", "long": b"i", "float": b"f", "double": b"f"}
_BEYOND_INT64 = np.uint64(2**63)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of n records in one buffer.

    Attributes:
        offsets: int64[n + 1] into ``raw``.
        missing: bool[n], where a part is missing or null.
    """

    raw: bytes
    offsets: Index
    missing: Mask

    def of(self, records: Index) -> Iterator[bytes]:
        """Yield the keys of ``records``."""
        raw = self.raw
        starts, ends = self.offsets[records].tolist(), self.offsets[records + 1].tolist()
        return (raw[start:end] for start, end in zip(starts, ends, strict=True))


@dataclass(frozen=True, slots=True)
class _Piece:
    """One part of all keys: ``head`` uint8[n, h], then ``tail`` cut by ``lengths`` (or nothing)."""

    head: Bytes
    missing: Mask | None
    lengths: Index | None = None
    tail: Bytes | None = None

    @property
    def sizes(self) -> Index:
        fixed = np.full(len(self.head), self.head.shape[1], np.int64)
        return fixed if self.lengths is None else fixed + self.lengths

    def write(self, out: Bytes, at: Index) -> None:
        """Write each record's part at ``at``."""
        width = self.head.shape[1]
        out[at[:, None] + np.arange(width)] = self.head
        if self.lengths is None or self.tail is None or not len(self.tail):
            return
        before = np.cumsum(self.lengths) - self.lengths
        out[np.arange(len(self.tail)) + np.repeat(at + width - before, self.lengths)] = self.tail


def canonical_keys(
    parts: Sequence[KeyPart], group: RecordGroup, columns: Mapping[str, pa.Array]
) -> Keys:
    """Return each record's key; a topic without the segment a level names has none."""
    pieces = [_piece(part, group, columns) for part in parts]
    sizes = np.sum([piece.sizes for piece in pieces], axis=0)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    missing = np.zeros(len(group), np.bool_)
    for piece in pieces:
        piece.write(out, at)
        at += piece.sizes
        if piece.missing is not None:
            missing |= piece.missing
    return Keys(out.tobytes(), offsets, missing)


def _piece(part: KeyPart, group: RecordGroup, columns: Mapping[str, pa.Array]) -> _Piece:
    if part.source is None:
        assert part.template is not None
        rendered = [part.template.render(declaration) for declaration in group.declarations]
        return _texts(b"s", pa.array(rendered, pa.string()).take(pa.array(group.topic)))
    leaf = part.source.leaf
    if leaf.shape in (Shape.TIME, Shape.DURATION):
        return _numbers(b"t", _instants(leaf, columns))
    natural = leaf.natural
    assert natural is not None
    column = columns[leaf.pointer]
    if natural.name in ("string", "binary"):
        return _texts(b"s" if natural.name == "string" else b"x", column)
    if natural.name == "boolean":
        values = to_values(column)
        body = values.data.astype(np.uint8).reshape(-1, 1)
        return _fixed(b"b", body, values.valid)
    return _numbers(_TAGS[natural.name], to_values(column))


def _instants(leaf: Leaf, columns: Mapping[str, pa.Array]) -> Values:
    converted = time_structure([columns[pointer] for pointer in leaf.parts])
    assert isinstance(converted.column, Values)
    return converted.column


def _numbers(tag: bytes, values: Values) -> _Piece:
    data = values.data
    if tag == b"f":
        # Adding zero turns -0 into 0.
        words = np.where(np.isnan(data), np.nan, data.astype(np.float64) + 0.0).astype(">f8")
    elif data.dtype == np.uint64:
        words = data.astype(">u8")
    else:
        words = data.astype(">i8")
    piece = _fixed(tag, words.view(np.uint8).reshape(-1, 8), values.valid)
    if data.dtype == np.uint64:
        piece.head[data >= _BEYOND_INT64, 0] = b"u"[0]
    return piece


def _fixed(tag: bytes, body: Bytes, valid: Mask | None) -> _Piece:
    header = np.frombuffer(tag + body.shape[1].to_bytes(4, "big"), np.uint8)
    head = np.empty((len(body), _HEADER_BYTES + body.shape[1]), np.uint8)
    head[:, :_HEADER_BYTES] = header
    head[:, _HEADER_BYTES:] = body
    return _Piece(head, None if valid is None else ~valid)


def _texts(tag: bytes, column: pa.Array) -> _Piece:
    missing = None
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        column = column.fill_null("" if tag == b"s" else b"")
    n = len(column)
    _, offset_buffer, data = column.buffers()
    offsets = np.zeros(1, np.int32)
    if n:
        offsets = np.frombuffer(offset_buffer, np.int32, column.offset + n + 1)[column.offset :]
    lengths = np.diff(offsets).astype(np.int64)
    head = np.empty((n, _HEADER_BYTES), np.uint8)
    head[:, 0] = tag[0]
    head[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    tail = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return _Piece(head, missing, lengths, tail[int(offsets[0]) : int(offsets[-1])])
