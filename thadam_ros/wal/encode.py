# SPDX-License-Identifier: Apache-2.0
"""From source batches to frames.

A batch is packed into arrays by the thread that appends it, while the writer thread waits for
the disk; the writer thread only puts arrays behind each other, one pass a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import zstandard

from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.wal.layout import (
    CODEC_NONE,
    CODEC_ZSTD,
    FLAG_CLOCK_SYNCED,
    KIND_DATA,
    KIND_DECLARATION,
    RECORD_BYTES,
    FrameHeader,
    aligned,
    array_bytes,
    checksum,
)

#: Definitions repeat each other; below this a declaration is not worth compressing.
_DECLARATION_COMPRESS_BYTES: Final = 4 << 10
_ZSTD_LEVEL: Final = 1
_PADDING: Final = bytes(8)
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "q": np.dtype("<i8"),
    "Q": np.dtype("<u8"),
    "I": np.dtype("<u4"),
}

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stamp:
    """Clocks read together when a batch was accepted."""

    time_ns: int
    boottime_ns: int
    boot_id: bytes
    clock_synced: bool


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch that waits for its commit; n records.

    Attributes:
        monotonic_ns: When it was accepted.
        columns: int64 ingest times, int64 source timestamps, uint64 sequences, uint32 topic
            references, uint32 publisher references; n each.
        lengths: int64[n] payload lengths.
        payload: All payloads behind each other.
        topic_refs, publisher_refs: What has to be declared before it.
        bytes: What it takes in a frame, attributes included.
    """

    source_id: str
    stamp: Stamp
    monotonic_ns: int
    columns: tuple[npt.NDArray[Any], ...]
    lengths: npt.NDArray[np.int64]
    payload: memoryview
    attributes: Mapping[int, Mapping[str, str]]
    topic_refs: frozenset[int]
    publisher_refs: frozenset[int]
    bytes: int

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A data frame without what depends on the segment: sync, epoch, ordinal, position, source.

    Attributes:
        header: Those fields are zero.
        body: Buffers of the body, padding included.
        topic_refs, publisher_refs: What has to be declared in the segment before it.
    """

    header: FrameHeader
    source_id: str
    body: tuple[Buffer, ...]
    topic_refs: frozenset[int]
    publisher_refs: frozenset[int]


def pack_batch(batch: SourceBatch, stamp: Stamp, monotonic_ns: int) -> PackedBatch:
    """Return ``batch`` as arrays.

    Raises:
        ValueError: The lists differ in length, a value does not fit its array, a payload is not
            bytes, or attributes name a record that is not there.
    """
    n = len(batch.payloads)
    lists = (
        batch.ingest_times_ns,
        batch.source_timestamps_ns,
        batch.sequences,
        batch.topic_refs,
        batch.publisher_refs,
    )
    if any(len(values) != n for values in lists):
        raise ValueError(f"the lists of a batch of source {batch.source_id!r} differ in length")
    if batch.attributes and not all(0 <= index < n for index in batch.attributes):
        raise ValueError(f"attributes of source {batch.source_id!r} name a record beyond {n - 1}")
    try:
        payload = memoryview(b"".join(batch.payloads))
        return PackedBatch(
            source_id=batch.source_id,
            stamp=stamp,
            monotonic_ns=monotonic_ns,
            columns=tuple(map(_packed, "qqQII", lists)),
            lengths=_packed("q", list(map(len, batch.payloads))),
            payload=payload,
            attributes=batch.attributes,
            topic_refs=frozenset(_distinct(batch.topic_refs)),
            publisher_refs=frozenset(_distinct(batch.publisher_refs)) - {0},
            bytes=len(payload) + RECORD_BYTES * n + _attribute_bytes(batch),
        )
    except (struct.error, TypeError) as exc:
        raise ValueError(f"a batch of source {batch.source_id!r}: {exc}") from exc


def _packed(typecode: str, numbers: Sequence[int]) -> npt.NDArray[Any]:
    # struct, for it is the fastest on a list of int and strict about range with every numpy;
    # most lists of references are one value over and over (bench/wal_append.py --layouts).
    n = len(numbers)
    if typecode == "I" and n and numbers.count(numbers[0]) == n:
        data = struct.pack("<I", numbers[0]) * n
    else:
        data = struct.pack(f"<{n}{typecode}", *numbers)
    column: npt.NDArray[Any] = np.frombuffer(data, _DTYPES[typecode])
    return column


def _distinct(refs: Sequence[int]) -> Sequence[int]:
    return refs[:1] if refs.count(refs[0]) == len(refs) else refs


def _attribute_bytes(batch: SourceBatch) -> int:
    return sum(
        len(key) + len(value) + 6
        for attributes in batch.attributes.values()
        for key, value in attributes.items()
    )


def group_batches(waiting: Sequence[PackedBatch], frame_bytes: int) -> Iterator[list[PackedBatch]]:
    """Yield the batches of each frame: one source, one clock state, about ``frame_bytes``.

    A source's batches keep their order. A batch that is larger on its own is cut between
    records; a record that is larger on its own gets a frame of its own.
    """
    open_groups: dict[tuple[str, bool], tuple[list[PackedBatch], int]] = {}
    for batch in waiting:
        key = batch.source_id, batch.stamp.clock_synced
        other = key[0], not key[1]
        if other in open_groups:
            # The clock state changed: what came before must not end up behind.
            yield open_groups.pop(other)[0]
        for piece in _pieces(batch, frame_bytes):
            group, size = open_groups.get(key, ([], 0))
            if group and size + piece.bytes > frame_bytes:
                yield group
                group, size = [], 0
            group.append(piece)
            open_groups[key] = group, size + piece.bytes
    for group, _ in open_groups.values():
        yield group


def _pieces(batch: PackedBatch, frame_bytes: int) -> Iterator[PackedBatch]:
    if batch.bytes <= frame_bytes or len(batch) <= 1:
        yield batch
        return
    sizes = batch.lengths + RECORD_BYTES
    start = size = begin = 0
    for index, record in enumerate(sizes.tolist()):
        if index > start and size + record > frame_bytes:
            yield _cut(batch, start, index, begin, size)
            begin += size - RECORD_BYTES * (index - start)
            start, size = index, 0
        size += record
    yield _cut(batch, start, len(batch), begin, size)


def _cut(batch: PackedBatch, start: int, end: int, begin: int, size: int) -> PackedBatch:
    return replace(
        batch,
        columns=tuple(column[start:end] for column in batch.columns),
        lengths=batch.lengths[start:end],
        payload=batch.payload[begin : begin + size - RECORD_BYTES * (end - start)],
        attributes={i - start: v for i, v in batch.attributes.items() if start <= i < end},
        bytes=size,
    )


def encode_frame(group: Sequence[PackedBatch], compressor: Compressor | None) -> EncodedFrame:
    """Return one data frame of all batches in ``group``, in order."""
    n = sum(map(len, group))
    attributes = _pack_attributes(group)
    payload_bytes = sum(len(batch.payload) for batch in group)
    stored: list[Buffer] = [batch.payload for batch in group]
    codec = CODEC_NONE
    if compressor is not None:
        stored, codec = compressor.compress(stored, payload_bytes)
    body: list[Buffer] = [_arrays(group, n)]
    if attributes:
        body += [attributes, _PADDING[: aligned(len(attributes)) - len(attributes)]]
    body += stored
    size = sum(map(len, body))
    body.append(_PADDING[: aligned(size) - size])
    stamp = group[0].stamp
    header = FrameHeader(
        sync=b"",
        epoch=0,
        position=0,
        ordinal=0,
        body_bytes=size,
        kind=KIND_DATA,
        flags=FLAG_CLOCK_SYNCED if stamp.clock_synced else 0,
        codec=codec,
        source_ref=0,
        ingest_time_ns=stamp.time_ns,
        boottime_ns=stamp.boottime_ns,
        boot_id=stamp.boot_id,
        records=n,
        attribute_bytes=len(attributes),
        payload_bytes=payload_bytes,
        body_crc=checksum(body),
    )
    return EncodedFrame(
        header,
        group[0].source_id,
        tuple(body),
        frozenset().union(*(batch.topic_refs for batch in group)),
        frozenset().union(*(batch.publisher_refs for batch in group)),
    )


def _arrays(group: Sequence[PackedBatch], n: int) -> memoryview:
    """Return the array section of a frame."""
    section = np.empty(array_bytes(n), np.uint8)
    wide, narrow = section[: 32 * n + 8].view("<u8"), section[32 * n + 8 :].view("<u4")
    targets = (wide[:n], wide[n : 2 * n], wide[2 * n : 3 * n], narrow[:n], narrow[n:])
    for index, target in enumerate(targets):
        parts = [batch.columns[index].view(target.dtype) for batch in group]
        np.concatenate(parts, out=target)
    offsets = wide[3 * n :].view("<i8")
    offsets[0] = 0
    np.concatenate([batch.lengths for batch in group], out=offsets[1:])
    np.cumsum(offsets[1:], out=offsets[1:])
    return section.data


def _pack_attributes(group: Sequence[PackedBatch]) -> bytes:
    merged: dict[str, Mapping[str, str]] = {}
    base = 0
    for batch in group:
        for index, value in batch.attributes.items():
            merged[str(base + index)] = value
        base += len(batch)
    return orjson.dumps(merged) if merged else b""


class Compressor:
    """zstd for payload bytes; keeps them as they are when that is shorter."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False)

    def compress(self, data: list[Buffer], size: int) -> tuple[list[Buffer], int]:
        """Return the stored bytes and their codec.

        Args:
            size: Bytes in ``data``.
        """
        stream = self._zstd.compressobj(size=size)
        packed: list[Buffer] = [stream.compress(buffer) for buffer in data]
        packed.append(stream.flush())
        return (packed, CODEC_ZSTD) if sum(map(len, packed)) < size else (data, CODEC_NONE)


def topic_entry(ref: int, declaration: TopicDeclaration) -> dict[str, object]:
    """Return a topic as it stands in a declaration frame."""
    return {"kind": "topic", "ref": ref, **asdict(declaration)}


def publisher_entry(ref: int, gid: bytes) -> dict[str, object]:
    """Return a publisher as it stands in a declaration frame."""
    return {"kind": "publisher", "ref": ref, "gid": gid.hex()}


def source_entry(ref: int, source_id: str) -> dict[str, object]:
    """Return a source as it stands in a declaration frame."""
    return {"kind": "source", "ref": ref, "name": source_id}


def encode_declarations(
    entries: Sequence[dict[str, object]], header: FrameHeader
) -> tuple[FrameHeader, list[Buffer]]:
    """Return header and body of a declaration frame.

    Args:
        header: The data frame that needs it, stamped: position, clocks and source are its.
    """
    data = orjson.dumps(entries)
    stored: list[Buffer] = [data]
    codec = CODEC_NONE
    if len(data) >= _DECLARATION_COMPRESS_BYTES:
        stored, codec = Compressor().compress(stored, len(data))
    size = sum(map(len, stored))
    body = [*stored, _PADDING[: aligned(size) - size]]
    return header._replace(
        kind=KIND_DECLARATION,
        codec=codec,
        records=len(entries),
        attribute_bytes=0,
        body_bytes=size,
        payload_bytes=len(data),
        body_crc=checksum(body),
    ), body
