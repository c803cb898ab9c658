# SPDX-License-Identifier: Apache-2.0
"""Real bags as WALs, for tests and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rosbags.highlevel import AnyReader
from rosbags.interfaces import MessageDefinitionFormat
from rosbags.typesys import Stores, get_typestore

from thadam_ros.config.schema import WalConfig
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.writer import WalWriter

#: Where the real bags are looked for: this variable, else ``../shared/data`` beside the checkout.
DATA_VARIABLE = "THADAM_SHARED_DATA"


def shared_bags() -> list[Path]:
    """Return the real bags at hand, each a folder with metadata or one MCAP file; maybe none."""
    checkout = Path(__file__).resolve().parents[2]
    root = Path(os.environ.get(DATA_VARIABLE) or checkout.parent / "shared" / "data") / "bags"
    if not root.is_dir():
        return []
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir())
    return [f if (f / "metadata.yaml").exists() else next(f.glob("*.mcap")) for f in folders]


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One message of a bag as it stands there."""

    declaration: TopicDeclaration
    time_ns: int
    payload: bytes


def ros2_type_name(name: str) -> str:
    """Return ``pkg/msg/Name`` of a name that may lack the middle part."""
    parts = name.split("/")
    return f"{parts[0]}/msg/{parts[1]}" if len(parts) == 2 else name


def read_bag(path: Path) -> Iterator[BagMessage]:
    """Yield the messages of a bag in time order, with their stored or built-in definitions."""
    catalog = TypeCatalog()
    with AnyReader([path], default_typestore=get_typestore(Stores.LATEST)) as reader:
        declarations = {}
        for connection in reader.connections:
            type_name = ros2_type_name(connection.msgtype)
            stored = connection.msgdef
            text = stored.data if stored.format is MessageDefinitionFormat.MSG else ""
            declarations[connection.id] = TopicDeclaration(
                name=connection.topic,
                type_name=type_name,
                definition=text or catalog.definition(type_name) or "",
            )
        for connection, time_ns, payload in reader.messages():
            yield BagMessage(declarations[connection.id], time_ns, bytes(payload))


def write_wal(
    directory: str,
    messages: Iterable[BagMessage],
    *,
    source_id: str = "robot",
    records_per_frame: int = 100,
    config: WalConfig | None = None,
) -> int:
    """Append messages to the WAL in ``directory``; return how many records became durable."""
    # Each batch is made durable alone, so that frames have a known size.
    writer = WalWriter.open(
        directory,
        config or WalConfig(),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    count = 0
    try:
        batch = SourceBatch(source_id)
        sequences: dict[TopicDeclaration, int] = {}
        for message in messages:
            ref = writer.declare_topic(message.declaration)
            sequence = sequences[message.declaration] = sequences.get(message.declaration, 0) + 1
            batch.topic_refs.append(ref)
            batch.ingest_times_ns.append(message.time_ns)
            batch.payloads.append(message.payload)
            batch.source_timestamps_ns.append(message.time_ns)
            batch.sequences.append(sequence)
            batch.publisher_refs.append(writer.declare_publisher(b"publisher-%08d" % ref))
            count += 1
            if len(batch) >= records_per_frame:
                _commit(writer, batch)
                batch = SourceBatch(source_id)
        if len(batch):
            _commit(writer, batch)
    finally:
        writer.close()
    return count


def _commit(writer: WalWriter, batch: SourceBatch) -> None:
    if not writer.append(batch) or not writer.flush(60.0):
        raise OSError(f"the WAL refused a batch: {writer.statistics()}")
