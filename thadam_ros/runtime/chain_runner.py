# SPDX-License-Identifier: Apache-2.0
"""Everything around one chain: lock, cursor, reader, staging, lane, driver, states (spec 4.1)."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from thadam_ros import __version__
from thadam_ros.chain.chain import Chain
from thadam_ros.chain.cursor import Cursor, CursorStore
from thadam_ros.chain.state import ChainState
from thadam_ros.config.schema import SinkConfig
from thadam_ros.dataset.pipeline import DatasetPipeline
from thadam_ros.errors import (
    FatalError,
    FormatError,
    LockHeldError,
    StorageFullError,
    TransientError,
)
from thadam_ros.model.clock import Clock
from thadam_ros.model.event import Outcome, Submission
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.model.states import ComponentState, ComponentStatistics, Kind, State
from thadam_ros.publish.backoff import Backoff
from thadam_ros.publish.buffers import Boundary, Buffers
from thadam_ros.publish.cut import CutPolicy, CutRecord
from thadam_ros.publish.lane import Lane, LaneLimits, LaneStatistics
from thadam_ros.quarantine.staging import QuarantineUnwritableError, Staging
from thadam_ros.runtime.loading import LoadedConfig
from thadam_ros.runtime.redact import redact
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.sinks import load_driver
from thadam_ros.sinks.contract import PartitionKey, SinkDriver
from thadam_ros.sinks.partitions import split_partitions
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.storage.lock import DirectoryLock
from thadam_ros.wal.budget import PressureGauge
from thadam_ros.wal.layout import is_full, list_segments
from thadam_ros.wal.mark import load_mark
from thadam_ros.wal.ranges import Backlog
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.retain_lock import hold_segments

#: One step reads about this much, so that a thread of an executor is never held for long.
STEP_BYTES_MAX = 4 << 20
STEP_FRAMES_MAX = 256
#: While a backlog is worked off a state is attached this often; idle chains attach it at once.
STATE_INTERVAL_NS = 200_000_000
#: A state that took long to make is not made again before this many times as long.
STATE_PAUSE = 10
#: How long a lane may take to end before it is told to abort and given up.
LANE_JOIN_S = 2.0


class StepResult(Enum):
    """What :meth:`ChainRunner.step` found."""

    PROGRESS = "progress"
    IDLE = "idle"
    NOT_READY = "not_ready"


class ChainRunner:
    """Owns one sink's chain from the WAL to the store.

    ``step`` is called by one thread at a time; ``wake`` tells that another step may do something.

    Args:
        sink: The sink's configuration.
        loaded: The whole configuration with its dataset plans.
        on_fatal: Called once, from the lane's thread, with an error that needs a person.
        draw: Random numbers in [0, 1) for backoff jitter; never reaches a row.
    """

    def __init__(
        self,
        sink: SinkConfig,
        loaded: LoadedConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.sink = sink
        self._loaded = loaded
        self._fs = fs
        self._clock = clock
        self._on_fatal = on_fatal
        self._draw = draw
        data_dir = loaded.config.edge.data_dir
        self.directory = os.path.join(data_dir, "chains", sink.name)
        self._wal_dir = os.path.join(data_dir, "wal")
        self._step_lock = threading.Lock()
        self._tracker = StateTracker(clock)
        self._quarantine_tracker = StateTracker(clock)
        self._wake: Callable[[], None] = lambda: None
        self._lock: DirectoryLock | None = None
        self._restarts = 0
        self._panics = 0
        self._panic: BaseException | None = None
        self._backoff = Backoff(draw)
        # How far the chain had come when it last panicked; None once it came further.
        self._panicked_after: Position | None = None
        # Statistics are asked for by other threads than the one that steps: they measure the
        # backlog with a reader of their own.
        self._gauge_lock = threading.Lock()
        self._gauge: WalReader | None = None
        self._backlog = Backlog(0, 0, 0)
        self._backlog_error = ""
        self._fatal: BaseException | None = None
        self._stopped: str | None = None
        self._opened = False
        self.joined = True

    def open(self, wake: Callable[[], None]) -> None:
        """Take the chain's lock, restore its state and start its lane.

        The store itself is not touched here: the lane connects in the background.

        Raises:
            LockHeldError: Another process runs this chain.
            FormatError: Cursor, state, staging or WAL of another version, or damaged.
            FatalError: Unknown driver or missing library.
            OSError: From the filesystem.
        """
        if not self.joined:
            self._let_go(0.0)
        self._wake = wake
        self._fatal = self._panic = self._stopped = self._panicked_after = None
        self._backoff.succeeded()
        self._lock = DirectoryLock(self.directory, f"thadam_{self.sink.name}")
        try:
            self._build()
        except BaseException:
            self._release()
            raise
        # Kept over rebuilds: counters that others watch never start again meanwhile.
        self._baseline = self._counts
        self._gauge = WalReader(self._wal_dir, fs=self._fs)
        self._opened = True

    def _build(self) -> None:
        self._cursors = CursorStore(self.directory, self._fs)
        cursor, state = self._cursors.load()
        self._chain = self._make_chain()
        if state is not None:
            self._chain.restore(ChainState.decode(state))
        self._cursor = cursor or self._first_cursor()
        self._boundary_current = True
        self._state_at_ns = self._clock.monotonic_ns()
        self._state_pause_ns = 0
        self._last = (self._cursor.position, self._cursor.epoch)
        self._counts = self._chain.counts.copy()
        self._pressure = PressureGauge(
            self._fs, self._wal_dir, self._loaded.config.wal, self._clock.monotonic_ns
        )
        driver = self._make_driver()
        # A cursor before everything was kept when the log still began there.
        self._reader = WalReader(
            self._wal_dir, fs=self._fs, after=self._cursor.position, from_first=True
        )
        self._staging = Staging.open(os.path.join(self.directory, "staging"), self._fs)
        self._buffers = Buffers(self.sink.buffer_bytes, split_partitions)
        self._lane = self._make_lane(driver)
        self._lane.start()

    def _first_cursor(self) -> Cursor:
        """Begin a chain that never stamped, and keep its place at once.

        "latest" is when the sink was new, not whenever it starts before its first stamp; and
        "earliest" is what the log held then. What becomes durable, or goes, from here on is
        owed to it.
        """
        with hold_segments(self._wal_dir):
            cursor = Cursor()
            mark = load_mark(self._fs, self._wal_dir)
            if self.sink.start == "earliest":
                segments = list_segments(self._fs, self._wal_dir)
                if segments and segments[0][:2] > (0, 0):
                    name = segments[0]
                    cursor = Cursor(Position(name.ordinal, name.first - 1), name.epoch)
            elif mark is not None:
                cursor = Cursor(mark.position, mark.epoch)
            self._cursors.commit(cursor, self._chain.snapshot())
        return cursor

    def _make_chain(self) -> Chain:
        config = self._loaded.config
        datasets = {name: config.datasets[name] for name in self._loaded.datasets_of(self.sink)}
        pipelines = {
            name: DatasetPipeline(
                self._loaded.plan_for(name, self.sink.name),
                timestamp_unit=self.sink.timestamp_unit,
                limits=config.limits,
            )
            for name in datasets
        }
        return Chain(datasets, pipelines, config.row_hashes, self.sink.poison_retries)

    def _make_driver(self) -> SinkDriver:
        schemas = {
            name: self._loaded.plan_for(name, self.sink.name).arrow_schema(self.sink.timestamp_unit)
            for name in self._loaded.datasets_of(self.sink)
        }
        return load_driver(self.sink.type)(
            self.sink, self.directory, self._epoch(), schemas, fs=self._fs, clock=self._clock
        )

    def _make_lane(self, driver: SinkDriver) -> Lane:
        rotation = self.sink.rotation
        return Lane(
            self.sink.name,
            driver=driver,
            buffers=self._buffers,
            rejects=self._staging,
            limits=LaneLimits(rotation.max_rows, rotation.max_bytes, self.sink.buffer_bytes),
            policy=CutPolicy(
                rotation.max_age_ns,
                min(self.sink.cut_bytes, self._pressure.budget.budget_bytes // 8),
                pressed=lambda: self._pressure.pressed(self._cursor.position),
            ),
            commit=self._commit,
            lineage=self._lineage,
            clock=self._clock,
            draw=self._draw,
            cut_no=self._cursor.cut_no,
            on_settled=lambda: self._wake(),
            on_fatal=self._failed,
        )

    def _epoch(self) -> int:
        """Return the WAL's epoch, 0 while there is no WAL."""
        mark = load_mark(self._fs, self._wal_dir)
        return 0 if mark is None else mark.epoch

    def step(self) -> StepResult:
        """Do one bounded piece of work: read, process and submit some frames.

        Never raises: a ``FatalError`` makes the chain failed, whatever else comes up here,
        BaseException included, is counted as a panic, and the chain is built again from its
        cursor after a backoff (spec 4.2).
        """
        with self._step_lock:
            if not self._opened or self._fatal is not None:
                return StepResult.IDLE
            if not self._backoff.ready(self._clock.monotonic_ns()):
                return StepResult.NOT_READY
            try:
                if self._panic is not None:
                    self._rebuild()
                self._lane.start()
                result = self._step()
            except FatalError as exc:
                self._failed(exc)
                return StepResult.IDLE
            except BaseException as exc:  # noqa: BLE001 - the chain's edge
                self._panic = exc
                self._panics += 1
                self._panicked_after = max(self._last[0], self._panicked_after or BEFORE_ALL)
                self._backoff.failed(self._clock.monotonic_ns())
                return StepResult.NOT_READY
            # What lies before the frame that failed always works: only passing it is a success.
            if self._panicked_after is not None and (
                result is StepResult.IDLE or self._last[0] > self._panicked_after
            ):
                self._panicked_after = None
                self._backoff.succeeded()
            return result

    def _step(self) -> StepResult:
        if not self._buffers.admits():
            self._submit_state()
            self._lane.notify()
            return StepResult.NOT_READY
        frames = self._reader.read(STEP_FRAMES_MAX, STEP_BYTES_MAX)
        now = self._clock.monotonic_ns()
        state_age_ns = now - self._state_at_ns
        if not frames:
            if state_age_ns >= self._state_pause_ns:
                self._submit_state()
            return StepResult.IDLE
        submission = self._chain.step(frames, snapshot=False)
        if state_age_ns >= max(STATE_INTERVAL_NS, self._state_pause_ns):
            submission = replace(submission, state=self._snapshot())
        self._submit(submission, now)
        return StepResult.PROGRESS

    def _snapshot(self) -> bytes:
        started_ns = self._clock.monotonic_ns()
        state = self._chain.snapshot()
        self._state_at_ns = self._clock.monotonic_ns()
        self._state_pause_ns = STATE_PAUSE * (self._state_at_ns - started_ns)
        return state

    def _submit(self, submission: Submission, now_ns: int) -> None:
        self._buffers.submit(submission, now_ns)
        self._last = (submission.last, submission.last_epoch)
        # Other threads read statistics while this one counts: they get a copy of their own.
        self._counts = self._chain.counts.copy()
        self._boundary_current = submission.state is not None
        if self._boundary_current:
            self._lane.notify()

    def _submit_state(self) -> None:
        """Give the frames submitted so far a boundary that a cut can settle."""
        if self._boundary_current:
            return
        last, epoch = self._last
        state = self._snapshot()
        self._submit(Submission(last, epoch, 0, (), (), state), self._clock.monotonic_ns())

    def _commit(self, cut: CutRecord) -> None:
        cursor = Cursor(cut.last, cut.epoch, cut.cut_no)
        self._cursors.commit(cursor, cut.state)
        self._cursor = cursor

    def _lineage(self, key: PartitionKey, cut_no: int, boundary: Boundary) -> Mapping[str, object]:
        config = self._loaded.config
        after = self._cursor.position
        gaps = [
            [list(gap.first), list(gap.last)]
            for gap in self._reader.gaps
            if gap.last > after and gap.first <= boundary.last
        ]
        lineage: dict[str, object] = {
            "software_version": __version__,
            "sink": self.sink.name,
            "dataset": key.dataset,
            "cut_no": cut_no,
            "after": list(after),
            "through": list(boundary.last),
            "epoch": boundary.epoch,
            "config_hash": config.config_hash,
            "row_hash": config.row_hashes.get(key.dataset, ""),
            "starting_state": f"state-{self._cursor.cut_no}" if self._cursor.cut_no else "cold",
        }
        if gaps:
            # Positions of the range that the log no longer had.
            lineage["gaps"] = gaps
        return lineage

    def _rebuild(self) -> None:
        """Start again from the cursor; what was above it is read again from the WAL.

        Raises:
            FormatError, OSError: As :meth:`open`; counted as another panic by the caller.
        """
        self._restarts += 1
        if not self._lane.stop(timeout_s=LANE_JOIN_S):
            raise TransientError("the old publishing thread has not ended yet")
        self._close_parts()
        self._build()
        self._panic = None

    def close(self, drain_timeout_s: float) -> bool:
        """Stop; with time, deliver what is durable first. May be called again.

        Args:
            drain_timeout_s: Seconds to work off the backlog; 0 stops at once.

        Returns:
            True when everything durable at the call was stamped and delivered.
        """
        if not self._opened:
            if not self.joined:
                self._let_go(0.0)
            return True
        deadline = self._clock.monotonic_ns() + int(drain_timeout_s * 1e9)
        with self._step_lock:
            drained = False
            try:
                if self._fatal is None and self._panic is None:
                    drained = self._drain(deadline)
            except BaseException as exc:  # noqa: BLE001 - counted; the WAL still holds the rest
                self._panic = exc
                self._panics += 1
            self._opened = False
            self._stopped = "drained" if drained else "not_drained"
            with self._gauge_lock:
                if self._gauge is not None:
                    self._gauge.close()
                    self._gauge = None
            self._let_go(LANE_JOIN_S)
        return drained

    def _let_go(self, timeout_s: float) -> None:
        """Close everything, unless the lane still runs: then it may still write."""
        self.joined = self._lane.stop(timeout_s=timeout_s)
        if self.joined:
            self._close_parts()
            self._release()

    def _drain(self, deadline_ns: int) -> bool:
        """Work off what is durable now, then cut; frames that come meanwhile stay in the WAL."""
        target = self._reader.durable
        read_all = False
        while self._clock.monotonic_ns() < deadline_ns and self._fatal is None:
            self._lane.start()
            if not read_all:
                result = self._step()
                # The last durable frames may be damaged: then reading ends below the target.
                read_all = result is StepResult.IDLE or self._last[0] >= target
                if result is StepResult.PROGRESS:
                    continue
            self._submit_state()
            if self._buffers.oldest_ns() is not None:
                self._lane.request_cut()
            elif read_all and self._lane.idle():
                return True
            # Polls a lane that works in another thread; each turn is short and bounded.
            threading.Event().wait(0.01)
        return False

    def _close_parts(self) -> None:
        self._reader.close()
        self._staging.close()
        self._lane.close_driver()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _failed(self, exc: BaseException) -> None:
        self._fatal = exc
        self._on_fatal(exc)

    @property
    def cursor(self) -> Cursor:
        """The last stamped cut."""
        return self._cursor

    def statistics(self) -> tuple[ComponentStatistics, ...]:
        """Return the chain's and its quarantine's statistics; counters since ``open``."""
        name = f"chain.{self.sink.name}"
        node = f"thadam_{self.sink.name}"
        if not self._opened:
            return (ComponentStatistics(name, Kind.CHAIN, self._closed_state(), node),)
        lane = self._lane.statistics()
        backlog = self._measure_backlog()
        counts, base = self._counts, self._baseline
        since_open = {o: counts.total(o) - base.total(o) for o in Outcome}
        age_ns = self._clock.time_ns() - backlog.oldest_ingest_time_ns if backlog.frames else 0
        chain = ComponentStatistics(
            name=name,
            kind=Kind.CHAIN,
            state=self._state(lane),
            node=node,
            restarts=self._restarts + lane.respawns,
            backlog_frames=backlog.frames,
            backlog_bytes=backlog.bytes,
            backlog_age_s=max(0.0, age_ns / 1e9),
            received=sum(since_open.values()),
            delivered=since_open[Outcome.DELIVERED],
            rejected=counts.rejects.total() - base.rejects.total(),
            deduplicated=since_open[Outcome.DEDUPLICATED],
            filtered=since_open[Outcome.FILTERED],
            unmatched=since_open[Outcome.UNMATCHED],
            flagged=counts.flagged.total() - base.flagged.total(),
            details=self._details(lane),
        )
        return (chain, self._quarantine_statistics(node))

    def _quarantine_statistics(self, node: str) -> ComponentStatistics:
        staging = self._staging.statistics()
        codes = sorted(self._staging.counts().items())
        if staging.damaged_ranges:
            state = self._quarantine_tracker.update(
                State.DEGRADED,
                "quarantine_damage",
                f"{staging.damaged_ranges} damaged ranges of staged rejects were skipped; "
                f"look at {os.path.join(self.directory, 'staging')}",
            )
        else:
            reason = "rejects are made durable in staging"
            state = self._quarantine_tracker.update(State.RUNNING, "ok", reason)
        return ComponentStatistics(
            name=f"quarantine.{self.sink.name}",
            kind=Kind.QUARANTINE,
            state=state,
            node=node,
            rejected=staging.rejects,
            deduplicated=staging.duplicates_total,
            details={
                "bytes": str(staging.bytes),
                "segments": str(staging.segments),
                "torn_bytes": str(staging.torn_bytes),
                "failures": str(staging.failures_total),
                **{f"{domain}/{code}": str(count) for (domain, code), count in codes},
            },
        )

    def _measure_backlog(self) -> Backlog:
        """Return what waits; while the log cannot be read the last figure, and the error."""
        with self._gauge_lock:
            if self._gauge is not None:
                try:
                    self._backlog = self._gauge.backlog(self._cursor.position)
                    self._backlog_error = ""
                except (OSError, FormatError) as exc:
                    self._backlog_error = redact(exc)
            return self._backlog

    def _details(self, lane: LaneStatistics) -> dict[str, str]:
        held = self._buffers.statistics()
        details = {
            "cut_no": str(lane.cut_no),
            "cuts": str(lane.cuts),
            "cuts_failed": str(lane.cuts_failed),
            "units": str(lane.units),
            "rows_published": str(lane.rows),
            "sink_rejects": str(lane.sink_rejects),
            "buffered_bytes": str(held.size_bytes),
            "buffered_rows": str(held.row_count),
            "panics": str(self._panics),
            "wal_position": str(self._last[0]),
            "cursor": str(self._cursor.position),
            "damaged_ranges": str(self._reader.damaged_count),
            "gaps": str(self._reader.gap_count),
            "gap_frames": str(self._reader.gap_frames),
        }
        if self._backlog_error:
            details["backlog_error"] = self._backlog_error
        counts = self._counts
        details.update({f"errors.{k}": str(v) for k, v in sorted(lane.errors.items())})
        details.update({f"rows.{k}": str(v) for k, v in sorted(counts.rows.items())})
        details.update({f"flags.{k}": str(v) for k, v in sorted(counts.flagged.items())})
        return details

    def _state(self, lane: LaneStatistics) -> ComponentState:
        problem = self._fatal or self._panic or lane.problem
        if problem is not None:
            return self._problem_state(problem, lane)
        damaged, gaps = self._reader.damaged_count, self._reader.gap_count
        if damaged or gaps:
            code = "wal_damage" if damaged else "wal_gap"
            what = f"{damaged} damaged ranges, {gaps} gaps ({self._reader.gap_frames} frames)"
            reason = f"the WAL has {what}; run `thadam wal fsck` to see what is left"
            return self._tracker.update(State.DEGRADED, code, reason)
        if not lane.alive:
            reason = "the publishing thread died and is replaced at the next step"
            return self._tracker.update(State.DEGRADED, "bug", reason)
        if not lane.opened:
            return self._tracker.update(State.STARTING, "starting", "connecting to the store")
        return self._tracker.update(State.RUNNING, "ok", "delivers what is durable")

    def _problem_state(self, problem: BaseException, lane: LaneStatistics) -> ComponentState:
        code, action = _classify(problem)
        state = State.DEGRADED
        if self._fatal is not None:
            state = State.FAILED
        retry = 0
        if lane.retry_at_ns and state is State.DEGRADED:
            wait = max(0, lane.retry_at_ns - self._clock.monotonic_ns())
            retry = self._clock.time_ns() + wait
        reason = f"sink {self.sink.name!r} ({self.sink.url}): {action}"
        return self._tracker.update(state, code, reason, redact(problem), retry)

    def _closed_state(self) -> ComponentState:
        if self._fatal is not None:
            code, action = _classify(self._fatal)
            return self._tracker.update(State.FAILED, code, action, redact(self._fatal))
        if self._stopped == "not_drained":
            reason = "stopped before everything was delivered; the rest stays in the WAL"
            return self._tracker.update(State.STOPPED, "not_drained", reason)
        return self._tracker.update(State.STOPPED, "stopped", "not running")


def _classify(problem: BaseException) -> tuple[str, str]:
    """Return the reason code and the sentence for a failure, by its type."""
    if isinstance(problem, LockHeldError):
        return "lock_held", "another process runs this chain; stop it first"
    if isinstance(problem, StorageFullError) or (isinstance(problem, OSError) and is_full(problem)):
        return (
            "storage_full",
            "disk, quota or budget is exhausted; free space, it resumes by itself",
        )
    if isinstance(problem, TransientError):
        return "sink_unreachable", "the store does not take data; it is tried again by itself"
    if isinstance(problem, FormatError):
        return "format_version", "a file is not readable by this version; the exception names it"
    if isinstance(problem, QuarantineUnwritableError):
        return "quarantine_unwritable", "rejects cannot be made durable, so nothing is published"
    if isinstance(problem, FatalError):
        return "sink_refused", "it needs another configuration or credentials, then configure again"
    if isinstance(problem, OSError):
        return "storage_error", "the filesystem refuses to work; it is tried again by itself"
    return "bug", "an unexpected exception; it is tried again by itself, please report it"
