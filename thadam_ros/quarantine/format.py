# SPDX-License-Identifier: Apache-2.0
"""Bytes of a staging segment; the layout is the docstring of the package."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c
import orjson

from thadam_ros.errors import FormatError
from thadam_ros.model.event import REJECT_RAW_BYTES_MAX, Reject

VERSION = 1
SEGMENT_SUFFIX = ".staging"

_SEGMENT_MAGIC = b"THADSTG\0"
_RECORD_MAGIC = b"RJCT"
_HEADER = struct.Struct("<8sII")
_HEAD = struct.Struct("<4sIQII")
_META_BYTES = struct.Struct("<I")

HEADER_BYTES = _HEADER.size

#: Order of the JSON array in a record.
META_FIELDS = (
    "wal_epoch",
    "wal_pos",
    "ingest_time_ns",
    "source_id",
    "topic",
    "error_domain",
    "error_code",
    "reason",
    "raw_truncated",
    "dataset",
    "record_index",
    "sample_idx",
    "encoding",
    "type_name",
    "type_hash",
    "clock_synced",
    "row_hash",
)

#: A reason is one short sentence; what an exception said may be longer.
REASON_CHARACTERS_MAX = 2_048

IDENTITY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Record:
    """An intact record of a segment."""

    identity: bytes
    reject: Reject


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment in which no intact record starts.

    Attributes:
        start: First byte.
        end: One past the last byte.
        torn: The range ends the last segment, as after a power cut in the middle of an append.
    """

    segment: str
    start: int
    end: int
    torn: bool


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:08d}{SEGMENT_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of a segment, None when the name is not one."""
    stem, suffix = name[: -len(SEGMENT_SUFFIX)], name[-len(SEGMENT_SUFFIX) :]
    return int(stem) if suffix == SEGMENT_SUFFIX and stem.isascii() and stem.isdigit() else None


def encode_header() -> bytes:
    """Return the first bytes of a segment."""
    start = _HEADER.pack(_SEGMENT_MAGIC, VERSION, 0)[:-4]
    return start + struct.pack("<I", crc32c.crc32c(start))


def encode_record(identity: bytes, reject: Reject, offset: int) -> bytes:
    """Return a record that will stand at ``offset`` of its segment."""
    raw = bytes(reject.raw[:REJECT_RAW_BYTES_MAX])
    meta = _encode_meta(reject, truncated=reject.raw_truncated or len(raw) < len(reject.raw))
    body = b"".join((identity, _META_BYTES.pack(len(meta)), meta, raw))
    head = _HEAD.pack(_RECORD_MAGIC, len(body), offset, crc32c.crc32c(body), 0)[:-4]
    return b"".join((head, struct.pack("<I", crc32c.crc32c(head)), body))


def scan_segment(name: str, data: bytes, *, last: bool) -> Iterator[Record | Damage]:
    """Yield what stands in a segment, in order; together it covers every byte after the header.

    Args:
        last: Whether no later segment exists; only then can an end be torn.

    Raises:
        FormatError: The segment has another version.
    """
    offset = _check_header(name, data)
    if offset == 0:
        found = _next_record(data, 0)
        yield Damage(name, 0, found if found is not None else len(data), last and found is None)
        offset = found if found is not None else len(data)
    while offset < len(data):
        end, record = _parse(data, offset)
        if record is not None:
            yield record
        else:
            if end is None:
                end = _next_record(data, offset + 1)
            stop = len(data) if end is None else end
            yield Damage(name, offset, stop, last and stop == len(data))
            end = stop
        assert end is not None
        offset = end


def _check_header(name: str, data: bytes) -> int:
    """Return where records start, 0 when the header is not intact.

    Raises:
        FormatError: It is intact and of another version.
    """
    if len(data) < HEADER_BYTES:
        return 0
    magic, version, crc = _HEADER.unpack_from(data)
    if magic != _SEGMENT_MAGIC or crc != crc32c.crc32c(data[: HEADER_BYTES - 4]):
        return 0
    if version != VERSION:
        raise FormatError(
            f"staging segment {name} has format version {version}; this software reads {VERSION}"
        )
    return HEADER_BYTES


def _parse(data: bytes, offset: int) -> tuple[int | None, Record | None]:
    """Return (end, record); end without a record when only the head is intact; else nothing."""
    if offset + _HEAD.size > len(data):
        return None, None
    magic, body_bytes, own_offset, body_crc, head_crc = _HEAD.unpack_from(data, offset)
    if magic != _RECORD_MAGIC or own_offset != offset:
        return None, None
    if head_crc != crc32c.crc32c(data[offset : offset + _HEAD.size - 4]):
        return None, None
    start = offset + _HEAD.size
    end = start + body_bytes
    if end > len(data):
        return len(data), None
    body = data[start:end]
    if crc32c.crc32c(body) != body_crc:
        return end, None
    return end, _decode_body(body)


def _next_record(data: bytes, start: int) -> int | None:
    """Return where the next intact record starts."""
    offset = data.find(_RECORD_MAGIC, start)
    while offset >= 0:
        if _parse(data, offset)[1] is not None:
            return offset
        offset = data.find(_RECORD_MAGIC, offset + 1)
    return None


def _decode_body(body: bytes) -> Record | None:
    """Return the record of a body whose CRC holds; None when it says nothing we understand."""
    try:
        (meta_bytes,) = _META_BYTES.unpack_from(body, IDENTITY_BYTES)
        meta_start = IDENTITY_BYTES + _META_BYTES.size
        meta = orjson.loads(body[meta_start : meta_start + meta_bytes])
        values = dict(zip(META_FIELDS, meta, strict=True))
    except (struct.error, ValueError, TypeError):
        return None
    return Record(body[:IDENTITY_BYTES], Reject(raw=body[meta_start + meta_bytes :], **values))


def _encode_meta(reject: Reject, *, truncated: bool) -> bytes:
    values = [getattr(reject, name) for name in META_FIELDS]
    values[META_FIELDS.index("raw_truncated")] = truncated
    values[META_FIELDS.index("reason")] = reject.reason[:REASON_CHARACTERS_MAX]
    try:
        return orjson.dumps(values)
    except orjson.JSONEncodeError:
        # Lone surrogates, as in the text of an exception about bad bytes: a reject must never be
        # refused for how it is described.
        return orjson.dumps(
            [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
        )
