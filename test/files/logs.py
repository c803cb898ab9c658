# SPDX-License-Identifier: Apache-2.0
"""Logs made of given records, and all records of a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from rosbags.typesys.store import Typestore

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.writer import WalWriter

T0 = 1_700_000_000_000_000_000
NUMBER = "std_msgs/msg/UInt64"


class Record(NamedTuple):
    """What a log keeps of a message that a bag keeps, too."""

    topic: TopicDeclaration
    time_ns: int
    payload: bytes
    source_ns: int = 0
    sequence: int = 0


class Seen(NamedTuple):
    """A message as an independent reader of the bag sees it."""

    topic: str
    type_name: str
    log_time_ns: int
    publish_time_ns: int
    payload: bytes


def number_topic(name: str, **fields: str) -> TopicDeclaration:
    """A topic of unsigned integers."""
    return TopicDeclaration(name, type_name=NUMBER, definition="uint64 data\n", **fields)


def number(value: int) -> bytes:
    """A little-endian CDR message of ``uint64 data``."""
    return b"\0\1\0\0" + value.to_bytes(8, "little")


def write_log(
    directory: Path,
    frames: Sequence[Sequence[Record]],
    *,
    source_id: str = "robot",
    segment_bytes: int = 1 << 20,
    commit_bytes: int = 4 << 20,
) -> None:
    """Write one frame for each inner sequence."""
    writer = WalWriter.open(
        str(directory),
        WalConfig(segment_bytes=segment_bytes, commit_bytes=commit_bytes),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    try:
        for records in frames:
            batch = SourceBatch(source_id)
            for record in records:
                batch.topic_refs.append(writer.declare_topic(record.topic))
                batch.ingest_times_ns.append(record.time_ns)
                batch.payloads.append(record.payload)
                batch.source_timestamps_ns.append(record.source_ns)
                batch.sequences.append(record.sequence)
                batch.publisher_refs.append(0)
            assert writer.append(batch)
            assert writer.flush(30)
    finally:
        writer.close()


def read_log(directory: Path) -> list[Record]:
    """Read every durable record; damage and gaps must not be met."""
    reader = WalReader(str(directory), fs=OsFileSystem())
    found: list[Record] = []
    try:
        while frames := reader.read(16, 1 << 24):
            for frame in frames:
                offsets = frame.offsets.tolist()
                found += [
                    Record(
                        frame.topics[ref],
                        int(frame.ingest_times_ns[index]),
                        frame.payload[offsets[index] : offsets[index + 1]].tobytes(),
                        int(frame.source_timestamps_ns[index]),
                        int(frame.sequences[index]),
                    )
                    for index, ref in enumerate(frame.topic_refs.tolist())
                ]
        assert not reader.damage
        assert not reader.gaps
    finally:
        reader.close()
    return found


def see_with_mcap(folder: Path) -> list[Seen]:
    """Read a bag's one MCAP file with the reference library, in file order, checksums checked."""
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        return [
            Seen(
                channel.topic,
                schema.name if schema else "",
                message.log_time,
                message.publish_time,
                message.data,
            )
            for schema, channel, message in reader.iter_messages(log_time_order=False)
        ]


def see_with_rosbags(
    folder: Path, store: Typestore | None = None
) -> list[tuple[str, str, int, bytes]]:
    """Read a bag with rosbags, in time order; without ``store`` it must define its types."""
    with AnyReader([folder], default_typestore=store) as reader:
        return [(c.topic, c.msgtype, t, bytes(data)) for c, t, data in reader.messages()]
