# SPDX-License-Identifier: Apache-2.0
"""From source batches to frames, one pass over the records."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Final

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
    checksum,
)

#: Definitions repeat each other; below this a declaration is not worth compressing.
_DECLARATION_COMPRESS_BYTES: Final = 4 << 10
_ZSTD_LEVEL: Final = 1
_PADDING: Final = bytes(8)

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stamp:
    """Clocks read together when a batch was accepted."""

    time_ns: int
    boottime_ns: int
    boot_id: bytes
    clock_synced: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """A batch that waits for its commit.

    Attributes:
        bytes: Payload and array bytes, as counted against the pending ceiling.
    """

    batch: SourceBatch
    stamp: Stamp
    bytes: int


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


def batch_bytes(batch: SourceBatch) -> int:
    """Return about what ``batch`` will take in a frame."""
    size = sum(map(len, batch.payloads)) + RECORD_BYTES * len(batch.payloads)
    for attributes in batch.attributes.values():
        size += sum(len(key) + len(value) + 6 for key, value in attributes.items())
    return size


def check_batch(batch: SourceBatch) -> None:
    """Refuse a batch whose lists do not belong together.

    Raises:
        ValueError: The lists differ in length, or attributes name a record that is not there.
    """
    n = len(batch.payloads)
    if not (
        len(batch.topic_refs)
        == len(batch.ingest_times_ns)
        == len(batch.source_timestamps_ns)
        == len(batch.sequences)
        == len(batch.publisher_refs)
        == n
    ):
        raise ValueError(f"the lists of a batch of source {batch.source_id!r} differ in length")
    if batch.attributes and not all(0 <= index < n for index in batch.attributes):
        raise ValueError(f"attributes of source {batch.source_id!r} name a record beyond {n - 1}")


def group_batches(waiting: Sequence[Accepted], frame_bytes: int) -> Iterator[list[Accepted]]:
    """Yield the batches of each frame: one source, one clock state, about ``frame_bytes``.

    A source's batches keep their order. A batch that is larger on its own is cut between
    records; a record that is larger on its own gets a frame of its own.
    """
    open_groups: dict[tuple[str, bool], tuple[list[Accepted], int]] = {}
    for accepted in waiting:
        key = accepted.batch.source_id, accepted.stamp.clock_synced
        other = key[0], not key[1]
        if other in open_groups:
            # The clock state changed: what came before must not end up behind.
            yield open_groups.pop(other)[0]
        for piece in _pieces(accepted, frame_bytes):
            group, size = open_groups.get(key, ([], 0))
            if group and size + piece.bytes > frame_bytes:
                yield group
                group, size = [], 0
            group.append(piece)
            open_groups[key] = group, size + piece.bytes
    for group, _ in open_groups.values():
        yield group


def _pieces(accepted: Accepted, frame_bytes: int) -> Iterator[Accepted]:
    if accepted.bytes <= frame_bytes or len(accepted.batch) <= 1:
        yield accepted
        return
    batch = accepted.batch
    start, size = 0, 0
    for index, payload in enumerate(batch.payloads):
        record = len(payload) + RECORD_BYTES
        if index > start and size + record > frame_bytes:
            yield Accepted(_cut(batch, start, index), accepted.stamp, size)
            start, size = index, 0
        size += record
    yield Accepted(_cut(batch, start, len(batch)), accepted.stamp, size)


def _cut(batch: SourceBatch, start: int, end: int) -> SourceBatch:
    return SourceBatch(
        batch.source_id,
        batch.topic_refs[start:end],
        batch.ingest_times_ns[start:end],
        batch.payloads[start:end],
        batch.source_timestamps_ns[start:end],
        batch.sequences[start:end],
        batch.publisher_refs[start:end],
        {i - start: value for i, value in batch.attributes.items() if start <= i < end},
    )


def _packed(typecode: str, parts: Sequence[Sequence[int]]) -> memoryview:
    # array beats numpy here: its C loop over a list of int takes half the time.
    values = array(typecode, parts[0])
    for part in parts[1:]:
        values.extend(part)
    if sys.byteorder != "little":
        values.byteswap()
    return memoryview(values).cast("B")


def encode_frame(group: Sequence[Accepted], compressor: Compressor | None) -> EncodedFrame:
    """Return one data frame of all batches in ``group``, in order.

    Raises:
        OverflowError, TypeError: A value does not fit its array.
    """
    batches = [accepted.batch for accepted in group]
    payloads = batches[0].payloads
    if len(batches) > 1:
        payloads = [payload for batch in batches for payload in batch.payloads]
    topic_refs = [batch.topic_refs for batch in batches]
    publisher_refs = [batch.publisher_refs for batch in batches]
    attributes = _pack_attributes(batches)
    stored: bytes = b"".join(payloads)
    payload_bytes, codec = len(stored), CODEC_NONE
    if compressor is not None:
        stored, codec = compressor.compress(stored)
    body: list[Buffer] = [
        _packed("q", [batch.ingest_times_ns for batch in batches]),
        _packed("q", [batch.source_timestamps_ns for batch in batches]),
        _packed("Q", [batch.sequences for batch in batches]),
        _packed("q", [list(accumulate(map(len, payloads), initial=0))]),
        _packed("I", topic_refs),
        _packed("I", publisher_refs),
    ]
    if attributes:
        body += [attributes, _PADDING[: aligned(len(attributes)) - len(attributes)]]
    body.append(stored)
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
        records=len(payloads),
        attribute_bytes=len(attributes),
        payload_bytes=payload_bytes,
        body_crc=checksum(body),
    )
    return EncodedFrame(
        header,
        batches[0].source_id,
        tuple(body),
        frozenset().union(*topic_refs),
        frozenset().union(*publisher_refs) - {0},
    )


def _pack_attributes(batches: Sequence[SourceBatch]) -> bytes:
    merged: dict[str, dict[str, str]] = {}
    base = 0
    for batch in batches:
        for index, value in batch.attributes.items():
            merged[str(base + index)] = value
        base += len(batch)
    return orjson.dumps(merged) if merged else b""


class Compressor:
    """zstd for payload bytes; keeps them as they are when that is shorter."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False)

    def compress(self, data: bytes) -> tuple[bytes, int]:
        """Return the stored bytes and their codec."""
        if not data:
            return data, CODEC_NONE
        packed = self._zstd.compress(data)
        return (packed, CODEC_ZSTD) if len(packed) < len(data) else (data, CODEC_NONE)


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
    stored, codec = data, CODEC_NONE
    if len(data) >= _DECLARATION_COMPRESS_BYTES:
        stored, codec = Compressor().compress(data)
    body: list[Buffer] = [stored, _PADDING[: aligned(len(stored)) - len(stored)]]
    return header._replace(
        kind=KIND_DECLARATION,
        codec=codec,
        records=len(entries),
        attribute_bytes=0,
        body_bytes=len(stored),
        payload_bytes=len(data),
        body_crc=checksum(body),
    ), body
