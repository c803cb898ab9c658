# SPDX-License-Identifier: Apache-2.0
"""Real bags as WALs, for tests and benchmarks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from thadam_ros.config.schema import WalConfig
from thadam_ros.files.bag_reader import BagMessage, BagReader, ros2_type_name
from thadam_ros.files.wal_import import append_messages
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.writer import WalWriter

__all__ = ["BagMessage", "read_bag", "ros2_type_name", "shared_bags", "write_wal"]

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


def read_bag(path: Path) -> Iterator[BagMessage]:
    """Yield the messages of a bag, with their stored or built-in definitions."""
    return BagReader(path).messages()


def write_wal(
    directory: str,
    messages: Iterable[BagMessage],
    *,
    source_id: str = "robot",
    records_per_frame: int = 100,
    config: WalConfig | None = None,
) -> int:
    """Append messages to the WAL in ``directory``; return how many records became durable.

    Each has what capture would have known: a source timestamp, a publisher of its topic and that
    publisher's sequence number.
    """
    writer = WalWriter.open(
        directory,
        config or WalConfig(min_free_bytes=0),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    try:
        # Each batch is made durable alone, so that frames have a known size.
        batches = append_messages(
            writer,
            _published(messages),
            source_id,
            records_max=records_per_frame,
            bytes_max=1 << 30,
        )
        return sum(topics.total() for topics, _ in batches)
    finally:
        writer.close()


def _published(messages: Iterable[BagMessage]) -> Iterator[BagMessage]:
    refs: dict[TopicDeclaration, int] = {}
    sequences: Counter[int] = Counter()
    for message in messages:
        ref = refs.setdefault(message.declaration, len(refs) + 1)
        sequences[ref] += 1
        yield replace(
            message,
            source_timestamp_ns=message.time_ns,
            sequence=sequences[ref],
            publisher=b"publisher-%08d" % ref,
        )
