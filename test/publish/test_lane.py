# SPDX-License-Identifier: Apache-2.0
"""Promises of the lane: a publish that raises loses nothing, only a cut moves the cursor."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from thadam_ros.errors import FatalError, TransientError
from thadam_ros.model.clock import Clock, SystemClock
from thadam_ros.model.event import EventBatch, Reject, Submission
from thadam_ros.model.position import Position
from thadam_ros.publish.buffers import Buffers
from thadam_ros.publish.cut import CutPolicy, CutRecord
from thadam_ros.publish.lane import Lane, LaneLimits
from thadam_ros.sinks.contract import PartitionKey, PublishUnit

DEADLINE_S = 30.0


@dataclass
class Store:
    """Keeps what was published under which cut; raises what it is told to, once each."""

    raises: list[BaseException] = field(default_factory=list)
    work_raises: list[BaseException] = field(default_factory=list)
    units: list[PublishUnit] = field(default_factory=list)
    attempts: list[PublishUnit] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    on_stamped: Callable[[], None] = lambda: None

    def open(self, stamped_cut: int) -> None:
        self.log.append("open")

    def publish(self, unit: PublishUnit) -> tuple[Reject, ...]:
        self.attempts.append(unit)
        if self.raises:
            raise self.raises.pop(0)
        self.units.append(unit)
        self.log.append("put")
        return ()

    def stamped(self, cut_no: int) -> None:
        self.stamps.append(cut_no)
        self.on_stamped()

    def work(self) -> bool:
        if self.work_raises:
            raise self.work_raises.pop(0)
        return False

    def abort(self) -> None:
        self.log.append("abort")

    def close(self) -> None:
        self.log.append("close")


@dataclass
class Rejects:
    """A staging that only counts."""

    log: list[str]
    raises: list[BaseException] = field(default_factory=list)
    kept: list[Reject] = field(default_factory=list)

    def append(self, rejects: tuple[Reject, ...]) -> int:
        if self.raises:
            raise self.raises.pop(0)
        self.log.append("reject")
        self.kept.extend(rejects)
        return len(rejects)


@dataclass
class Bench:
    """A lane with everything around it."""

    store: Store
    rejects: Rejects
    buffers: Buffers
    lane: Lane
    cuts: list[CutRecord]
    fatal: list[BaseException]
    commit_raises: list[BaseException]

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            self.lane.start()
            assert time.monotonic() < deadline, self.lane.statistics()
            threading.Event().wait(0.002)

    def submit(self, position: int, values: list[int], rejects: tuple[Reject, ...] = ()) -> None:
        rows = pa.RecordBatch.from_pydict({"x": pa.array(values, pa.int64())})
        batches = (EventBatch("d", rows),) if values else ()
        submission = Submission(
            Position(0, position), 7, 1, batches, rejects, b"state %d" % position
        )
        self.buffers.submit(submission, time.monotonic_ns())
        self.lane.notify()

    def published(self) -> list[int]:
        rows = [rows for unit in self.store.units for rows in unit.rows]
        return [x for batch in rows for x in batch.column("x").to_pylist()]


@pytest.fixture
def make_bench(request: pytest.FixtureRequest) -> Callable[..., Bench]:
    def make(
        *, max_age_ns: int = 0, rows_max: int = 10**9, draw: float = 0.0, clock: Clock | None = None
    ) -> Bench:
        store = Store()
        rejects = Rejects(store.log)
        buffers = Buffers(
            1 << 20, lambda batch: [(PartitionKey(batch.dataset, 0, True), batch.rows)]
        )
        cuts: list[CutRecord] = []
        fatal: list[BaseException] = []
        commit_raises: list[BaseException] = []

        def commit(cut: CutRecord) -> None:
            if commit_raises:
                raise commit_raises.pop(0)
            store.log.append("stamp")
            cuts.append(cut)

        lane = Lane(
            "test",
            driver=store,
            buffers=buffers,
            rejects=rejects,
            limits=LaneLimits(rows_max, 1 << 30, 1 << 20),
            policy=CutPolicy(max_age_ns, 1 << 30),
            commit=commit,
            lineage=lambda key, cut_no, boundary: {"cut_no": cut_no},
            clock=clock or SystemClock(),
            draw=lambda: draw,
            cut_no=0,
            on_settled=lambda: None,
            on_fatal=fatal.append,
        )
        request.addfinalizer(lambda: lane.stop(DEADLINE_S))
        return Bench(store, rejects, buffers, lane, cuts, fatal, commit_raises)

    return make


def _reject(position: int) -> Reject:
    return Reject(
        7, position, 0, "robot", "/a", "decode", "decode.truncated", "short", b"x", False, "d",
        0, -1, "cdr", "p/msg/T", "", True, "hash",
    )  # fmt: skip


def test_a_cut_stages_rejects_before_it_puts_and_stamps_last(
    make_bench: Callable[..., Bench],
) -> None:
    """The order on disk is rejects, rows, cursor."""
    bench = make_bench()
    bench.submit(3, [1, 2], (_reject(3),))
    bench.wait(lambda: bool(bench.cuts))
    assert bench.store.log == ["open", "reject", "put", "stamp"]
    assert bench.cuts == [CutRecord(1, Position(0, 3), 7, b"state 3")]
    assert bench.store.stamps == [1]


def test_a_cut_without_rows_still_moves_the_cursor(make_bench: Callable[..., Bench]) -> None:
    """Unmatched traffic must not pin the WAL."""
    bench = make_bench()
    bench.submit(9, [])
    bench.wait(lambda: bool(bench.cuts))
    assert bench.cuts[0].last == Position(0, 9)
    assert bench.store.units == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "error",
    [TransientError("later"), ValueError("bug"), OSError(28, "full"), SystemExit(3), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_a_publish_that_raises_loses_nothing_and_is_sent_again_as_the_same_unit(
    make_bench: Callable[..., Bench], error: BaseException
) -> None:
    """Whatever is raised, the rows stay, the cursor waits, the retry has the same rows."""
    bench = make_bench()
    bench.store.raises.append(error)
    bench.submit(1, [1, 2, 3])
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == [1, 2, 3]
    first, again = bench.store.attempts
    assert again is first
    assert bench.lane.statistics().errors == {type(error).__name__: 1}
    assert bench.lane.statistics().problem is None


def test_rows_that_came_while_a_unit_failed_do_not_change_it(
    make_bench: Callable[..., Bench],
) -> None:
    """The failed unit is sealed: later rows travel in a unit of their own."""
    bench = make_bench(max_age_ns=0)
    bench.submit(1, [1])
    bench.store.raises.extend([TransientError("a"), TransientError("b")])
    bench.wait(lambda: len(bench.store.attempts) >= 1)
    bench.submit(2, [2])
    bench.wait(lambda: bool(bench.cuts) and bench.cuts[-1].last == Position(0, 2))
    assert sorted(bench.published()) == [1, 2]
    assert bench.store.attempts[0].rows == bench.store.units[0].rows


def test_no_put_starts_while_rejects_cannot_be_staged(make_bench: Callable[..., Bench]) -> None:
    """A failing staging holds rows and cursor."""
    bench = make_bench()
    bench.rejects.raises.append(TransientError("full"))
    bench.submit(1, [1], (_reject(1),))
    bench.wait(lambda: bool(bench.cuts))
    assert bench.store.log == ["open", "reject", "put", "stamp"]
    assert len(bench.rejects.kept) == 1


def test_a_failed_stamp_is_tried_again_under_a_higher_number(
    make_bench: Callable[..., Bench],
) -> None:
    """Nobody knows which cursor a crash would have left, so the number is not reused."""
    bench = make_bench()
    bench.commit_raises.append(OSError(5, "fsync"))
    bench.submit(1, [1])
    bench.wait(lambda: bool(bench.cuts))
    assert [cut.cut_no for cut in bench.cuts] == [2]
    assert bench.published() == [1]


def test_a_full_partition_is_published_before_its_cut(make_bench: Callable[..., Bench]) -> None:
    """Size moves rows out of memory; only the cut moves the cursor."""
    bench = make_bench(max_age_ns=10**18, rows_max=3)
    bench.submit(1, [1, 2])
    bench.submit(2, [3])
    bench.wait(lambda: bool(bench.store.units))
    assert bench.cuts == []
    assert bench.store.units[0].cut_no == 1
    bench.lane.request_cut()
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == [1, 2, 3]


def test_a_failing_delivery_holds_back_neither_publishing_nor_stamping(
    make_bench: Callable[..., Bench],
) -> None:
    """Background work has a backoff and a problem of its own."""
    bench = make_bench()
    bench.store.work_raises.append(TransientError("target gone"))
    bench.wait(lambda: "TransientError" in bench.lane.statistics().errors)
    bench.submit(1, [1])
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == [1]


def test_a_fatal_error_ends_the_lane_and_is_reported_once(
    make_bench: Callable[..., Bench],
) -> None:
    """Rows stay in the WAL, nobody hammers a store that refused."""
    bench = make_bench()
    bench.store.raises.append(FatalError("wrong password"))
    bench.submit(1, [1])
    bench.wait(lambda: bool(bench.fatal))
    bench.wait(lambda: not bench.lane.statistics().alive)
    assert [str(error) for error in bench.fatal] == ["wrong password"]
    assert bench.cuts == []
    assert len(bench.store.attempts) == 1


def test_a_put_that_recovered_ends_the_problem_without_waiting_for_a_cut(
    make_bench: Callable[..., Bench],
) -> None:
    """Rows moved out by size work again: the lane says so, and rests instead of looking again."""
    bench = make_bench(max_age_ns=10**18, rows_max=2)
    bench.store.raises.append(TransientError("later"))
    bench.submit(1, [1, 2])
    bench.wait(lambda: bool(bench.store.units))
    bench.wait(lambda: bench.lane.statistics().problem is None)
    assert bench.cuts == []
    assert bench.lane._pause_s() > 0


def test_a_cut_that_nothing_bounds_yet_is_not_waited_for_in_a_circle(
    make_bench: Callable[..., Bench],
) -> None:
    """A chain that stopped between two states must not keep the lane busy."""
    bench = make_bench(max_age_ns=1)
    bench.buffers.submit(Submission(Position(0, 1), 7, 1, (), (), None), now_ns=0)
    bench.lane._work_waits = False
    assert bench.lane._pause_s() > 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_died_waits_its_backoff_before_it_tries_again(
    make_bench: Callable[..., Bench],
) -> None:
    """The next thread comes at once, its next try does not."""
    bench = make_bench(draw=0.999)
    bench.store.raises.append(SystemExit(3))
    bench.submit(1, [1])
    bench.wait(lambda: bool(bench.store.attempts))
    bench.wait(lambda: bench.lane.statistics().respawns == 1)
    assert bench.lane.statistics().retry_at_ns > 0
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == [1]


def test_a_bug_in_delivery_holds_back_neither_publishing_nor_stamping(
    make_bench: Callable[..., Bench],
) -> None:
    """Whatever background work raises has the backoff of background work."""

    class StandingClock(SystemClock):
        now_ns = SystemClock().monotonic_ns()

        def monotonic_ns(self) -> int:
            return self.now_ns

    bench = make_bench(draw=0.999, clock=StandingClock())
    bench.store.work_raises.append(ZeroDivisionError("bug"))
    bench.wait(lambda: "ZeroDivisionError" in bench.lane.statistics().errors)
    assert isinstance(bench.lane.statistics().problem, ZeroDivisionError)
    bench.submit(1, [1])
    bench.lane.request_cut()
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == [1]


def test_a_lane_is_not_idle_between_a_stamp_and_its_delivery(
    make_bench: Callable[..., Bench],
) -> None:
    """A drain that asked in between would end before the last files are visible."""
    bench = make_bench()
    bench.wait(lambda: bench.lane.idle())
    seen: list[bool] = []
    bench.store.on_stamped = lambda: seen.append(bench.lane.idle())
    bench.submit(1, [1])
    bench.wait(lambda: bool(bench.cuts))
    bench.wait(lambda: bench.lane.idle())
    assert seen == [False]


def test_a_flood_of_rejects_without_bytes_is_staged_before_its_cut(
    make_bench: Callable[..., Bench],
) -> None:
    """Memory is bounded by what rejects take there, not by their payloads."""
    bench = make_bench(max_age_ns=10**18)
    empty = dataclasses.replace(_reject(1), raw=b"")
    bench.submit(1, [], (empty,) * 40_000)
    bench.wait(lambda: len(bench.rejects.kept) == 40_000)
    assert bench.cuts == []


def test_rows_that_trickle_in_wait_in_few_batches_and_are_published_once(
    make_bench: Callable[..., Bench],
) -> None:
    """Memory follows rows, not submissions, however long a cut is away."""
    bench = make_bench(max_age_ns=10**18)
    for position in range(500):
        bench.submit(position, [position])

    def batches() -> int:
        boundary = bench.buffers.boundary()
        assert boundary is not None
        bench.lane.notify()
        return sum(len(view.rows) for view in bench.buffers.partitions(boundary))

    bench.wait(lambda: batches() < 100)
    bench.lane.request_cut()
    bench.wait(lambda: bool(bench.cuts))
    assert bench.published() == list(range(500))


def test_a_unit_that_failed_is_not_laid_together_with_later_rows(
    make_bench: Callable[..., Bench],
) -> None:
    """A sealed unit is sent again as it was, though many small batches follow it."""
    bench = make_bench(max_age_ns=10**18, rows_max=100)
    bench.store.raises.extend([TransientError("later")] * 3)
    for position in range(100):
        bench.submit(position, [position])
    bench.wait(lambda: bool(bench.store.attempts))
    for position in range(100, 300):
        bench.submit(position, [position])
    bench.lane.request_cut()
    bench.wait(lambda: bool(bench.cuts))
    assert sorted(bench.published()) == list(range(300))
    first = bench.store.attempts[0]
    assert all(unit is first for unit in bench.store.attempts[:4])


def test_pressure_takes_the_largest_partitions_until_there_is_room(
    make_bench: Callable[..., Bench],
) -> None:
    """Many partitions of equal size do not hold the chain back one by one."""
    bench = make_bench(max_age_ns=10**18)
    rows = pa.RecordBatch.from_pydict({"x": pa.array(range(1 << 13), pa.int64())})
    batches = tuple(EventBatch(f"d{n}", rows.slice(n)) for n in range(16))
    bench.buffers.submit(
        Submission(Position(0, 0), 7, 1, batches, (), b"state"), time.monotonic_ns()
    )
    bench.lane.start()
    bench.wait(lambda: bool(bench.store.units))
    bench.wait(lambda: bench.buffers.size_bytes() < 0.75 * (1 << 20))
    # The largest first, and no more than needed.
    assert [unit.key.dataset for unit in bench.store.units] == ["d0", "d1", "d2", "d3", "d4"]
