# SPDX-License-Identifier: Apache-2.0
"""A WAL in memory that records what capture hands over."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from thadam_ros.model.message import SourceBatch, TopicDeclaration


@dataclass(frozen=True)
class Record:
    """One captured message."""

    topic: str
    payload: bytes
    ingest_time_ns: int
    source_timestamp_ns: int
    sequence: int
    publisher: bytes | None


class MemoryWal:
    """Takes batches like the writer does; refuses when told to."""

    def __init__(self) -> None:
        self.declarations: list[TopicDeclaration] = []
        self.gids: list[bytes] = []
        self.records: list[Record] = []
        self.batches = 0
        self.refusing = False
        self._lock = threading.Lock()

    def declare_topic(self, declaration: TopicDeclaration) -> int:
        with self._lock:
            if declaration not in self.declarations:
                self.declarations.append(declaration)
            return self.declarations.index(declaration) + 1

    def declare_publisher(self, gid: bytes) -> int:
        with self._lock:
            if gid not in self.gids:
                self.gids.append(gid)
            return self.gids.index(gid) + 1

    def append(self, batch: SourceBatch) -> bool:
        if self.refusing:
            return False
        with self._lock:
            self.batches += 1
            for i, payload in enumerate(batch.payloads):
                ref = batch.publisher_refs[i]
                self.records.append(
                    Record(
                        self.declarations[batch.topic_refs[i] - 1].name,
                        payload,
                        batch.ingest_times_ns[i],
                        batch.source_timestamps_ns[i],
                        batch.sequences[i] - 1,
                        self.gids[ref - 1] if ref else None,
                    )
                )
        return True

    def of(self, topic: str) -> list[Record]:
        with self._lock:
            return [record for record in self.records if record.topic == topic]
