# SPDX-License-Identifier: Apache-2.0
"""What travels from a source into the WAL and from the WAL into a chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TopicDeclaration:
    """Everything needed to decode a topic years later (spec 2, *self-describing*).

    Attributes:
        name: Fully resolved topic name, such as ``/r1/imu/data``.
        original_name: The name before remapping, as the configuration spells it or as discovered.
        namespace: Namespace of the capturing node, such as ``/r1`` (``/`` at the root).
        type_name: ``sensor_msgs/msg/Imu``; empty for untyped sources.
        encoding: ``cdr``, ``json`` or ``sparkplug_b``.
        definition: Message definition text, dependencies appended after ``===`` lines with
            ``MSG: pkg/Name`` headers (the rosbag2 / MCAP ``ros2msg`` form); empty when unknown.
        type_hash: ``RIHS01_<64 hex>`` or empty.
        hash_origin: ``graph`` (a publisher said so), ``computed`` or empty.
    """

    name: str
    original_name: str = ""
    namespace: str = "/"
    type_name: str = ""
    encoding: str = "cdr"
    definition: str = ""
    type_hash: str = ""
    hash_origin: str = ""


@dataclass(slots=True)
class SourceBatch:
    """Messages of one source on their way into the WAL, as parallel lists (one entry a record).

    The capturing thread appends; the WAL writer thread turns it into one frame in one pass.

    Attributes:
        source_id: Configured source name.
        topic_refs: References from :meth:`WalWriter.declare_topic`.
        ingest_times_ns: Wall clock at reception.
        payloads: Opaque bytes as received.
        source_timestamps_ns: Middleware source timestamp; 0 when unknown.
        sequences: Publisher sequence number + 1; 0 when unknown.
        publisher_refs: References from :meth:`WalWriter.declare_publisher`; 0 when unknown.
        attributes: Record index -> attributes that fit no array; almost always empty.
    """

    source_id: str
    topic_refs: list[int] = field(default_factory=list)
    ingest_times_ns: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    source_timestamps_ns: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    publisher_refs: list[int] = field(default_factory=list)
    attributes: dict[int, dict[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.payloads)


@dataclass(frozen=True, slots=True)
class Frame:
    """One intact, durable data frame as a reader maps it; arrays are read-only views.

    Shapes: n records. ``offsets`` has n + 1 entries into ``payload`` (decompressed bytes).
    ``topics`` and ``publishers`` resolve the references of this frame's segment.
    """

    ordinal: int
    epoch: int
    position: int
    source_id: str
    clock_synced: bool
    ingest_time_ns: int
    boottime_ns: int
    boot_id: bytes
    topic_refs: npt.NDArray[np.uint32]
    ingest_times_ns: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    source_timestamps_ns: npt.NDArray[np.int64]
    sequences: npt.NDArray[np.uint64]
    publisher_refs: npt.NDArray[np.uint32]
    payload: npt.NDArray[np.uint8]
    topics: Mapping[int, TopicDeclaration]
    publishers: Mapping[int, bytes]
    attributes: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.topic_refs)


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records of one source and one message type over a run of whole frames, in WAL order.

    This is what a dataset pipeline consumes: everything is a column of n records, payloads are
    slices ``payload[starts[i]:ends[i]]`` of one shared buffer.

    Attributes:
        declarations: Topics in this group; all share type name, definition and encoding.
        topic: int32[n] index into ``declarations``.
        payload: uint8 buffer shared by all records.
        starts: int64[n] first byte of each record.
        ends: int64[n] one past the last byte.
        wal_epoch: int64[n].
        wal_pos: int64[n] frame position.
        record_index: int32[n] index inside the frame.
        ingest_time_ns: int64[n].
        clock_synced: bool[n].
        source_timestamp_ns: int64[n], 0 when unknown.
        sequence: int64[n] publisher sequence number, -1 when unknown.
        publisher: int32[n] index into ``publishers``, -1 when unknown.
        publishers: Publisher gids.
    """

    source_id: str
    declarations: tuple[TopicDeclaration, ...]
    topic: npt.NDArray[np.int32]
    payload: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    wal_epoch: npt.NDArray[np.int64]
    wal_pos: npt.NDArray[np.int64]
    record_index: npt.NDArray[np.int32]
    ingest_time_ns: npt.NDArray[np.int64]
    clock_synced: npt.NDArray[np.bool_]
    source_timestamp_ns: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    publisher: npt.NDArray[np.int32]
    publishers: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def payload_at(self, index: int) -> bytes:
        """Return the raw bytes of record ``index``."""
        return self.payload[int(self.starts[index]) : int(self.ends[index])].tobytes()
