# SPDX-License-Identifier: Apache-2.0
"""Bytes of segment and frame headers, and the names of segment files.

The format itself is described in :mod:`thadam_ros.wal`.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from thadam_ros.errors import FormatError
from thadam_ros.storage.filesystem import FileSystem

FORMAT_VERSION: Final = 1
SEGMENT_MAGIC: Final = b"THADAMWL"
SEGMENT_SUFFIX: Final = ".wal"

#: magic, version, size of a copy, epoch, ordinal, first position, creation time, sync marker,
#: previous first position, previous bytes, previous ordinal, CRC32C of all bytes before it.
_SEGMENT: Final = struct.Struct("<8sIIQQQq8sqQII")
#: The header stands twice in a row, so that no single damaged sector-sized spot loses a segment.
SEGMENT_COPY_BYTES: Final = _SEGMENT.size
SEGMENT_HEADER_BYTES: Final = 2 * SEGMENT_COPY_BYTES
#: magic, version, size: what every version of the format starts with.
_PROLOGUE: Final = struct.Struct("<8sII")

#: sync, epoch, position, ordinal, body bytes, kind, flags, codec, (zero), source reference,
#: ingest time, CLOCK_BOOTTIME, boot id, records, attribute bytes, payload bytes, body CRC32C,
#: CRC32C of all bytes before it.
_FRAME: Final = struct.Struct("<8sQQIIBBBxIqq16sIIQII")
FRAME_HEADER_BYTES: Final = _FRAME.size
_EPOCH_OFFSET: Final = 8
_CRC: Final = struct.Struct("<I")

KIND_DATA: Final = 1
KIND_DECLARATION: Final = 2
FLAG_CLOCK_SYNCED: Final = 1
CODEC_NONE: Final = 0
CODEC_ZSTD: Final = 1

#: Array bytes of n records: four 8-byte arrays (one has n + 1 entries) and two 4-byte arrays.
RECORD_BYTES: Final = 40


def aligned(size: int) -> int:
    """Return ``size`` rounded up to the 8 bytes on which frames and sections start."""
    return (size + 7) & ~7


def array_bytes(records: int) -> int:
    """Return the bytes of the array section of a data frame with ``records`` records."""
    return RECORD_BYTES * records + 8


class SegmentName(NamedTuple):
    """Identity of a segment; sorts in reading order."""

    ordinal: int
    first: int
    epoch: int

    @property
    def filename(self) -> str:
        return f"{self.ordinal:08d}-{self.epoch:016x}-{self.first:020d}{SEGMENT_SUFFIX}"


_NAME: Final = re.compile(r"^(\d{8})-([0-9a-f]{16})-(\d{20})\.wal$")


def parse_segment_name(filename: str) -> SegmentName | None:
    """Return the identity that ``filename`` spells, None when it is no segment's name."""
    match = _NAME.match(filename)
    if match is None:
        return None
    return SegmentName(int(match[1]), int(match[3]), int(match[2], 16))


def list_segments(fs: FileSystem, directory: str) -> list[SegmentName]:
    """Return the segments of ``directory`` in reading order; [] when it does not exist.

    Raises:
        FormatError: Two segments have one ordinal but different epochs: files of two logs.
        OSError: From the filesystem.
    """
    try:
        names = fs.listdir(directory)
    except FileNotFoundError:
        return []
    found = sorted(name for name in map(parse_segment_name, names) if name is not None)
    for left, right in pairwise(found):
        if left.ordinal == right.ordinal and left.epoch != right.epoch:
            raise FormatError(
                f"{directory} mixes segments of two logs: {left.filename} and {right.filename} "
                "have one ordinal and different epochs; move one log's files out"
            )
    return found


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What stands at the start of a segment, twice.

    Attributes:
        created_ns: Wall clock at creation.
        sync: 8 random bytes that start every frame of this segment and of no other.
        previous_ordinal, previous_first: Identity of the segment before, first -1 for none.
        previous_bytes: How many bytes of the segment before belong to the log.
    """

    name: SegmentName
    created_ns: int
    sync: bytes
    previous_ordinal: int = 0
    previous_first: int = -1
    previous_bytes: int = 0

    def pack(self) -> bytes:
        """Return both copies."""
        copy = _SEGMENT.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            SEGMENT_COPY_BYTES,
            self.name.epoch,
            self.name.ordinal,
            self.name.first,
            self.created_ns,
            self.sync,
            self.previous_first,
            self.previous_bytes,
            self.previous_ordinal,
            0,
        )[:-4]
        copy += _CRC.pack(crc32c(copy))
        return copy * 2

    def follows(self, name: SegmentName) -> bool:
        """Tell whether ``name`` is the segment right before this one."""
        return (self.previous_ordinal, self.previous_first) == (name.ordinal, name.first)


def parse_segment_copy(data: bytes | memoryview, path: str) -> SegmentHeader | None:
    """Return the header in one copy, None when it does not verify.

    A version is believed only when the copy's CRC verifies: a flipped bit in the version field
    is damage, not another version.

    Raises:
        FormatError: A verified copy has a version this software cannot read.
    """
    if len(data) < _PROLOGUE.size:
        return None
    magic, version, size = _PROLOGUE.unpack_from(data)
    if magic != SEGMENT_MAGIC or not _PROLOGUE.size + 4 <= size <= len(data):
        return None
    (stored,) = _CRC.unpack_from(data, size - 4)
    if crc32c(bytes(data[: size - 4])) != stored:
        return None
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{path} has WAL format version {version}; this software reads version {FORMAT_VERSION}"
        )
    if size != SEGMENT_COPY_BYTES:
        return None
    fields = _SEGMENT.unpack_from(data)
    return SegmentHeader(
        name=SegmentName(ordinal=fields[4], first=fields[5], epoch=fields[3]),
        created_ns=fields[6],
        sync=fields[7],
        previous_first=fields[8],
        previous_bytes=fields[9],
        previous_ordinal=fields[10],
    )


class FrameHeader(NamedTuple):
    """A frame's header, field by field in file order.

    ``body_bytes`` excludes the zero padding that brings the next frame to an 8-byte boundary;
    ``body_crc`` covers it, so that no byte of a segment is outside a checksum.
    """

    sync: bytes
    epoch: int
    position: int
    ordinal: int
    body_bytes: int
    kind: int
    flags: int
    codec: int
    source_ref: int
    ingest_time_ns: int
    boottime_ns: int
    boot_id: bytes
    records: int
    attribute_bytes: int
    payload_bytes: int
    body_crc: int

    def pack(self) -> bytes:
        """Return the header with its CRC."""
        data = _FRAME.pack(*self, 0)[:-4]
        return data + _CRC.pack(crc32c(data))

    @property
    def frame_bytes(self) -> int:
        """Bytes from this header to the next one."""
        return FRAME_HEADER_BYTES + aligned(self.body_bytes)


def parse_frame_header(data: bytes | memoryview) -> FrameHeader | None:
    """Return the frame header at the start of ``data``, None when its CRC does not verify."""
    if len(data) < FRAME_HEADER_BYTES:
        return None
    fields = _FRAME.unpack_from(data)
    if crc32c(data[: FRAME_HEADER_BYTES - 4]) != fields[16]:
        return None
    return FrameHeader(*fields[:16])


def epoch_search_key(epoch: int) -> tuple[bytes, int]:
    """Return bytes to look for, and their offset in a frame header, when the sync is lost."""
    return epoch.to_bytes(8, "little"), _EPOCH_OFFSET


def checksum(buffers: Sequence[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C over all buffers, one after another."""
    value = 0
    for buffer in buffers:
        value = crc32c(buffer, value)
    return value


def is_full(error: OSError) -> bool:
    """Tell whether ``error`` means that disk or quota is exhausted."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
