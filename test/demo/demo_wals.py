# SPDX-License-Identifier: Apache-2.0
"""Ledgers and logs made by hand, for the demo's arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.node.demo.ledger import Ledger, LedgerWriter, Publisher, Sent, digest, read_ledger
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.writer import WalWriter

SECOND_NS = 1_000_000_000
#: A wall clock of the tests: message n of a publisher is sent at START_NS + n seconds.
START_NS = 1_000 * SECOND_NS


def payload_of(publisher: int, number: int) -> bytes:
    """Bytes that name the message."""
    return b"\x00\x01\x00\x00" + f"{publisher}/{number}".encode()


def gid_of(publisher: int) -> bytes:
    """16 bytes that name the publisher."""
    return bytes([publisher + 1]) * 16


def make_ledger(
    path: Path,
    topics: Sequence[str],
    count: int,
    *,
    best_effort: Iterable[int] = (),
    latched: Iterable[int] = (),
    with_gids: bool = True,
) -> Ledger:
    """One publisher for each entry of ``topics``, ``count`` messages each."""
    writer = LedgerWriter(str(path))
    for index, topic in enumerate(topics):
        writer.publisher(
            Publisher(
                index=index,
                stream=f"s{index}",
                topic=topic,
                type_name="std_msgs/msg/String",
                gid=gid_of(index).hex() if with_gids else "",
                reliable=index not in set(best_effort),
                latched=index in set(latched),
            )
        )
    writer.start(START_NS)
    for number in range(1, count + 1):
        for index in range(len(topics)):
            payload = payload_of(index, number)
            sent_ns = START_NS + number * SECOND_NS
            writer.sent(Sent(index, number, sent_ns, sent_ns, len(payload), digest(payload)))
    writer.end(START_NS + count * SECOND_NS)
    writer.close()
    return read_ledger(str(path))


class LogMaker:
    """Writes records of a ledger's messages into a log; a context manager."""

    def __init__(self, directory: Path, topics: Sequence[str], *, with_gids: bool = True) -> None:
        self._topics = topics
        self._with_gids = with_gids
        self._directory = directory

    def __enter__(self) -> LogMaker:
        self._writer = WalWriter.open(
            str(self._directory),
            WalConfig(),
            fs=OsFileSystem(),
            clock=SystemClock(),
            clock_synced=lambda: True,
        )
        self._refs = [self._writer.declare_topic(TopicDeclaration(t)) for t in self._topics]
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._writer.flush(10.0)
        self._writer.close()

    def add(
        self,
        publisher: int,
        numbers: Iterable[int],
        *,
        late_ns: int = 1_000,
        altered: bool = False,
    ) -> None:
        """Append the messages ``numbers``, each taken ``late_ns`` after it was sent."""
        batch = SourceBatch("robot")
        known = self._with_gids
        for number in numbers:
            payload = payload_of(publisher, number)
            batch.topic_refs.append(self._refs[publisher])
            batch.ingest_times_ns.append(START_NS + number * SECOND_NS + late_ns)
            batch.payloads.append(payload[:-1] + b"!" if altered else payload)
            batch.source_timestamps_ns.append(0)
            batch.sequences.append(number + 1 if known else 0)
            ref = self._writer.declare_publisher(gid_of(publisher)) if known else 0
            batch.publisher_refs.append(ref)
        assert self._writer.append(batch)
        assert self._writer.flush(10.0)
