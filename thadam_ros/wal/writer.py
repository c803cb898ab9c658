# SPDX-License-Identifier: Apache-2.0
"""The one writer of a log: accepts batches from any thread, makes them durable in its own."""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from thadam_ros.config.schema import WalConfig
from thadam_ros.errors import StorageFullError
from thadam_ros.model.clock import Clock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.storage.lock import DirectoryLock
from thadam_ros.wal.budget import Budget, SegmentSizes, Usage, measure_budget, measure_free
from thadam_ros.wal.encode import (
    Compressor,
    EncodedFrame,
    PackedBatch,
    Stamp,
    encode_frame,
    group_batches,
    pack_batch,
    publisher_entry,
    topic_entry,
)
from thadam_ros.wal.layout import is_full
from thadam_ros.wal.log import LogFailedError, SegmentLog
from thadam_ros.wal.mark import Mark
from thadam_ros.wal.ranges import DAMAGED, TORN, DamagedRange
from thadam_ros.wal.recovery import Recovered, make_directory, recover
from thadam_ros.wal.statistics import WalStatistics

#: What may wait for its commit before append refuses.
PENDING_BYTES_MAX: Final = 64 << 20
#: A frame's lengths are 32 bits.
BATCH_BYTES_MAX: Final = 1 << 31
#: Publishers come and go for as long as the process lives; later ones get reference 0.
PUBLISHERS_MAX: Final = 1 << 17
#: A full disk is tried again after this long, doubled up to the second figure.
_RETRY_FIRST_NS: Final = 100_000_000
_RETRY_LAST_NS: Final = 5_000_000_000
#: While the filesystem is short of space it is looked at this often.
_LOOK_S: Final = 0.25

#: Why append refuses; keys of ``WalStatistics.refused_by_cause``.
OVER_BUDGET: Final = "budget"
SHORT_OF_SPACE: Final = "min_free"
DISK_FULL: Final = "storage_full"
CEILING: Final = "pending"
FAILED: Final = "failed"
CLOSED: Final = "closed"


def draw_random_epoch() -> int:
    """Return a random non-zero 63-bit integer (spec 1.2)."""
    return secrets.randbits(63) or 1


class WalWriter:
    """The log's only writer. Every method may be called from any thread.

    Attributes:
        epoch, ordinal: Of every frame that is written from now on.
        recovered: What the recovery found at open.
        budget: The limits in force.
        on_pressed: Called in the writer thread when segments should go; must not block or raise.
    """

    @classmethod
    def open(
        cls,
        directory: str,
        config: WalConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        clock_synced: Callable[[], bool],
        on_durable: Callable[[], None] | None = None,
        draw_epoch: Callable[[], int] = draw_random_epoch,
        cursors: Sequence[Position] = (),
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> WalWriter:
        """Take the lock, recover the newest segment, expose it and start the writer thread.

        Args:
            clock_synced: Asked once per accepted batch; must not block.
            on_durable: Called in the writer thread after the durable mark moved.
            cursors: Cursors of all chains; one beyond the end of the log begins a new epoch.

        Raises:
            LockHeldError: Another writer has the log.
            FormatError: A file is not ours or of another version.
            StorageFullError: The disk is too full to move a torn tail aside.
            OSError: From the filesystem.
        """
        directory = os.path.abspath(directory)
        make_directory(fs, directory)
        lock = DirectoryLock(directory, "thadam WAL writer")
        try:
            try:
                recovered = recover(fs, directory, cursors=cursors, draw_epoch=draw_epoch)
                budget = measure_budget(fs, directory, config)
                writer = cls(
                    directory,
                    config,
                    fs=fs,
                    clock=clock,
                    clock_synced=clock_synced,
                    on_durable=on_durable,
                    recovered=recovered,
                    budget=budget,
                    lock=lock,
                    pending_bytes_max=pending_bytes_max,
                )
            except OSError as exc:
                raise _storage_error(exc) from exc
        except BaseException:
            lock.release()
            raise
        writer._thread.start()
        return writer

    def __init__(
        self,
        directory: str,
        config: WalConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        clock_synced: Callable[[], bool],
        on_durable: Callable[[], None] | None,
        recovered: Recovered,
        budget: Budget,
        lock: DirectoryLock,
        pending_bytes_max: int,
    ) -> None:
        self.recovered = recovered
        self.budget = budget
        self.on_pressed: Callable[[], None] = lambda: None
        self._fs = fs
        self._directory = directory
        self.epoch = recovered.mark.epoch
        self.ordinal = recovered.mark.position.ordinal
        self._config = config
        self._clock = clock
        self._clock_synced = clock_synced
        self._on_durable = on_durable
        self._lock = lock
        self._pending_bytes_max = pending_bytes_max
        self._boot_id = clock.boot_id()
        self._compressor = Compressor() if config.compression == "zstd" else None
        # Guards everything below; never held during I/O.
        self._changed = threading.Condition()
        self._waiting: deque[PackedBatch] = deque()
        self._waiting_bytes = 0
        self._taken: list[PackedBatch] = []
        self._taken_bytes = 0
        self._accepted = 0
        self._settled = 0
        self._unannounced = 0
        self._flush_upto = 0
        self._closing = False
        self._failed = False
        self._full = False
        self._stopped = False
        # The disk refused the last write, and no segment was deleted since.
        self._stuck = False
        self._refused_batches = 0
        self._refused_records = 0
        self._refused_by_cause: dict[str, int] = {}
        # Why capture is held up, and for how many bytes; empty while it is not.
        self._held_up = ""
        self._held_up_bytes = 0
        self._lost_records = 0
        self._publishers_refused = 0
        self._storage_refusals = 0
        self._callback_errors = 0
        self._last_commit_ns = 0
        self._longest_commit_ns = 0
        self._thread_error = ""
        self._topics: dict[TopicDeclaration, int] = {}
        self._topic_entries: list[TopicDeclaration] = []
        self._publishers: dict[bytes, int] = {}
        self._publisher_entries: list[bytes] = []
        sizes = SegmentSizes(fs, directory).measure()
        self._found_bytes = sum(size for _, size in sizes)
        self._deleted_segments = 0
        self._deleted_bytes = 0
        # What settled commits wrote; the bytes of one that runs are still those it has taken.
        self._written_bytes = 0
        self._used_bytes = self._found_bytes
        self._free_bytes = measure_free(fs, directory, budget)
        self._log = SegmentLog(
            fs,
            directory,
            recovered.mark,
            segment_bytes=budget.segment_bytes,
            segments=len(sizes),
            declare=self._declarations,
            time_ns=clock.time_ns,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"wal-writer {os.path.basename(directory)}", daemon=False
        )

    @property
    def durable(self) -> Position:
        """Last durable position; ``(ordinal, -1)`` while the epoch has none."""
        return self._log.mark.position

    @property
    def mark(self) -> Mark:
        """The durable mark."""
        return self._log.mark

    def declare_topic(self, declaration: TopicDeclaration) -> int:
        """Return the reference of ``declaration``, from 1; the same one for an equal one."""
        with self._changed:
            ref = self._topics.get(declaration)
            if ref is None:
                self._topic_entries.append(declaration)
                ref = self._topics[declaration] = len(self._topic_entries)
            return ref

    def declare_publisher(self, gid: bytes) -> int:
        """Return the reference of ``gid``, from 1; 0 (unknown) once the table is full."""
        with self._changed:
            ref = self._publishers.get(gid)
            if ref is None:
                if len(self._publisher_entries) >= PUBLISHERS_MAX:
                    self._publishers_refused += 1
                    return 0
                self._publisher_entries.append(gid)
                ref = self._publishers[gid] = len(self._publisher_entries)
            return ref

    def append(self, batch: SourceBatch) -> bool:
        """Accept ``batch`` for the next commit, or refuse it whole; never waits for I/O.

        The batch belongs to the writer afterwards. A batch larger than the ceiling is accepted
        when nothing else waits.

        Returns:
            False when refused (counted by cause): the ceiling, the budget or ``min_free`` is
            reached, the writer failed or closed.

        Raises:
            ValueError: The batch is not what :class:`SourceBatch` says: lists of different
                length, values that fit no array, more bytes than a frame can hold.
        """
        if not len(batch):
            return True
        if self._why_refused(1):
            with self._changed:
                cause = self._why_refused(1)
                if cause:
                    return self._refuse(batch, cause, 1)
        stamp = Stamp(
            self._clock.time_ns(), self._clock.boottime_ns(), self._boot_id, self._clock_synced()
        )
        # Packed here, outside the lock: this thread works while the writer waits for the disk.
        packed = pack_batch(batch, stamp, self._clock.monotonic_ns())
        size = packed.bytes
        if size > BATCH_BYTES_MAX:
            raise ValueError(f"a batch of {size} bytes is more than a frame can hold")
        with self._changed:
            cause = self._why_refused(size)
            if cause:
                return self._refuse(batch, cause, size)
            first = not self._waiting
            self._waiting.append(packed)
            self._waiting_bytes += size
            self._accepted += 1
            # The writer needs waking only to start its interval or to cut it short.
            if first or self._waiting_bytes >= self._config.commit_bytes:
                self._changed.notify_all()
            return True

    def _why_refused(self, size: int) -> str:
        """Return why a batch of ``size`` bytes is not accepted, empty when it is."""
        pending = self._waiting_bytes + self._taken_bytes
        if self._failed:
            return FAILED
        if self._closing:
            return CLOSED
        if pending and pending + size > self._pending_bytes_max:
            return DISK_FULL if self._full else CEILING
        return self._over_limit(size)

    def _over_limit(self, size: int) -> str:
        """Return the limit that ``size`` more bytes would exceed, empty when there is none."""
        pending = self._waiting_bytes + self._taken_bytes
        # The newest segment cannot be deleted. When it is the only one and all of the budget,
        # one batch begins another, and this one can go.
        alone = not pending and self._segments() <= 1
        if self._used_bytes + pending + size > self.budget.budget_bytes and not alone:
            return OVER_BUDGET
        if self._free_bytes - pending - size < self.budget.min_free_bytes:
            return SHORT_OF_SPACE
        return ""

    def _segments(self) -> int:
        return self._log.counters.segments - self._deleted_segments

    def _refuse(self, batch: SourceBatch, cause: str, size: int) -> bool:
        """Count a refusal; the lock is held."""
        records = len(batch)
        self._refused_batches += 1
        self._refused_records += records
        self._refused_by_cause[cause] = self._refused_by_cause.get(cause, 0) + records
        if cause in (OVER_BUDGET, SHORT_OF_SPACE):
            if not self._held_up:
                # The writer looks again by itself from now on.
                self._changed.notify_all()
            self._held_up, self._held_up_bytes = cause, size
        return False

    def usage(self) -> Usage:
        """Measure what is free; return it with what the log takes.

        Raises:
            OSError: From the filesystem.
        """
        free = measure_free(self._fs, self._directory, self.budget)
        with self._changed:
            self._free_bytes = free
            self._look_again()
            return Usage(self._used_bytes, free, self._stuck)

    def deleted(self, segments: int, size_bytes: int) -> None:
        """Take note of segments that were deleted: capture and a refused commit go on."""
        with self._changed:
            self._deleted_segments += segments
            self._deleted_bytes += size_bytes
            self._stuck = False
            self._look_again()
            self._changed.notify_all()

    def _look_again(self) -> None:
        """Work out the figures anew; the lock is held."""
        self._used_bytes = self._found_bytes + self._written_bytes - self._deleted_bytes
        if self._held_up:
            self._held_up = self._over_limit(self._held_up_bytes)

    def flush(self, timeout_s: float) -> bool:
        """Commit now; True when everything accepted before the call is durable in time."""
        with self._changed:
            upto = self._accepted
            self._flush_upto = max(self._flush_upto, upto)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._settled >= upto or self._failed or self._stopped, timeout_s
            )
            return self._settled >= upto and not self._failed

    def close(self) -> None:
        """Commit what waits, sync, join the thread, give the lock back; may be called again.

        What a full disk still refuses is counted as lost.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._lock.release()

    def statistics(self) -> WalStatistics:
        """Return a snapshot."""
        log, recovered = self._log.counters, self.recovered
        torn = [item for item in recovered.ranges if item.kind == TORN]
        damaged = [item for item in recovered.ranges if item.kind == DAMAGED]
        with self._changed:
            return WalStatistics(
                alive=self._thread.is_alive(),
                failed=self._failed,
                storage_full=self._full,
                first_error=log.first_error or self._thread_error,
                last_error=self._thread_error or log.last_error,
                durable=self._log.mark.position,
                frames=log.frames,
                records=log.records,
                bytes=log.bytes,
                pending_batches=len(self._waiting) + len(self._taken),
                pending_bytes=self._waiting_bytes + self._taken_bytes,
                pending_bytes_max=self._pending_bytes_max,
                refused_batches=self._refused_batches,
                refused_records=self._refused_records,
                lost_records=self._lost_records,
                publishers_refused=self._publishers_refused,
                fsyncs=log.fsyncs,
                commits=log.commits,
                commit_faults=log.faults,
                storage_refusals=self._storage_refusals,
                suspect_segments=log.suspects,
                callback_errors=self._callback_errors,
                last_commit_ns=self._last_commit_ns,
                longest_commit_ns=self._longest_commit_ns,
                segments=self._segments(),
                segment_bytes=self._log.segment_size,
                torn_ranges=len(torn),
                torn_bytes=_total(torn),
                damaged_ranges=len(damaged),
                damaged_bytes=_total(damaged),
                recovered_frames=recovered.frames,
                damage_not_copied=recovered.damage_not_copied,
                new_epoch=recovered.new_epoch,
                wal_bytes=self._used_bytes,
                budget_bytes=self.budget.budget_bytes,
                min_free_bytes=self.budget.min_free_bytes,
                filesystem_free_bytes=self._free_bytes,
                held_up_by=self._held_up,
                refused_by_cause=dict(self._refused_by_cause),
                deleted_segments=self._deleted_segments,
                deleted_bytes=self._deleted_bytes,
            )

    def _declarations(self, topics: bool, refs: Sequence[int]) -> list[dict[str, object]]:
        """Return what is known of ``refs``; an unknown one stays undeclared in the log."""
        with self._changed:
            if topics:
                return [
                    topic_entry(ref, self._topic_entries[ref - 1])
                    for ref in refs
                    if 0 < ref <= len(self._topic_entries)
                ]
            return [
                publisher_entry(ref, self._publisher_entries[ref - 1])
                for ref in refs
                if 0 < ref <= len(self._publisher_entries)
            ]

    def _run(self) -> None:
        """Thread body: whatever happens in a commit ends here, with the reason kept."""
        try:
            while self._take():
                self._commit()
        except BaseException as exc:  # noqa: BLE001 - the component's edge (spec 1.6)
            self._thread_error = f"{type(exc).__name__}: {exc}"
            self._fail()
        finally:
            self._announce()
            try:
                self._log.close()
            except OSError as exc:
                self._thread_error = self._thread_error or f"{type(exc).__name__}: {exc}"
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def _due_in_ns(self) -> int | None:
        """Return how long the next commit has to wait, None when nothing waits for one."""
        if not self._waiting:
            return None
        if (
            self._closing
            or self._flush_upto > self._settled + self._unannounced
            or self._config.commit == "each"
            or self._waiting_bytes >= self._config.commit_bytes
        ):
            return 0
        due_ns = self._waiting[0].monotonic_ns + self._config.commit_interval_ns
        return max(0, due_ns - self._clock.monotonic_ns())

    def _take(self) -> bool:
        """Wait for a commit to be due and take its batches; False at the end."""
        while True:
            with self._changed:
                wait_ns = self._due_in_ns()
                if wait_ns == 0:
                    self._take_batches()
                    return True
                if wait_ns is None and (self._closing or self._failed):
                    return False
                held_up = bool(self._held_up)
                wait_s = None if wait_ns is None else wait_ns / 1e9
                if held_up:
                    wait_s = _LOOK_S if wait_s is None else min(wait_s, _LOOK_S)
                self._changed.wait(wait_s)
            if held_up:
                self._look()

    def _take_batches(self) -> None:
        """Take what one commit holds; the lock is held."""
        self._taken_bytes = 0
        # Not everything: what waits beyond one commit keeps the memory bound moving.
        most = 0 if self._config.commit == "each" else self._config.commit_bytes
        while self._waiting and (
            not self._taken or self._taken_bytes + self._waiting[0].bytes <= most
        ):
            batch = self._waiting.popleft()
            self._taken.append(batch)
            self._taken_bytes += batch.bytes
        self._waiting_bytes -= self._taken_bytes

    def _look(self) -> None:
        """Measure the disk, and ask for deletions while space is short."""
        try:
            usage = self.usage()
        except OSError as exc:
            # The last figure stays in force; a write that does not fit is refused by the disk.
            self._log.counters.last_error = f"{type(exc).__name__}: {exc}"
            return
        if self.budget.excess_bytes(usage):
            self.on_pressed()

    def _commit(self) -> None:
        started_ns = self._clock.monotonic_ns()
        config, taken = self._config, self._taken
        groups = [taken] if config.commit == "each" else group_batches(taken, config.commit_bytes)
        frames = [encode_frame(group, self._compressor) for group in groups]
        # Whom the last commit wakes runs while this thread waits for the disk, not before.
        self._announce()
        # Beyond the budget only when the newest segment is all of it: then that one has to end.
        self._log.finish_early = self._used_bytes + self._taken_bytes > self.budget.budget_bytes
        if not self._write(frames):
            return
        duration_ns = self._clock.monotonic_ns() - started_ns
        with self._changed:
            self._full = self._stuck = False
            self._unannounced += len(taken)
            self._taken, self._taken_bytes = [], 0
            self._written_bytes = self._log.counters.segment_bytes
            self._look_again()
            self._last_commit_ns = duration_ns
            self._longest_commit_ns = max(self._longest_commit_ns, duration_ns)
            at_once = self._due_in_ns() == 0
        self._look()
        if not at_once:
            self._announce()

    def _announce(self) -> None:
        """Tell the listener, then everyone who flushes, of commits whose mark has moved."""
        if not self._unannounced:
            return
        if self._on_durable is not None:
            try:
                self._on_durable()
            except BaseException as exc:  # noqa: BLE001 - a listener must not end the log
                with self._changed:
                    self._callback_errors += 1
                self._log.counters.last_error = f"on_durable: {type(exc).__name__}: {exc}"
        with self._changed:
            self._settled += self._unannounced
            self._unannounced = 0
            self._changed.notify_all()

    def _write(self, frames: Sequence[EncodedFrame]) -> bool:
        """Make ``frames`` durable, however long a full disk lasts; False when given up."""
        retry_ns = _RETRY_FIRST_NS
        while True:
            try:
                self._log.write(frames)
            except StorageFullError:
                if not self._wait_for_space(retry_ns):
                    return False
                retry_ns = min(2 * retry_ns, _RETRY_LAST_NS)
            except LogFailedError:
                self._fail()
                return False
            else:
                return True

    def _wait_for_space(self, retry_ns: int) -> bool:
        """Pause after a refusal; False when closing, then what waits is lost and counted."""
        with self._changed:
            self._full = self._stuck = True
            self._storage_refusals += 1
            closing = self._closing
        if not closing:
            self.on_pressed()
            with self._changed:
                # A deletion makes room at once.
                self._changed.wait_for(lambda: self._closing or not self._stuck, retry_ns / 1e9)
            return True
        self._fail()
        return False

    def _fail(self) -> None:
        """Stop accepting; everything that waits is lost and counted."""
        with self._changed:
            self._failed = True
            lost = [*self._taken, *self._waiting]
            self._lost_records += sum(map(len, lost))
            self._taken, self._taken_bytes = [], 0
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()


def _total(ranges: Sequence[DamagedRange]) -> int:
    return sum(item.end - item.start for item in ranges)


def _storage_error(error: OSError) -> OSError | StorageFullError:
    """Return ``error``, or its transient form when it means that the disk is full."""
    return StorageFullError(str(error)) if is_full(error) else error
