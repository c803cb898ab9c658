# SPDX-License-Identifier: Apache-2.0
"""The lane: the one thread per sink that publishes and stamps (spec 5.2, 5.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from thadam_ros.errors import FatalError
from thadam_ros.model.clock import Clock
from thadam_ros.model.event import Reject
from thadam_ros.publish.backoff import Backoff
from thadam_ros.publish.buffers import Boundary, Buffers, PartitionView
from thadam_ros.publish.cut import CutPolicy, CutRecord
from thadam_ros.sinks.contract import PartitionKey, PublishUnit, SinkDriver

#: Share of the buffer ceiling from which the largest partitions are published without waiting.
PRESSURE_SHARE = 0.75
#: Rejects are staged early beyond this many bytes, so that a flood of them stays bounded.
REJECT_BYTES_EARLY = 8 << 20


class RejectStore(Protocol):
    """What the lane needs of :class:`thadam_ros.quarantine.staging.Staging`."""

    def append(self, rejects: tuple[Reject, ...]) -> int:
        """Make rejects durable, skipping those already known; return how many were new."""


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """When a partition is full.

    Attributes:
        partition_rows_max: Rows of one object.
        partition_bytes_max: Arrow bytes of one object.
        buffer_bytes: Ceiling of the buffers.
    """

    partition_rows_max: int
    partition_bytes_max: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """Snapshot of a lane.

    Attributes:
        alive: Whether the thread runs.
        respawns: How often a dead thread was replaced.
        cut_no: Number of the last stamped cut.
        cuts: Cuts stamped by this process.
        cuts_failed: Cuts that raised.
        units: Units published.
        rows: Rows published.
        rejects_staged: Rejects made durable (new ones only).
        sink_rejects: Rows the store refused.
        errors: Exceptions by type name.
        problem: The last failure while it lasts, else None.
        retry_at_ns: When the next try is due (monotonic), 0 when none is planned.
        opened: Whether the driver is open.
    """

    alive: bool
    respawns: int
    cut_no: int
    cuts: int
    cuts_failed: int
    units: int
    rows: int
    rejects_staged: int
    sink_rejects: int
    errors: Mapping[str, int]
    problem: BaseException | None
    retry_at_ns: int
    opened: bool


class Lane:
    """Publishes partitions that are full, and cuts; stamps the cursor through ``commit``.

    Args:
        driver: The store, used by the lane's thread only.
        commit: Makes a cut's state and cursor durable; raises OSError.
        lineage: Makes the lineage of a unit from its key and cut number.
        on_settled: Called after rows left the buffers (room for the chain) and after stamps.
        on_fatal: Called once with the error that needs a person; the thread ends then.
        draw: Random numbers in [0, 1) for the backoff's jitter.
    """

    def __init__(
        self,
        name: str,
        *,
        driver: SinkDriver,
        buffers: Buffers,
        rejects: RejectStore,
        limits: LaneLimits,
        policy: CutPolicy,
        commit: Callable[[CutRecord], None],
        lineage: Callable[[PartitionKey, int, Boundary], Mapping[str, object]],
        clock: Clock,
        draw: Callable[[], float],
        cut_no: int,
        on_settled: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._name = name
        self._driver = driver
        self._buffers = buffers
        self._rejects = rejects
        self._limits = limits
        self._policy = policy
        self._commit = commit
        self._lineage = lineage
        self._clock = clock
        self._on_settled = on_settled
        self._on_fatal = on_fatal
        self._cut_no = cut_no
        self._attempt_no = cut_no
        self._opened = False
        self._unfinished: dict[PartitionKey, PublishUnit] = {}
        self._backoff = Backoff(draw)
        self._work_backoff = Backoff(draw)
        self._problem: BaseException | None = None
        self._work_problem: BaseException | None = None
        self._fatal: BaseException | None = None
        self._errors: dict[str, int] = {}
        self._cuts = self._cuts_failed = self._units = self._rows = 0
        self._rejects_staged = self._sink_rejects = self._respawns = 0
        self._bytes_since_cut = 0
        self._wake = threading.Event()
        self._stop = False
        self._cut_requested = False
        self._work_waits = True
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, or replace it when it died; may be called again."""
        if self._stop or self._fatal is not None:
            return
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._respawns += 1
        self._thread = threading.Thread(target=self._run, name=f"lane-{self._name}", daemon=False)
        self._thread.start()

    def notify(self) -> None:
        """Wake the thread after a submission."""
        self._wake.set()

    def request_cut(self) -> None:
        """Ask for a cut of everything submitted so far, without waiting for its age."""
        self._cut_requested = True
        self._wake.set()

    def idle(self) -> bool:
        """Tell whether everything submitted is stamped and nothing waits for delivery."""
        return self._buffers.oldest_ns() is None and not self._work_waits

    def stop(self, timeout_s: float) -> bool:
        """End the thread; return False when it did not end in time (it was told to abort)."""
        self._stop = True
        self._wake.set()
        thread = self._thread
        if thread is None or not thread.is_alive():
            return True
        thread.join(timeout_s / 2)
        if thread.is_alive():
            self._driver.abort()
            thread.join(timeout_s / 2)
        return not thread.is_alive()

    def close_driver(self) -> None:
        """Release the driver; only after :meth:`stop` returned True."""
        if self._thread is None or not self._thread.is_alive():
            self._driver.close()

    def statistics(self) -> LaneStatistics:
        """Return a snapshot."""
        problem = self._fatal or self._problem or self._work_problem
        planned = max(self._backoff.retry_at_ns, self._work_backoff.retry_at_ns)
        return LaneStatistics(
            alive=self._thread is not None and self._thread.is_alive(),
            respawns=self._respawns,
            cut_no=self._cut_no,
            cuts=self._cuts,
            cuts_failed=self._cuts_failed,
            units=self._units,
            rows=self._rows,
            rejects_staged=self._rejects_staged,
            sink_rejects=self._sink_rejects,
            errors=dict(self._errors),
            problem=problem,
            retry_at_ns=planned if problem is not None else 0,
            opened=self._opened,
        )

    def _run(self) -> None:
        # A BaseException that is no Exception (SystemExit, an injected KeyboardInterrupt) ends the
        # thread; the supervisor sees a dead thread and starts another. Rows never left the buffers.
        while not self._stop and self._fatal is None:
            try:
                self._duties()
            except Exception as exc:  # noqa: BLE001 - the lane's edge: counted, then backoff
                self._failed(exc)
            except BaseException as exc:
                self._count(exc)
                self._problem = exc
                self._backoff.failed(self._clock.monotonic_ns())
                raise
            self._wake.wait(self._pause_s())
            self._wake.clear()

    def _duties(self) -> None:
        now = self._clock.monotonic_ns()
        if self._backoff.ready(now):
            if not self._opened:
                self._driver.open(self._cut_no)
                self._opened = True
            self._publish_due(now)
            # Whatever failed before was due again, and has worked now.
            self._recovered()
        if self._opened:
            self._background_work(self._clock.monotonic_ns())

    def _publish_due(self, now_ns: int) -> None:
        # Taken before the boundary: a request that comes after it asks for more than this cut has.
        requested = self._cut_requested
        if requested:
            self._cut_requested = False
        boundary = self._buffers.boundary()
        if boundary is None:
            if requested:
                self._cut_requested = True
            return
        if not self._unfinished:
            self._buffers.compact(boundary)
        held = self._buffers.statistics()
        due = self._policy.due(
            self._buffers.oldest_ns(),
            now_ns,
            held.size_bytes + self._bytes_since_cut,
            requested,
        )
        if due:
            self._cut(boundary)
            return
        if requested:
            self._cut_requested = True
        if held.reject_bytes >= REJECT_BYTES_EARLY:
            self._stage_rejects(boundary)
        room_bytes = PRESSURE_SHARE * self._limits.buffer_bytes
        for view in self._buffers.partitions(boundary):
            full = (
                view.row_count >= self._limits.partition_rows_max
                or view.size_bytes >= self._limits.partition_bytes_max
            )
            if full or self._buffers.size_bytes() >= room_bytes:
                self._stage_rejects(boundary)
                self._publish(view, boundary)

    def _cut(self, boundary: Boundary) -> None:
        """Publish everything at or below the boundary, then stamp it; strictly ordered."""
        try:
            self._stage_rejects(boundary)
            for view in self._buffers.partitions(boundary):
                self._publish(view, boundary)
            number = self._next_cut_no()
            # After a failed commit nobody knows which cursor a crash would leave, so the next
            # attempt takes another number: files of both numbers are then voided or kept together.
            self._attempt_no = number
            self._commit(CutRecord(number, boundary.last, boundary.epoch, boundary.state))
        except BaseException:
            self._cuts_failed += 1
            self._cut_requested = True
            raise
        self._cut_no = number
        self._cuts += 1
        self._bytes_since_cut = 0
        self._unfinished = {}
        # The buffers last: an interruption before them costs a cut without rows, one after them
        # would leave files that nobody delivers; and a drain that finds them empty must find that
        # there is work.
        self._driver.stamped(number)
        self._work_waits = True
        self._buffers.stamped(boundary, self._clock.monotonic_ns())
        self._recovered()
        self._on_settled()

    def _next_cut_no(self) -> int:
        return self._attempt_no + 1

    def _publish(self, view: PartitionView, boundary: Boundary) -> None:
        """Publish one partition; a unit that raised before is sent again as it was."""
        unit = self._unfinished.get(view.key)
        if unit is not None and unit.cut_no == self._next_cut_no():
            self._send(unit)
            rest = tuple(rows for rows in view.rows if all(rows is not sent for sent in unit.rows))
            if not rest:
                return
            view = PartitionView(view.key, rest, sum(r.num_rows for r in rest), 0)
        cut_no = self._next_cut_no()
        lineage = self._lineage(view.key, cut_no, boundary)
        self._send(PublishUnit(view.key, cut_no, view.rows, lineage, boundary.epoch))

    def _send(self, unit: PublishUnit) -> None:
        self._unfinished[unit.key] = unit
        refused = self._driver.publish(unit)
        if refused:
            self._rejects_staged += self._rejects.append(tuple(refused))
            self._sink_rejects += len(refused)
        self._buffers.settle(unit.key, unit.rows)
        del self._unfinished[unit.key]
        self._units += 1
        self._bytes_since_cut += sum(rows.nbytes for rows in unit.rows)
        self._rows += unit.row_count - len(refused)
        self._on_settled()

    def _stage_rejects(self, boundary: Boundary) -> None:
        """Rejects first: durable before any put that covers their position."""
        rejects = self._buffers.rejects(boundary)
        if rejects:
            self._rejects_staged += self._rejects.append(rejects)
            self._buffers.rejects_staged(boundary)

    def _background_work(self, now_ns: int) -> None:
        if not self._work_backoff.ready(now_ns):
            return
        try:
            self._work_waits = self._driver.work()
        except FatalError:
            raise
        except Exception as exc:  # noqa: BLE001 - counted, and shown as this chain's problem
            # Delivery may fail for a long time without holding back publishing and stamping.
            self._count(exc)
            self._work_problem = exc
            self._work_waits = True
            self._work_backoff.failed(self._clock.monotonic_ns())
            return
        self._work_problem = None
        self._work_backoff.succeeded()

    def _failed(self, exc: Exception) -> None:
        self._count(exc)
        if isinstance(exc, FatalError):
            self._fatal = exc
            self._on_fatal(exc)
            return
        self._problem = exc
        self._backoff.failed(self._clock.monotonic_ns())

    def _recovered(self) -> None:
        self._problem = None
        self._backoff.succeeded()

    def _count(self, exc: BaseException) -> None:
        name = type(exc).__name__
        self._errors[name] = self._errors.get(name, 0) + 1

    def _pause_s(self) -> float:
        """Return how long nothing is due, in seconds, at most half a second."""
        now = self._clock.monotonic_ns()
        waits = [500_000_000]
        if self._problem is not None:
            waits.append(self._backoff.retry_at_ns - now)
        elif (oldest := self._buffers.oldest_ns()) is not None and self._buffers.boundary():
            waits.append(oldest + self._policy.max_age_ns - now)
        if self._work_waits and self._opened:
            waits.append(self._work_backoff.retry_at_ns - now)
        return max(0.0, min(waits) / 1e9)
