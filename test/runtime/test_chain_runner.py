# SPDX-License-Identifier: Apache-2.0
"""Promises of the runner around one chain: places are kept, faults are shown, nothing leaks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import thadam_ros.runtime.chain_runner as runner_module
from thadam_ros.errors import FatalError, FormatError, LockHeldError
from thadam_ros.model.clock import Clock, SystemClock
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.model.states import State
from thadam_ros.runtime.chain_runner import ChainRunner, StepResult
from thadam_ros.runtime.loading import load_text
from thadam_ros.sinks.parquet.driver import ParquetDriver
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem
from thadam_ros.storage.lock import DirectoryLock
from thadam_ros.testing.bags import BagMessage, write_wal
from thadam_ros.testing.edge_child import TYPE_NAME, encode
from thadam_ros.wal.mark import load_mark
from thadam_ros.wal.reader import WalReader

DEADLINE_S = 60.0
DOCUMENT = """
schema: 1
edge: {data_dir: $(env TEST_DIR)/data, clock: always_synced}
sources: {robot: {type: ros2}}
datasets:
  numbers:
    match: {source: robot, topics: [/numbers]}
    type: std_msgs/msg/UInt64
    fields: {data: /data}
sinks:
  lake: {type: parquet, url: $(env TEST_DIR)/lake, start: $(env START), rotation: {max_age: 1h}}
"""

MakeRunner = Callable[..., ChainRunner]


class ManualClock(SystemClock):
    """A monotonic clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def make_runner(tmp_path: Path) -> Iterator[MakeRunner]:
    made: list[ChainRunner] = []

    def make(
        *,
        start: str = "earliest",
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        draw: float = 0.0,
        fatal: list[BaseException] | None = None,
    ) -> ChainRunner:
        loaded = load_text(DOCUMENT, {"TEST_DIR": str(tmp_path), "START": start})
        runner = ChainRunner(
            loaded.config.sinks["lake"],
            loaded,
            fs=fs or OsFileSystem(),
            clock=clock or SystemClock(),
            on_fatal=([] if fatal is None else fatal).append,
            draw=lambda: draw,
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close(0.0)


def _write(folder: Path, numbers: range) -> None:
    topic = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition="uint64 data")
    messages = [BagMessage(topic, 1_700_000_000_000_000_000 + n, encode(n)) for n in numbers]
    write_wal(str(folder / "data" / "wal"), messages, records_per_frame=10)


def _numbers(folder: Path) -> list[int]:
    found: list[int] = []
    for path in (folder / "lake").rglob("*.parquet"):
        found.extend(pq.ParquetFile(path).read(["data"]).column("data").to_pylist())
    return sorted(found)


def _ignore() -> None:
    """Nobody needs to be woken: tests step by themselves."""


def _step_until(runner: ChainRunner, wanted: StepResult) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while runner.step() is not wanted:
        assert time.monotonic() < deadline, runner.statistics()


@pytest.mark.parametrize("wal_exists", [True, False], ids=["wal", "no wal yet"])
def test_a_chain_that_starts_at_latest_keeps_its_place_before_its_first_stamp(
    tmp_path: Path, make_runner: MakeRunner, wal_exists: bool
) -> None:
    """What became durable after the first start is delivered, however that start ended."""
    if wal_exists:
        _write(tmp_path, range(10))
    first = make_runner(start="latest")
    first.open(_ignore)
    first.close(0.0)
    _write(tmp_path, range(10, 20))
    second = make_runner(start="latest")
    second.open(_ignore)
    assert second.close(DEADLINE_S)
    assert _numbers(tmp_path) == list(range(10, 20))


def test_a_rebuilt_chain_that_starts_at_latest_reads_again_what_it_had_not_stamped(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panic before the first cut skips nothing."""
    _write(tmp_path, range(10))
    runner = make_runner(start="latest")
    runner.open(_ignore)
    _write(tmp_path, range(10, 20))
    _step_until(runner, StepResult.PROGRESS)

    def broken(frames_max: int, bytes_max: int) -> list[object]:
        raise OSError(5, "bad sector")

    monkeypatch.setattr(runner._reader, "read", broken)
    assert runner.step() is StepResult.NOT_READY
    _step_until(runner, StepResult.IDLE)
    assert runner.close(DEADLINE_S)
    assert _numbers(tmp_path) == list(range(10, 20))


def test_files_carry_the_epoch_of_a_wal_that_came_after_the_chain(
    tmp_path: Path, make_runner: MakeRunner
) -> None:
    """A chain that is opened before ``thadam`` names its objects like any other."""
    runner = make_runner()
    runner.open(_ignore)
    assert runner.step() is StepResult.IDLE
    _write(tmp_path, range(10))
    _step_until(runner, StepResult.PROGRESS)
    assert runner.close(DEADLINE_S)
    mark = load_mark(OsFileSystem(), str(tmp_path / "data" / "wal"))
    assert mark is not None
    names = [path.name for path in (tmp_path / "lake").rglob("*.parquet")]
    assert [name.split("-")[1] for name in names] == [str(mark.epoch)]


class FailingBeyond(OsFileSystem):
    """A disk with a bad spot at the end of the WAL's newest segment."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bad: set[int] = set()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        self.bad.discard(fd)
        if path.endswith(".wal"):
            self.bad.add(fd)
        return fd

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        if fd in self.bad and offset + size > self.limit:
            raise OSError(5, "bad sector")
        return super().pread(fd, size, offset)


def test_a_chain_that_fails_at_one_frame_for_long_does_not_storm(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames before the failing one work each time, and the pauses grow all the same."""
    _write(tmp_path, range(100))
    monkeypatch.setattr(runner_module, "STEP_FRAMES_MAX", 1)
    clock = ManualClock()
    runner = make_runner(clock=clock, draw=0.999)
    runner.open(_ignore)
    original = runner_module.Chain.step

    def step(chain: object, frames: list[object], **more: object) -> object:
        if frames[0].position == 5:  # type: ignore[attr-defined]
            raise MemoryError
        return original(chain, frames, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(runner_module.Chain, "step", step)
    for _ in range(1200):
        runner.step()
        clock.now_ns += 100_000_000
    panics = int(runner.statistics()[0].details["panics"])
    assert 2 <= panics <= 12


def test_a_file_of_another_version_makes_the_chain_failed_and_is_reported_once(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs a person is not tried in a circle."""
    fatal: list[BaseException] = []
    runner = make_runner(fatal=fatal)
    runner.open(_ignore)
    error = FormatError("segment has version 9, this software reads 1")

    def refuse(frames_max: int, bytes_max: int) -> list[object]:
        raise error

    monkeypatch.setattr(runner._reader, "read", refuse)
    assert [runner.step() for _ in range(3)] == [StepResult.IDLE] * 3
    assert fatal == [error]
    state = runner.statistics()[0].state
    assert (state.state, state.reason_code) == (State.FAILED, "format_version")


def test_statistics_may_be_asked_by_any_threads_while_the_chain_steps_and_closes(
    tmp_path: Path, make_runner: MakeRunner
) -> None:
    """Neither side disturbs the other."""
    _write(tmp_path, range(2000))
    runner = make_runner()
    stop = threading.Event()
    errors: list[BaseException] = []

    def ask() -> None:
        while not stop.is_set():
            try:
                runner.statistics()
            except BaseException as exc:
                errors.append(exc)
                return

    threads = [threading.Thread(target=ask) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(15):
            runner.open(_ignore)
            for _ in range(20):
                runner.step()
            runner.close(0.0)
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert runner._panics == 0


def test_statistics_of_a_log_that_cannot_be_read_say_so(
    tmp_path: Path, make_runner: MakeRunner
) -> None:
    """The status goes on when the disk does not."""
    _write(tmp_path, range(10))
    runner = make_runner(fs=FailingBeyond(0))
    runner.open(_ignore)
    chain = runner.statistics()[0]
    assert "bad sector" in chain.details["backlog_error"]


class Hanging:
    """Stands in for a publish that waits for a dead network share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

        def publish(driver: ParquetDriver, unit: object) -> tuple[()]:
            self.entered.set()
            self.go_on.wait(DEADLINE_S)
            raise OSError(5, "connection lost")

        monkeypatch.setattr(ParquetDriver, "publish", publish)


def test_a_lane_that_hangs_keeps_its_staging_and_its_lock_until_it_ends(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is closed under a thread that still runs, and nothing is held for ever."""
    monkeypatch.setattr(runner_module, "LANE_JOIN_S", 0.05)
    hanging = Hanging(monkeypatch)
    _write(tmp_path, range(10))
    runner = make_runner()
    closed: list[bool] = []
    runner.open(_ignore)
    try:
        original = runner._staging.close
        monkeypatch.setattr(runner._staging, "close", lambda: (closed.append(True), original())[1])
        _step_until(runner, StepResult.IDLE)
        runner._lane.request_cut()
        assert hanging.entered.wait(DEADLINE_S)
        runner.close(0.0)
        assert not runner.joined
        assert closed == []
        with pytest.raises(LockHeldError):
            DirectoryLock(runner.directory, "another")
    finally:
        hanging.go_on.set()
    deadline = time.monotonic() + DEADLINE_S
    while not runner.joined:
        runner.close(0.0)
        assert time.monotonic() < deadline
    assert closed
    DirectoryLock(runner.directory, "another").release()


def test_a_drain_ends_when_the_store_refuses(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting longer for a store that needs a person would delay the shutdown for nothing."""

    def refuse(driver: ParquetDriver, unit: object) -> tuple[()]:
        raise FatalError("wrong password")

    monkeypatch.setattr(ParquetDriver, "publish", refuse)
    _write(tmp_path, range(10))
    # The clock stands still: the time for the drain is never over.
    runner = make_runner(clock=ManualClock())
    runner.open(_ignore)
    drained: list[bool] = []
    thread = threading.Thread(target=lambda: drained.append(runner.close(1.0)), daemon=True)
    thread.start()
    thread.join(DEADLINE_S / 3)
    assert drained == [False]


def test_states_that_take_long_to_make_are_made_less_often(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large dedup window must not cost its whole size at every commit of a slow topic."""
    _write(tmp_path, range(600))
    reader = WalReader(str(tmp_path / "data" / "wal"), fs=OsFileSystem())
    frames = reader.read(1000, 1 << 30)
    reader.close()
    assert len(frames) == 60
    clock = ManualClock()
    runner = make_runner(clock=clock)
    runner.open(_ignore)
    turns: list[list[object]] = [turn for frame in frames for turn in ([frame], [])]
    monkeypatch.setattr(runner._reader, "read", lambda *_: turns.pop(0) if turns else [])
    original, made = runner_module.Chain.snapshot, []

    def slow(chain: object) -> bytes:
        made.append(clock.now_ns)
        clock.now_ns += 100_000_000
        return original(chain)  # type: ignore[arg-type]

    monkeypatch.setattr(runner_module.Chain, "snapshot", slow)
    while turns:
        runner.step()
        clock.now_ns += 100_000_000
    assert 2 <= len(made) <= 20
    clock.now_ns += 2_000_000_000
    runner.step()
    boundary = runner._buffers.boundary()
    assert boundary is not None
    assert boundary.last.frame == 59


def test_counters_go_on_over_a_rebuild(
    tmp_path: Path, make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stamped before a panic stays counted."""
    _write(tmp_path, range(30))
    runner = make_runner()
    runner.open(_ignore)
    _step_until(runner, StepResult.IDLE)
    runner._lane.request_cut()
    deadline = time.monotonic() + DEADLINE_S
    while runner.cursor.cut_no == 0:
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)

    def broken(frames_max: int, bytes_max: int) -> list[object]:
        raise OSError(5, "bad sector")

    monkeypatch.setattr(runner._reader, "read", broken)
    assert runner.step() is StepResult.NOT_READY
    _step_until(runner, StepResult.IDLE)
    statistics = runner.statistics()[0]
    assert (statistics.restarts, statistics.received, statistics.delivered) == (1, 30, 30)


def test_damaged_staged_rejects_degrade_the_quarantine_and_say_where(
    tmp_path: Path, make_runner: MakeRunner
) -> None:
    """What was skipped is no secret: state, reason and the count of what is left say so."""
    topic = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition="uint64 data")
    short = [BagMessage(topic, 1_700_000_000_000_000_000 + n, encode(n)[:7]) for n in range(3)]
    write_wal(str(tmp_path / "data" / "wal"), short)
    runner = make_runner()
    runner.open(_ignore)
    _step_until(runner, StepResult.IDLE)
    assert runner.close(DEADLINE_S)
    runner.open(_ignore)
    whole = runner.statistics()[1]
    assert (whole.state.state, whole.rejected) == (State.RUNNING, 3)
    runner.close(0.0)

    (segment,) = _staged(runner)
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    segment.write_bytes(bytes(raw))
    runner.open(_ignore)
    damaged = runner.statistics()[1]
    assert damaged.state.state is State.DEGRADED
    assert damaged.state.reason_code == "quarantine_damage"
    assert str(segment.parent) in damaged.state.reason
    assert damaged.rejected == 2
    runner.close(0.0)


def _staged(runner: ChainRunner) -> list[Path]:
    return sorted((Path(runner.directory) / "staging").iterdir())
