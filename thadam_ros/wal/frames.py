# SPDX-License-Identifier: Apache-2.0
"""From the body of a frame to what readers hand out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import zstandard

from thadam_ros.model.message import Frame, TopicDeclaration
from thadam_ros.wal.layout import (
    CODEC_NONE,
    CODEC_ZSTD,
    FLAG_CLOCK_SYNCED,
    FrameHeader,
    aligned,
    array_bytes,
)

_TOPIC_FIELDS: Final = (
    "name",
    "original_name",
    "namespace",
    "type_name",
    "encoding",
    "definition",
    "type_hash",
    "hash_origin",
)
_NO_ATTRIBUTES: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType({})


class BodyError(ValueError):
    """A body whose checksum is right contradicts itself."""


def stored_payload(header: FrameHeader, stored: memoryview) -> memoryview | bytes:
    """Return the payload bytes of a frame, decompressed.

    Raises:
        BodyError: Unknown codec, broken compression or another length than the header says.
    """
    if header.codec == CODEC_NONE:
        payload: memoryview | bytes = stored
    elif header.codec == CODEC_ZSTD:
        try:
            # The length is checked first: it decides how much memory is taken.
            if zstandard.frame_content_size(stored) != header.payload_bytes:
                raise BodyError("zstd content size differs from the frame header")
            payload = zstandard.ZstdDecompressor().decompress(stored)
        except zstandard.ZstdError as exc:
            raise BodyError(f"zstd: {exc}") from exc
    else:
        raise BodyError(f"codec {header.codec} is unknown")
    if len(payload) != header.payload_bytes:
        raise BodyError("payload length differs from the frame header")
    return payload


class References:
    """Declarations of one segment met so far; shared by its frames, only ever added to."""

    def __init__(self) -> None:
        self._topics: dict[int, TopicDeclaration] = {}
        self._publishers: dict[int, bytes] = {}
        self.sources: dict[int, str] = {}
        self.topics: Mapping[int, TopicDeclaration] = MappingProxyType(self._topics)
        self.publishers: Mapping[int, bytes] = MappingProxyType(self._publishers)

    def add(self, header: FrameHeader, body: memoryview) -> None:
        """Take in a declaration frame. Kinds and keys of later versions are passed over.

        Raises:
            BodyError: The body is not what the format says.
        """
        try:
            for entry in orjson.loads(stored_payload(header, body)):
                kind, ref = entry["kind"], int(entry["ref"])
                if kind == "topic":
                    fields = {key: str(entry[key]) for key in _TOPIC_FIELDS if key in entry}
                    self._topics[ref] = TopicDeclaration(**fields)
                elif kind == "publisher":
                    self._publishers[ref] = bytes.fromhex(entry["gid"])
                elif kind == "source":
                    self.sources[ref] = str(entry["name"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as exc:
            raise BodyError(f"declaration: {exc}") from exc


def _attributes(data: memoryview) -> Mapping[int, Mapping[str, str]]:
    if not len(data):
        return _NO_ATTRIBUTES
    try:
        return MappingProxyType({int(key): value for key, value in orjson.loads(data).items()})
    except (orjson.JSONDecodeError, AttributeError, ValueError) as exc:
        raise BodyError(f"attributes: {exc}") from exc


def build_frame(header: FrameHeader, body: memoryview, references: References) -> Frame:
    """Map a data frame; its arrays are views of ``body``.

    Raises:
        BodyError: The body contradicts its header.
    """
    n = header.records
    arrays = array_bytes(n)
    payload_start = arrays + aligned(header.attribute_bytes)
    if payload_start > len(body):
        raise BodyError("the record arrays are longer than the body")
    payload: npt.NDArray[np.uint8] = np.frombuffer(
        stored_payload(header, body[payload_start:]), dtype=np.uint8
    )
    offsets = np.frombuffer(body, dtype="<i8", count=n + 1, offset=24 * n)
    if offsets[0] != 0 or offsets[n] != len(payload) or (offsets[1:] < offsets[:-1]).any():
        raise BodyError("payload offsets are not ordered")
    return Frame(
        ordinal=header.ordinal,
        epoch=header.epoch,
        position=header.position,
        source_id=references.sources.get(header.source_ref, ""),
        clock_synced=bool(header.flags & FLAG_CLOCK_SYNCED),
        ingest_time_ns=header.ingest_time_ns,
        boottime_ns=header.boottime_ns,
        boot_id=header.boot_id,
        topic_refs=np.frombuffer(body, dtype="<u4", count=n, offset=32 * n + 8),
        ingest_times_ns=np.frombuffer(body, dtype="<i8", count=n, offset=0),
        offsets=offsets,
        source_timestamps_ns=np.frombuffer(body, dtype="<i8", count=n, offset=8 * n),
        sequences=np.frombuffer(body, dtype="<u8", count=n, offset=16 * n),
        publisher_refs=np.frombuffer(body, dtype="<u4", count=n, offset=36 * n + 8),
        payload=payload,
        topics=references.topics,
        publishers=references.publishers,
        attributes=_attributes(body[arrays : arrays + header.attribute_bytes]),
    )
