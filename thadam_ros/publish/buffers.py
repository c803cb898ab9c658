# SPDX-License-Identifier: Apache-2.0
"""Rows and rejects that are not yet durable in the store, by partition (spec 5.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from thadam_ros.model.event import EventBatch, Reject, Submission
from thadam_ros.model.position import Position
from thadam_ros.sinks.contract import PartitionKey

#: What a reject takes in memory beside its raw bytes, about.
REJECT_OVERHEAD_BYTES = 512
#: What a column of a batch takes beside its values, about: one row of 40 columns takes 25 kB.
COLUMN_OVERHEAD_BYTES = 600
#: So many batches in a row, each with less than this, are laid together.
SMALL_BATCHES = 64
SMALL_BATCH_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Boundary:
    """A captured frame boundary with the state that belongs to it.

    Attributes:
        number: Submission number; everything submitted up to it is at or below ``last``.
    """

    number: int
    last: Position
    epoch: int
    state: bytes


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    rows: pa.RecordBatch
    size_bytes: int

    @classmethod
    def of(cls, number: int, rows: pa.RecordBatch) -> _Held:
        return cls(number, rows, rows.nbytes + rows.num_columns * COLUMN_OVERHEAD_BYTES)


@dataclass(frozen=True, slots=True)
class _Partition:
    """Immutable, so that its size can never disagree with its entries."""

    entries: tuple[_Held, ...] = ()
    size_bytes: int = 0

    @classmethod
    def of(cls, entries: tuple[_Held, ...]) -> _Partition:
        return cls(entries, sum(entry.size_bytes for entry in entries))

    def plus(self, entry: _Held) -> _Partition:
        return _Partition((*self.entries, entry), self.size_bytes + entry.size_bytes)


@dataclass(frozen=True, slots=True)
class _HeldRejects:
    number: int
    rejects: tuple[Reject, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What the lane may publish of one partition, oldest first; the buffers keep owning it."""

    key: PartitionKey
    rows: tuple[pa.RecordBatch, ...]
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BufferStatistics:
    """Snapshot of the buffers.

    Attributes:
        size_bytes: Bytes of all rows and rejects held.
        row_count: Rows held.
        reject_count: Rejects held that are not yet staged.
        reject_bytes: Their bytes in memory.
        partitions: Partitions with rows.
        submissions: Submissions above the last stamped cut.
    """

    size_bytes: int
    row_count: int
    reject_count: int
    reject_bytes: int
    partitions: int
    submissions: int


class Buffers:
    """Per sink and partition, oldest first; one lock; bytes derived from content.

    Args:
        ceiling_bytes: Gates submissions only: one is admitted while the bytes already held are
            below it, whatever its own size.
        split: Cuts an event batch into partitions.
    """

    def __init__(
        self,
        ceiling_bytes: int,
        split: Callable[[EventBatch], list[tuple[PartitionKey, pa.RecordBatch]]],
    ) -> None:
        self._ceiling_bytes = ceiling_bytes
        self._split = split
        self._lock = threading.Lock()
        self._held: dict[PartitionKey, _Partition] = {}
        self._rejects: tuple[_HeldRejects, ...] = ()
        self._number = 0
        self._boundary: Boundary | None = None
        self._oldest_ns: int | None = None
        self._submissions = 0

    def admits(self) -> bool:
        """Tell whether a submission would be taken now."""
        return self.size_bytes() < self._ceiling_bytes

    def submit(self, submission: Submission, now_ns: int) -> None:
        """Append a submission whole; ``now_ns`` (monotonic) starts the age of the next cut.

        A raise before the last line changes nothing: all new tuples are made first, then swapped.
        """
        parts = [part for batch in submission.batches for part in self._split(batch)]
        with self._lock:
            number = self._number + 1
            held = dict(self._held)
            for key, rows in parts:
                held[key] = held.get(key, _Partition()).plus(_Held.of(number, rows))
            rejects = self._rejects
            if submission.rejects:
                size = sum(len(r.raw) + REJECT_OVERHEAD_BYTES for r in submission.rejects)
                rejects = (*rejects, _HeldRejects(number, submission.rejects, size))
            boundary = self._boundary
            if submission.state is not None:
                boundary = Boundary(
                    number, submission.last, submission.last_epoch, submission.state
                )
            oldest = now_ns if self._oldest_ns is None else self._oldest_ns
            self._held, self._rejects, self._number = held, rejects, number
            self._boundary, self._oldest_ns = boundary, oldest
            self._submissions += 1

    def boundary(self) -> Boundary | None:
        """Return the newest boundary that a cut may settle, None when there is none."""
        with self._lock:
            return self._boundary

    def oldest_ns(self) -> int | None:
        """Return when the oldest unstamped submission came (monotonic), None without one."""
        with self._lock:
            return self._oldest_ns

    def partitions(self, boundary: Boundary) -> list[PartitionView]:
        """Return every partition's rows at or below ``boundary``, largest first."""
        with self._lock:
            held = self._held
        views = []
        for key, partition in held.items():
            taken = [entry for entry in partition.entries if entry.number <= boundary.number]
            if taken:
                views.append(
                    PartitionView(
                        key,
                        tuple(entry.rows for entry in taken),
                        sum(entry.rows.num_rows for entry in taken),
                        sum(entry.size_bytes for entry in taken),
                    )
                )
        return sorted(views, key=lambda view: (-view.size_bytes, view.key))

    def rejects(self, boundary: Boundary) -> tuple[Reject, ...]:
        """Return the rejects at or below ``boundary`` that are not yet staged."""
        with self._lock:
            held = self._rejects
        return tuple(r for entry in held if entry.number <= boundary.number for r in entry.rejects)

    def rejects_staged(self, boundary: Boundary) -> None:
        """Release rejects that are durable in staging."""
        with self._lock:
            self._rejects = tuple(e for e in self._rejects if e.number > boundary.number)

    def compact(self, boundary: Boundary) -> None:
        """Lay small batches at or below ``boundary`` together, where many follow each other.

        For the lane alone, while it holds no view: rows are settled by identity. Any later
        boundary covers all of such a batch.
        """
        with self._lock:
            held = self._held
        for key, partition in held.items():
            stop = len(partition.entries)
            while stop and partition.entries[stop - 1].number > boundary.number:
                stop -= 1
            start = stop
            while start and partition.entries[start - 1].rows.nbytes < SMALL_BATCH_BYTES:
                start -= 1
            if stop - start < SMALL_BATCHES:
                continue
            run = partition.entries[start:stop]
            table = pa.Table.from_batches([entry.rows for entry in run]).unify_dictionaries()
            merged = _Held.of(run[-1].number, table.combine_chunks().to_batches()[0])
            with self._lock:
                # Submissions came behind at most: nobody else takes anything away.
                entries = self._held[key].entries
                after = (*entries[:start], merged, *entries[stop:])
                self._held = {**self._held, key: _Partition.of(after)}

    def settle(self, key: PartitionKey, rows: tuple[pa.RecordBatch, ...]) -> None:
        """Release rows that the driver made durable; by identity, may be called again."""
        settled = {id(batch) for batch in rows}
        with self._lock:
            entries = self._held.get(key, _Partition()).entries
            left = tuple(entry for entry in entries if id(entry.rows) not in settled)
            held = dict(self._held)
            if left:
                held[key] = _Partition.of(left)
            else:
                held.pop(key, None)
            self._held = held

    def stamped(self, boundary: Boundary, now_ns: int) -> None:
        """Note that the cursor passed ``boundary``."""
        with self._lock:
            newer = self._number > boundary.number
            # Ages are kept per cut, not per submission: what came since is at most one cut old.
            self._oldest_ns = now_ns if newer else None
            if self._boundary is not None and self._boundary.number <= boundary.number:
                self._boundary = None
            self._submissions = self._number - boundary.number

    def size_bytes(self) -> int:
        """Return the bytes of all rows and rejects held."""
        rows = sum(partition.size_bytes for partition in self._held.values())
        return rows + sum(entry.size_bytes for entry in self._rejects)

    def statistics(self) -> BufferStatistics:
        """Return a snapshot."""
        with self._lock:
            held, rejects, submissions = self._held, self._rejects, self._submissions
            size_bytes = self.size_bytes()
        return BufferStatistics(
            size_bytes=size_bytes,
            row_count=sum(e.rows.num_rows for p in held.values() for e in p.entries),
            reject_count=sum(len(entry.rejects) for entry in rejects),
            reject_bytes=sum(entry.size_bytes for entry in rejects),
            partitions=len(held),
            submissions=submissions,
        )
