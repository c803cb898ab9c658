# SPDX-License-Identifier: Apache-2.0
"""The writer: group commit, frames, limits, and a disk that is full or fails."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from thadam_ros.errors import LockHeldError
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import FaultyFileSystem, list_valid_frames, make_batch
from thadam_ros.wal.layout import SEGMENT_HEADER_BYTES

from .conftest import OpenWriter
from .logs import read_all

DEADLINE_S = 30.0
#: An interval that no test lives to see the end of.
NEVER_NS = 3_600_000_000_000


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def payloads_of(directory: str) -> list[bytes]:
    return [record.payload for frame in list_valid_frames(directory) for record in frame.records]


def segment_sizes(directory: str) -> list[int]:
    return [path.stat().st_size for path in sorted(Path(directory).glob("*.wal"))]


def test_a_batch_becomes_durable_within_the_commit_interval(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Nobody flushes: the interval does."""
    writer = open_writer()
    assert writer.durable == BEFORE_ALL
    assert writer.append(make_batch([b"one", b"two"]))
    wait_until(lambda: writer.durable == Position(0, 0))
    assert payloads_of(wal_dir) == [b"one", b"two"]


def test_batches_of_one_source_that_wait_together_become_one_frame(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Two sources, three batches each, one commit: two frames, each in its source's order."""
    writer = open_writer(commit_interval_ns=NEVER_NS)
    for index in range(3):
        for source in ("a", "b"):
            writer.append(make_batch([f"{source}{index}".encode()], source_id=source))
    assert writer.flush(DEADLINE_S)
    frames = list_valid_frames(wal_dir)
    assert [(f.source, [r.payload for r in f.records]) for f in frames] == [
        ("a", [b"a0", b"a1", b"a2"]),
        ("b", [b"b0", b"b1", b"b2"]),
    ]
    assert writer.statistics().fsyncs == 1


def test_a_change_of_the_clock_state_begins_a_new_frame(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """clock_synced is that of the moment of acceptance, and order is kept."""
    synced = iter([False, True, True, False])
    writer = open_writer(commit_interval_ns=NEVER_NS, clock_synced=lambda: next(synced))
    for index in range(4):
        writer.append(make_batch([bytes([index])]))
    assert writer.flush(DEADLINE_S)
    frames = list_valid_frames(wal_dir)
    assert [f.clock_synced for f in frames] == [False, True, False]
    assert [len(f.records) for f in frames] == [1, 2, 1]
    assert payloads_of(wal_dir) == [b"\0", b"\1", b"\2", b"\3"]


def test_frames_stay_under_commit_bytes_and_a_larger_record_has_its_own(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """One large batch is cut between records; nothing is cut inside one."""
    writer = open_writer(commit_interval_ns=NEVER_NS, commit_bytes=10_000)
    payloads = [bytes([index]) * 3_000 for index in range(8)]
    payloads[3] = b"L" * 40_000
    writer.append(make_batch(payloads, attributes={0: {"k": "0"}, 5: {"k": "5"}}))
    assert writer.flush(DEADLINE_S)
    frames = list_valid_frames(wal_dir)
    assert [[len(r.payload) for r in f.records] for f in frames] == [
        [3_000] * 3,
        [40_000],
        [3_000] * 3,
        [3_000],
    ]
    assert payloads_of(wal_dir) == payloads
    records = [record for frame in frames for record in frame.records]
    assert {i: r.attributes for i, r in enumerate(records) if r.attributes} == {
        0: {"k": "0"},
        5: {"k": "5"},
    }


def test_commit_each_syncs_every_batch(open_writer: OpenWriter, wal_dir: str) -> None:
    """Five batches, five frames, five syncs, whatever the interval says."""
    writer = open_writer(commit="each", commit_interval_ns=NEVER_NS)
    for index in range(5):
        writer.append(make_batch([bytes([index])]))
    wait_until(lambda: writer.durable == Position(0, 4))
    assert len(list_valid_frames(wal_dir)) == 5
    assert writer.statistics().fsyncs == 5


def test_commit_bytes_commit_before_the_interval(open_writer: OpenWriter) -> None:
    """A full group does not wait."""
    writer = open_writer(commit_interval_ns=NEVER_NS, commit_bytes=1_000)
    writer.append(make_batch([b"x" * 2_000]))
    wait_until(lambda: writer.durable == Position(0, 0))


def test_an_idle_writer_does_not_spin(open_writer: OpenWriter) -> None:
    """Its thread uses no processor time while nothing is appended."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    assert writer.flush(DEADLINE_S)
    thread = writer._thread.native_id
    path = Path(f"/proc/self/task/{thread}/status")

    def switches() -> int:
        line = next(s for s in path.read_text().splitlines() if s.startswith("voluntary"))
        return int(line.split()[1])

    before = switches()
    threading.Event().wait(0.3)
    assert switches() - before <= 3


def test_segments_rotate_and_declare_again_what_they_use(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Each segment is decodable on its own, and its name is its first position."""
    writer = open_writer(segment_bytes=4_000)
    topic = writer.declare_topic(TopicDeclaration("/imu", definition="int32 a"))
    assert writer.declare_topic(TopicDeclaration("/imu", definition="int32 a")) == topic
    publisher = writer.declare_publisher(b"p" * 24)
    for _ in range(12):
        writer.append(make_batch([b"x" * 1_500], topic_ref=topic, publisher_ref=publisher))
        assert writer.flush(DEADLINE_S)
    frames = list_valid_frames(wal_dir)
    assert len({frame.file for frame in frames}) >= 4
    assert writer.statistics().segments == len({frame.file for frame in frames})
    assert {(f.source, f.records[0].topic, f.records[0].publisher) for f in frames} == {
        ("robot", "/imu", b"p" * 24)
    }
    firsts: dict[str, int] = {}
    for frame in frames:
        firsts.setdefault(frame.file, frame.position)
    assert all(int(name[-24:-4]) == first for name, first in firsts.items())


def test_a_batch_that_contradicts_itself_is_refused_by_name(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The caller hears of it; the writer goes on."""
    writer = open_writer()
    short = make_batch([b"a", b"b"])
    short.sequences.pop()
    negative = make_batch([b"a"])
    negative.topic_refs = [-1]
    text = make_batch([b"a"])
    text.payloads = ["not bytes"]  # type: ignore[list-item]
    beyond = make_batch([b"a"], attributes={1: {"k": "v"}})
    for batch in (short, negative, text, beyond):
        with pytest.raises(ValueError, match="robot"):
            writer.append(batch)
    assert writer.append(make_batch([b"good"]))
    assert writer.flush(DEADLINE_S)
    assert payloads_of(wal_dir) == [b"good"]


def test_an_empty_batch_takes_no_position(open_writer: OpenWriter) -> None:
    """Nothing happened, so nothing is written."""
    writer = open_writer()
    assert writer.append(SourceBatch("robot"))
    assert writer.flush(DEADLINE_S)
    assert writer.durable == BEFORE_ALL


def test_a_second_writer_is_refused_and_told_who_holds_the_log(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The lock names its holder; after close it is free."""
    writer = open_writer()
    with pytest.raises(LockHeldError, match=f"pid {os.getpid()}"):
        open_writer()
    writer.close()
    writer.close()
    open_writer()


def test_append_after_close_is_refused_and_counted(open_writer: OpenWriter) -> None:
    """Nothing is accepted that cannot become durable."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    writer.close()
    assert not writer.append(make_batch([b"y", b"z"]))
    statistics = writer.statistics()
    assert (statistics.refused_batches, statistics.refused_records) == (1, 2)
    assert (statistics.alive, statistics.failed, statistics.lost_records) == (False, False, 0)


def test_close_makes_what_waits_durable(open_writer: OpenWriter, wal_dir: str) -> None:
    """The last commit does not wait for the interval."""
    writer = open_writer(commit_interval_ns=NEVER_NS)
    writer.append(make_batch([b"last"]))
    writer.close()
    assert payloads_of(wal_dir) == [b"last"]


def test_append_refuses_above_the_ceiling_and_recovers(open_writer: OpenWriter) -> None:
    """Pending bytes are bounded; a batch larger than the bound passes when it is alone."""
    fs = FaultyFileSystem()
    hold = threading.Event()

    class SlowFileSystem(FaultyFileSystem):
        def fdatasync(self, fd: int) -> None:
            assert hold.wait(DEADLINE_S)
            super().fdatasync(fd)

    fs = SlowFileSystem()
    writer = open_writer(fs=fs, pending_bytes_max=10_000, commit_interval_ns=0)
    try:
        assert writer.append(make_batch([b"x" * 50_000]))
        assert not writer.append(make_batch([b"y"]))
        assert writer.statistics().pending_bytes > 10_000
    finally:
        hold.set()
    assert writer.flush(DEADLINE_S)
    assert writer.append(make_batch([b"y"]))
    assert writer.statistics().refused_records == 1


def test_on_durable_is_called_after_the_mark_moved_and_may_raise(
    open_writer: OpenWriter,
) -> None:
    """A listener's exception is counted and ends nothing."""
    seen: list[Position] = []

    def listener() -> None:
        seen.append(writer.durable)
        raise SystemExit("listener")

    writer = open_writer(on_durable=listener)
    for _ in range(2):
        writer.append(make_batch([b"x"]))
        assert writer.flush(DEADLINE_S)
    assert seen == [Position(0, 0), Position(0, 1)]
    assert writer.statistics().callback_errors == 2
    assert "SystemExit" in writer.statistics().last_error


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("short_bytes", [None, 100, 700])
def test_a_full_disk_is_counted_and_recovers_by_itself(
    open_writer: OpenWriter, wal_dir: str, error: int, short_bytes: int | None
) -> None:
    """Half-written frames are taken back; the same frames are written once there is room."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    writer.append(make_batch([b"before"]))
    assert writer.flush(DEADLINE_S)
    fault = fs.fail("pwrite_all", error, times=-1, path=".wal", short_bytes=short_bytes)
    writer.append(make_batch([b"a" * 300]))
    wait_until(lambda: fault.hits >= 2)
    writer.append(make_batch([b"b" * 300]))
    statistics = writer.statistics()
    assert (statistics.storage_full, statistics.failed, statistics.alive) == (True, False, True)
    assert statistics.storage_refusals >= 1
    assert writer.durable == Position(0, 0)
    # At rest between two tries nothing of the refused write is in the file.
    wait_until(lambda: segment_sizes(wal_dir) == [statistics.segment_bytes])
    fs.mend()
    assert writer.flush(DEADLINE_S)
    assert payloads_of(wal_dir) == [b"before", b"a" * 300, b"b" * 300]
    statistics = writer.statistics()
    assert (statistics.storage_full, statistics.commit_faults, statistics.suspect_segments) == (
        False,
        0,
        0,
    )
    assert len({f.file for f in list_valid_frames(wal_dir)}) == 1
    assert not read_all(OsFileSystem(), wal_dir).ranges


def test_a_disk_full_from_the_start_leaves_no_segment_behind(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The segment that could not be begun is removed and begun again later."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    fault = fs.fail("pwrite_all", errno.ENOSPC, times=-1, path=".wal", short_bytes=90)
    writer.append(make_batch([b"a"]))
    wait_until(lambda: fault.hits >= 2)
    assert not [name for name in os.listdir(wal_dir) if ".wal" in name]
    fs.mend()
    assert writer.flush(DEADLINE_S)
    assert payloads_of(wal_dir) == [b"a"]


def test_a_disk_still_full_at_close_is_counted_as_lost(open_writer: OpenWriter) -> None:
    """close() returns; what never became durable has a counter."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    fs.fail("pwrite_all", errno.ENOSPC, times=-1, path=".wal")
    writer.append(make_batch([b"a", b"b"]))
    writer.close()
    assert writer.statistics().lost_records == 2


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_is_never_repeated_on_the_same_file(
    open_writer: OpenWriter, wal_dir: str, error: int
) -> None:
    """The frames go to a fresh segment under the same positions; the suspect ends before it."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    writer.append(make_batch([b"first"]))
    assert writer.flush(DEADLINE_S)
    fault = fs.fail("fdatasync", error)
    writer.append(make_batch([b"second"]))
    assert writer.flush(DEADLINE_S)
    writer.append(make_batch([b"third"]))
    assert writer.flush(DEADLINE_S)
    assert fault.hits == 1
    statistics = writer.statistics()
    assert statistics.suspect_segments == 1
    assert os.strerror(error) in statistics.last_error
    if error == errno.EIO:
        assert statistics.commit_faults == 1
        assert statistics.first_error == statistics.last_error
    frames = list_valid_frames(wal_dir)
    assert [(f.position, f.records[0].payload) for f in frames] == [
        (0, b"first"),
        (1, b"second"),
        (2, b"third"),
    ]
    assert frames[0].file != frames[1].file == frames[2].file
    outcome = read_all(OsFileSystem(), wal_dir)
    assert [bytes(f.payload) for f in outcome.frames] == [b"first", b"second", b"third"]
    assert not outcome.ranges
    assert not outcome.gaps


def test_a_failed_fsync_of_a_segment_without_durable_frames_sets_it_aside(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The fresh segment takes the name; the suspect's bytes are kept."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    fs.fail("fdatasync", errno.EIO)
    writer.append(make_batch([b"first"]))
    assert writer.flush(DEADLINE_S)
    assert payloads_of(wal_dir) == [b"first"]
    assert len([name for name in os.listdir(wal_dir) if name.endswith(".suspect")]) == 1


@pytest.mark.parametrize("call", ["fdatasync", "pwrite_all"])
def test_two_failures_in_a_row_fail_the_writer_with_the_first_error(
    open_writer: OpenWriter, wal_dir: str, call: str
) -> None:
    """Capture must know; what was durable stays readable; a new open works."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    writer.append(make_batch([b"durable"]))
    assert writer.flush(DEADLINE_S)
    fs.fail(call, errno.EIO, path=".wal")
    fs.fail(call, errno.EROFS, path=".wal")
    writer.append(make_batch([b"a", b"b"]))
    assert not writer.flush(DEADLINE_S)
    assert not writer.append(make_batch([b"c"]))
    statistics = writer.statistics()
    assert (statistics.failed, statistics.lost_records, statistics.refused_records) == (True, 2, 1)
    assert "Input/output error" in statistics.first_error
    wait_until(lambda: not writer.statistics().alive)
    writer.close()
    again = open_writer()
    assert again.append(make_batch([b"after"]))
    assert again.flush(DEADLINE_S)
    payloads = [bytes(f.payload) for f in read_all(OsFileSystem(), wal_dir).frames]
    assert payloads[0] == b"durable"
    assert payloads[-1] == b"after"


def test_a_mark_that_cannot_move_exposes_nothing_twice(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The frames are durable already: only the mark is tried again."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    fs.fail("pwrite_all", errno.ENOSPC, path="durable")
    writer.append(make_batch([b"once"]))
    assert writer.flush(DEADLINE_S)
    assert payloads_of(wal_dir) == [b"once"]
    assert writer.statistics().fsyncs == 1


def test_a_failed_truncation_after_a_full_disk_abandons_the_segment(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Bytes that cannot be taken back are left behind a segment's end, never read."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    writer.append(make_batch([b"first"]))
    assert writer.flush(DEADLINE_S)
    fs.fail("pwrite_all", errno.ENOSPC, path=".wal", short_bytes=1_000)
    fs.fail("ftruncate", errno.EIO)
    writer.append(make_batch([b"second"]))
    assert writer.flush(DEADLINE_S)
    outcome = read_all(OsFileSystem(), wal_dir)
    assert [bytes(f.payload) for f in outcome.frames] == [b"first", b"second"]
    assert not outcome.ranges


def test_a_bug_in_the_writer_thread_is_kept_and_refuses_further_batches(
    open_writer: OpenWriter,
) -> None:
    """BaseException included: the thread ends, nobody waits for it, the reason is there."""

    class Broken(OsFileSystem):
        armed = False

        def fdatasync(self, fd: int) -> None:
            if self.armed:
                raise KeyboardInterrupt("stray")
            super().fdatasync(fd)

    fs = Broken()
    writer = open_writer(fs=fs)
    fs.armed = True
    writer.append(make_batch([b"x"]))
    assert not writer.flush(DEADLINE_S)
    assert not writer.append(make_batch([b"y"]))
    assert "KeyboardInterrupt" in writer.statistics().first_error
    wait_until(lambda: not writer.statistics().alive)


def test_the_mark_moves_only_after_the_syncs_it_stands_for(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Write, fdatasync, for a new file the directory's fsync, and only then the mark."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    for expected in (
        ["open .wal", "pwrite_all .wal", "fdatasync .wal", "fsync_dir wal", "pwrite_all durable"],
        ["pwrite_all .wal", "fdatasync .wal", "pwrite_all durable"],
    ):
        fs.calls.clear()
        writer.append(make_batch([b"x"]))
        assert writer.flush(DEADLINE_S)
        assert [
            f"{call} {'.wal' if path.endswith('.wal') else os.path.basename(path)}"
            for call, path in fs.calls
        ] == expected


def test_nothing_above_the_mark_is_left_after_a_clean_close(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A log at rest ends where its mark says, and opening it again writes no segment."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    writer.close()
    names = sorted(os.listdir(wal_dir))
    again = open_writer()
    assert again.durable == Position(0, 0)
    assert again.recovered.frames == 1
    again.close()
    assert sorted(os.listdir(wal_dir)) == names
    segment = next(name for name in names if name.endswith(".wal"))
    assert os.path.getsize(os.path.join(wal_dir, segment)) > SEGMENT_HEADER_BYTES
