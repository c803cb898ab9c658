# SPDX-License-Identifier: Apache-2.0
"""A whole edge inside a budget: who keeps segments, what yields, and that all goes on by itself."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from thadam_ros.chain.cursor import Cursor, CursorStore, read_cursor
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.model.states import State
from thadam_ros.runtime.chain_runner import ChainRunner, StepResult
from thadam_ros.runtime.edge import Edge, keep_wal, open_wal
from thadam_ros.runtime.loading import LoadedConfig, load_text
from thadam_ros.runtime.retention import WalRetention
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem
from thadam_ros.testing.edge_child import TYPE_NAME, encode
from thadam_ros.testing.wal import FaultyFileSystem
from thadam_ros.wal.writer import WalWriter

DEADLINE_S = 60.0
TOPIC = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition="uint64 data")
#: Numbers of one batch, and so of one frame: about 26 kB.
BATCH = 500
DOCUMENT = """
schema: 1
edge: {data_dir: $(env TEST_DIR)/data, clock: always_synced}
wal: {commit_interval: 5ms, budget: 1MiB, min_free: 0B, segment_bytes: 64KiB,
      replay_window: 0B, when_full: $(env WHEN_FULL)}
sources: {robot: {type: ros2}}
datasets:
  numbers:
    match: {source: robot, topics: [/numbers]}
    type: std_msgs/msg/UInt64
    fields: {data: /data}
sinks:
  lake: {type: parquet, url: $(env TEST_DIR)/lake, rotation: {max_age: 30ms}}
  other: {type: parquet, url: $(env TEST_DIR)/other, start: $(env START),
          rotation: {max_age: 30ms}}
"""


def load(folder: Path, when_full: str = "stop_capture", start: str = "earliest") -> LoadedConfig:
    return load_text(DOCUMENT, {"TEST_DIR": str(folder), "WHEN_FULL": when_full, "START": start})


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.005)


def append(wal: WalWriter, frame: int) -> bool:
    """Append the numbers of one frame and make them durable; False when refused."""
    ref = wal.declare_topic(TOPIC)
    numbers = range(frame * BATCH, (frame + 1) * BATCH)
    batch = SourceBatch(
        "robot",
        topic_refs=[ref] * BATCH,
        ingest_times_ns=[1_700_000_000_000_000_000 + n for n in numbers],
        payloads=[encode(n) for n in numbers],
        source_timestamps_ns=[0] * BATCH,
        sequences=[0] * BATCH,
        publisher_refs=[0] * BATCH,
    )
    if not wal.append(batch):
        return False
    assert wal.flush(DEADLINE_S)
    return True


def append_until_accepted(wal: WalWriter, frame: int) -> None:
    wait(lambda: append(wal, frame))


def frames_of(folder: Path) -> list[int]:
    """Return the frames whose numbers readers see, each of them whole and once."""
    found: list[int] = []
    for path in folder.rglob("*.parquet"):
        found.extend(pq.ParquetFile(path).read(["data"]).column("data").to_pylist())
    found.sort()
    frames = sorted({number // BATCH for number in found})
    assert found == [n for f in frames for n in range(f * BATCH, (f + 1) * BATCH)]
    return frames


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "data" / "wal").glob("*.wal"))


def lineages(folder: Path) -> list[dict[str, object]]:
    return [
        orjson.loads(pq.ParquetFile(path).metadata.metadata[b"thadam.lineage"])
        for path in folder.rglob("*.parquet")
    ]


def make_runner(loaded: LoadedConfig, fs: FileSystem | None = None) -> ChainRunner:
    def fail(exc: BaseException) -> None:
        raise exc

    return ChainRunner(
        loaded.config.sinks["other"],
        loaded,
        fs=fs or OsFileSystem(),
        clock=SystemClock(),
        on_fatal=fail,
    )


def deliver_other(loaded: LoadedConfig) -> dict[str, str]:
    """Run the chain of ``other`` as a process of its own would; return its details."""
    runner = make_runner(loaded)
    runner.open(lambda: None)
    wait(lambda: runner.step() is StepResult.IDLE)
    details = dict(runner.statistics()[0].details)
    assert runner.close(DEADLINE_S)
    return details


def test_far_more_than_the_budget_passes_when_the_chains_keep_up(tmp_path: Path) -> None:
    """Segments go while the edge runs; every number accepted is seen once in both sinks."""
    edge = Edge(load(tmp_path))
    edge.start()
    assert edge.wal is not None
    for frame in range(150):
        append_until_accepted(edge.wal, frame)
    statistics = edge.wal.statistics()
    assert statistics.bytes > 3 << 20
    assert statistics.wal_bytes <= statistics.budget_bytes + (8 << 10)
    assert edge.retention is not None
    wait(lambda: len(segments(tmp_path)) == 1)
    retained = edge.retention.statistics()
    assert (retained.errors, retained.log.dropped_segments) == (0, 0)
    assert edge.close(DEADLINE_S)
    assert frames_of(tmp_path / "lake") == list(range(150))
    assert frames_of(tmp_path / "other") == list(range(150))


def test_stop_capture_keeps_the_oldest_for_a_slow_sink_and_resumes_without_a_restart(
    tmp_path: Path,
) -> None:
    """The WAL fills, messages are refused and counted; when the sink catches up it goes on."""
    loaded = load(tmp_path)
    edge = Edge(loaded, sinks=("lake",))
    edge.start()
    assert edge.wal is not None
    accepted = 0
    while append(edge.wal, accepted):
        accepted += 1
    wait(lambda: frames_of(tmp_path / "lake") == list(range(accepted)))
    assert edge.retention is not None
    retention = edge.retention
    wait(lambda: retention.statistics().log.pinned_by == ("other",))
    assert not append(edge.wal, accepted)
    statistics = edge.wal.statistics()
    assert statistics.held_up_by == "budget"
    assert statistics.refused_by_cause == {"budget": 2 * BATCH}
    assert statistics.deleted_segments == 0
    deliver_other(loaded)
    assert frames_of(tmp_path / "other") == list(range(accepted))
    wal = edge.wal
    wait(lambda: not wal.statistics().held_up_by)
    assert append(edge.wal, accepted)
    wait(lambda: len(segments(tmp_path)) == 2)
    assert edge.close(DEADLINE_S)
    assert frames_of(tmp_path / "lake") == list(range(accepted + 1))


def test_drop_oldest_keeps_the_newest_and_the_chain_tells_of_its_gap(tmp_path: Path) -> None:
    """Capture refuses nothing for good; what the chain missed stands in counters and lineage."""
    loaded = load(tmp_path, "drop_oldest")
    with Edge(loaded) as edge:
        assert edge.wal is not None
        append_until_accepted(edge.wal, 0)
    assert frames_of(tmp_path / "other") == [0]
    edge = Edge(loaded, sinks=("lake",))
    edge.start()
    assert edge.wal is not None
    assert edge.retention is not None
    for frame in range(1, 120):
        append_until_accepted(edge.wal, frame)
    wait(lambda: frames_of(tmp_path / "lake") == list(range(120)))
    retention = edge.retention
    drops = retention.statistics().log.drops
    assert set(drops) == {"other"}
    (lost,) = drops["other"].ranges
    assert lost.first == Position(0, 1)
    assert drops["other"].frames == lost.last.frame
    assert edge.close(DEADLINE_S)
    details = deliver_other(loaded)
    assert frames_of(tmp_path / "other") == [0, *range(lost.last.frame + 1, 120)]
    assert len(frames_of(tmp_path / "other")) > 20
    assert (details["gaps"], details["gap_frames"]) == ("1", str(lost.last.frame))
    gaps = [document["gaps"] for document in lineages(tmp_path / "other") if "gaps" in document]
    assert gaps
    assert all(gap == [[list(lost.first), list(lost.last)]] for gap in gaps)
    assert not any("gaps" in document for document in lineages(tmp_path / "lake"))


def test_a_chain_that_never_stamped_is_told_of_a_lost_beginning(tmp_path: Path) -> None:
    """Its first start is its place: what went after that is a gap, not a later beginning."""
    loaded = load(tmp_path)
    wal = open_wal(loaded, fs=OsFileSystem(), clock=SystemClock())
    for frame in range(10):
        assert append(wal, frame)
    wal.close()
    runner = make_runner(loaded)
    runner.open(lambda: None)
    runner.close(0.0)
    first, second = segments(tmp_path)[:2]
    (tmp_path / "data" / "wal" / first).unlink()
    runner = make_runner(loaded)
    runner.open(lambda: None)
    wait(lambda: runner.step() is StepResult.IDLE)
    chain = runner.statistics()[0]
    assert (chain.state.state, chain.state.reason_code) == (State.DEGRADED, "wal_gap")
    assert int(chain.details["gap_frames"]) == int(second[-24:-4])
    runner.close(0.0)


def test_a_new_sink_begins_with_what_there_is_and_has_no_gap(tmp_path: Path) -> None:
    """start: earliest means the oldest segment at its first start."""
    loaded = load(tmp_path)
    wal = open_wal(loaded, fs=OsFileSystem(), clock=SystemClock())
    for frame in range(10):
        assert append(wal, frame)
    wal.close()
    (tmp_path / "data" / "wal" / segments(tmp_path)[0]).unlink()
    oldest = int(segments(tmp_path)[0][-24:-4])
    details = deliver_other(loaded)
    assert details["gaps"] == "0"
    assert frames_of(tmp_path / "other") == list(range(oldest, 10))


def _retention(
    loaded: LoadedConfig, wal: WalWriter, fs: FileSystem, reports: list[str]
) -> WalRetention:
    return WalRetention(loaded, wal, fs=fs, report=reports.append)


def _stamp(folder: Path, sink: str, frame: int) -> None:
    directory = folder / "data" / "chains" / sink
    directory.mkdir(parents=True, exist_ok=True)
    CursorStore(str(directory), OsFileSystem()).commit(
        Cursor(Position(0, frame), 1, frame + 1), b"state"
    )


@pytest.fixture
def full_wal(tmp_path: Path) -> Iterator[tuple[LoadedConfig, WalWriter]]:
    """A writer with ten frames in several segments, of a configuration with two sinks."""
    loaded = load(tmp_path)
    wal = open_wal(loaded, fs=OsFileSystem(), clock=SystemClock())
    for frame in range(10):
        assert append(wal, frame)
    yield loaded, wal
    wal.close()


def test_a_removed_sink_keeps_nothing_and_is_reported_once(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter]
) -> None:
    """One sentence with its range; a sink that was done is no news."""
    loaded, wal = full_wal
    for sink, frame in (("lake", 5), ("other", 9), ("gone", 2), ("finished", 9)):
        _stamp(tmp_path, sink, frame)
    (tmp_path / "data" / "chains" / "notes.txt").write_text("no chain")
    reports: list[str] = []
    retention = _retention(loaded, wal, OsFileSystem(), reports)
    for frame in (5, 7, 9):
        _stamp(tmp_path, "lake", frame)
        retention.run_once()
    assert len(reports) == 1
    assert "'gone'" in reports[0]
    assert "0:2 up to 0:9" in reports[0]
    assert len(segments(tmp_path)) == 1
    assert [sink.name for sink in retention.statistics().removed_sinks] == ["gone"]


@pytest.mark.parametrize("cursor", [None, b"garbage"], ids=["never started", "damaged"])
def test_a_configured_sink_whose_place_is_unknown_keeps_everything(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter], cursor: bytes | None
) -> None:
    """It may still need the first frame."""
    loaded, wal = full_wal
    _stamp(tmp_path, "lake", 9)
    if cursor is not None:
        (tmp_path / "data" / "chains" / "other").mkdir()
        (tmp_path / "data" / "chains" / "other" / "cursor").write_bytes(cursor)
    retention = _retention(loaded, wal, OsFileSystem(), [])
    before = segments(tmp_path)
    assert not retention.run_once()
    assert segments(tmp_path) == before
    statistics = retention.statistics()
    assert (statistics.log.pinned_by, statistics.errors) == (("other",), 0)


def test_a_sink_that_is_to_start_with_what_is_new_keeps_nothing_before_it_started(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter]
) -> None:
    """start: latest owes it nothing of the past."""
    _, wal = full_wal
    _stamp(tmp_path, "lake", 9)
    retention = _retention(load(tmp_path, start="latest"), wal, OsFileSystem(), [])
    retention.run_once()
    assert len(segments(tmp_path)) == 1


def test_a_cursor_is_made_durable_before_a_segment_goes_for_it(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter]
) -> None:
    """A rename that only the page cache knows must not cost what the older cursor needs."""
    loaded, wal = full_wal
    _stamp(tmp_path, "lake", 9)
    _stamp(tmp_path, "other", 9)
    fs = FaultyFileSystem()
    retention = _retention(loaded, wal, fs, [])
    retention.run_once()
    steps = [(call, os.path.basename(path)) for call, path in fs.calls]
    first_unlink = next(i for i, (call, _) in enumerate(steps) if call == "unlink")
    for sink in ("lake", "other"):
        assert ("fsync_dir", sink) in steps[:first_unlink]


def test_a_cursor_that_cannot_be_made_durable_costs_no_segment(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter]
) -> None:
    """The pass fails, is counted with its reason, and the next one works."""
    loaded, wal = full_wal
    _stamp(tmp_path, "lake", 9)
    _stamp(tmp_path, "other", 9)
    fs = FaultyFileSystem()
    retention = _retention(loaded, wal, fs, [])
    before = segments(tmp_path)
    fs.fail("fsync_dir", errno.EIO, path="chains")
    assert not retention.run_once()
    assert segments(tmp_path) == before
    statistics = retention.statistics()
    assert statistics.errors == 1
    assert "Input/output error" in statistics.last_error
    retention.run_once()
    assert len(segments(tmp_path)) == 1
    assert retention.statistics().last_error == ""


def test_the_thread_works_when_the_writer_is_short_and_ends_with_close(
    tmp_path: Path, full_wal: tuple[LoadedConfig, WalWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for its period when capture needs room."""
    monkeypatch.setattr("thadam_ros.runtime.retention.PERIOD_S", 3600.0)
    loaded, wal = full_wal
    retention = keep_wal(loaded, wal, fs=OsFileSystem())
    try:
        wait(lambda: retention.statistics().log.passes >= 1)
        _stamp(tmp_path, "lake", 9)
        _stamp(tmp_path, "other", 9)
        frame = 10
        while append(wal, frame):
            frame += 1
        wait(lambda: retention.statistics().log.deleted_segments > 0)
        wait(lambda: append(wal, frame))
    finally:
        retention.close()
        retention.close()
    assert not [t for t in threading.enumerate() if t.name == "wal-retention"]


def test_a_chain_cuts_early_when_the_wal_is_short_of_space(tmp_path: Path) -> None:
    """Above 80 % of the budget a cut does not wait for its age, so that segments can go.

    Nothing here becomes a row: neither rows nor bytes make a cut due, and the age is an hour.
    """
    text = DOCUMENT.replace("max_age: 30ms", "max_age: 1h").replace("[/numbers]", "[/others]")
    variables = {"TEST_DIR": str(tmp_path), "WHEN_FULL": "stop_capture", "START": "latest"}
    edge = Edge(load_text(text, variables), sinks=("lake",))
    edge.start()
    assert edge.wal is not None
    chain = str(tmp_path / "data" / "chains" / "lake")
    for frame in range(25):
        append_until_accepted(edge.wal, frame)
    cursor = read_cursor(chain, OsFileSystem())
    assert cursor is not None
    assert cursor.position == BEFORE_ALL, "it was not short of space yet"
    for frame in range(25, 60):
        append_until_accepted(edge.wal, frame)
    cursor = read_cursor(chain, OsFileSystem())
    assert cursor is not None
    assert cursor.position > BEFORE_ALL
    assert edge.wal.statistics().deleted_segments > 0
    assert edge.close(DEADLINE_S)
