# SPDX-License-Identifier: Apache-2.0
"""Deletion passes: who keeps a segment, who yields first, how a drop is counted."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.testing.space import SettableSpace
from thadam_ros.testing.wal import FaultyFileSystem, list_valid_frames, make_batch
from thadam_ros.wal.fsck import fsck
from thadam_ros.wal.layout import SegmentName, parse_segment_name
from thadam_ros.wal.retain_lock import hold_segments
from thadam_ros.wal.retention import DELETIONS_MAX, DroppedRange, Retention
from thadam_ros.wal.writer import WalWriter

from .conftest import OpenWriter
from .logs import read_all
from .test_writer import DEADLINE_S

PAYLOAD = b"p" * 500
END = Position(9, 0)


@dataclass
class Log:
    """A writer with its retention; cursors are what the test says."""

    directory: str
    writer: WalWriter
    retention: Retention
    cursors: dict[str, Position]
    asked: list[bool] = field(default_factory=list)

    def write(self, frames: int) -> int:
        """Append frames, one commit each, as long as they are accepted; return how many."""
        for count in range(frames):
            if not self.writer.append(make_batch([PAYLOAD])):
                return count
            assert self.writer.flush(DEADLINE_S)
        return frames

    def run(self) -> None:
        """Make passes until one finds nothing more to do."""
        for _ in range(100):
            if not self.retention.run():
                return
        raise AssertionError("passes without end")

    @property
    def segments(self) -> list[SegmentName]:
        found = (parse_segment_name(name) for name in os.listdir(self.directory))
        return sorted(name for name in found if name is not None)

    @property
    def used(self) -> int:
        return sum(os.path.getsize(os.path.join(self.directory, s.filename)) for s in self.segments)


MakeLog = Callable[..., Log]


@pytest.fixture
def make_log(open_writer: OpenWriter, wal_dir: str) -> MakeLog:
    def make(fs: SettableSpace | FaultyFileSystem | None = None, **options: object) -> Log:
        fs = fs or SettableSpace()
        settings = {
            "budget_bytes": 40_000,
            "min_free_bytes": 0,
            "segment_bytes": 4_000,
            "replay_window_bytes": 0,
            **options,
        }
        writer = open_writer(fs=fs, **settings)
        cursors: dict[str, Position] = {}
        asked: list[bool] = []

        def read_cursors(durable: bool) -> dict[str, Position]:
            asked.append(durable)
            return dict(cursors)

        retention = Retention(wal_dir, writer.budget, fs=fs, log=writer, read_cursors=read_cursors)
        return Log(wal_dir, writer, retention, cursors, asked)

    return make


def test_what_every_chain_has_passed_goes_and_the_newest_stays(make_log: MakeLog) -> None:
    """Without a replay window only the segment of the durable mark is left."""
    log = make_log()
    frames = log.write(40)
    before = log.segments
    used = log.used
    log.cursors.update(a=Position(0, frames - 1), b=Position(0, frames - 1))
    log.run()
    assert log.segments == [before[-1]]
    statistics = log.retention.statistics()
    assert statistics.deleted_segments == len(before) - 1
    assert statistics.deleted_bytes == used - log.used
    assert (statistics.dropped_segments, statistics.yielded_segments, statistics.drops) == (
        0,
        0,
        {},
    )
    assert log.writer.statistics().segments == 1
    assert log.writer.statistics().wal_bytes == log.used


def test_a_slow_chain_keeps_what_it_has_not_passed(make_log: MakeLog) -> None:
    """The segment that holds the frame after the cursor stays, the ones before it go."""
    log = make_log()
    log.write(40)
    third = log.segments[2]
    log.cursors.update(fast=END, slow=Position(0, third.first - 1))
    log.run()
    assert log.segments[0] == third
    assert log.retention.statistics().pinned_by == ("slow",)
    log.cursors["slow"] = Position(0, third.first)
    log.run()
    assert log.segments[0] == third, "a segment that was begun is not passed"
    log.cursors["slow"] = Position(0, log.segments[1].first - 1)
    log.run()
    assert log.segments[0] > third


def test_a_chain_that_never_stamped_keeps_everything(make_log: MakeLog) -> None:
    """stop_capture deletes nothing that is still wanted, however full it is."""
    log = make_log()
    log.cursors.update(a=END, fresh=BEFORE_ALL)
    accepted = log.write(1000)
    assert accepted < 1000
    before = log.segments
    log.run()
    assert log.segments == before
    assert log.retention.statistics().pinned_by == ("fresh",)
    assert log.writer.statistics().held_up_by == "budget"
    assert [f.position for f in list_valid_frames(log.directory)] == list(range(accepted))


def test_the_replay_window_keeps_passed_segments(make_log: MakeLog) -> None:
    """At least so many bytes of them, and not a segment more than needed."""
    log = make_log(replay_window_bytes=10_000)
    log.write(40)
    sizes = [os.path.getsize(os.path.join(log.directory, s.filename)) for s in log.segments]
    log.cursors["a"] = END
    log.run()
    kept = log.segments[:-1]
    passed = sum(sizes[-1 - len(kept) : -1])
    assert passed >= 10_000
    assert passed - sizes[-1 - len(kept)] < 10_000
    assert log.retention.statistics().yielded_segments == 0


def test_the_replay_window_yields_first(make_log: MakeLog) -> None:
    """Near the budget it goes before a message is refused, oldest first, and not further."""
    log = make_log(replay_window_bytes=31_900)
    log.cursors["a"] = END
    for _ in range(300):
        assert log.write(1) == 1
        log.run()
    assert log.used > 40_000 - 3 * log.writer.budget.segment_bytes
    statistics = log.retention.statistics()
    assert statistics.yielded_segments > 0
    assert statistics.dropped_segments == 0
    assert log.writer.statistics().refused_records == 0


def test_the_replay_window_yields_to_min_free(make_log: MakeLog) -> None:
    """Space that others take counts as well."""
    fs = SettableSpace(free=1 << 30)
    log = make_log(fs, replay_window_bytes=30_000, min_free_bytes=1_000_000)
    log.cursors["a"] = END
    log.write(40)
    before = log.segments
    log.run()
    assert log.segments == before
    fs.free = 1_000_100
    log.run()
    assert 0 < len(before) - len(log.segments) <= 2


def test_min_free_alone_deletes_nothing_that_a_chain_wants(make_log: MakeLog) -> None:
    """With stop_capture an empty disk of others costs messages, not frames."""
    fs = SettableSpace(free=1 << 30)
    log = make_log(fs, min_free_bytes=1_000_000)
    log.cursors["a"] = BEFORE_ALL
    log.write(40)
    before = log.segments
    fs.free = 0
    log.run()
    assert log.segments == before
    assert not log.writer.append(make_batch([PAYLOAD]))


def test_drop_oldest_keeps_the_newest_and_refuses_nothing(make_log: MakeLog) -> None:
    """The budget holds, what is left is the end without a hole, every lost frame is counted."""
    log = make_log(when_full="drop_oldest")
    log.cursors.update(stuck=BEFORE_ALL, half=Position(0, 99), done=END)
    for _ in range(300):
        assert log.write(1) == 1
        log.run()
        assert log.used <= 40_000
    left = [frame.position for frame in list_valid_frames(log.directory)]
    first = left[0]
    assert left == list(range(first, 300))
    assert len(left) > 40
    statistics = log.retention.statistics()
    assert statistics.drops["stuck"].ranges == (
        DroppedRange(Position(0, 0), Position(0, first - 1)),
    )
    assert statistics.drops["stuck"].frames == first
    assert statistics.drops["half"].ranges == (
        DroppedRange(Position(0, 100), Position(0, first - 1)),
    )
    assert statistics.drops["half"].frames == first - 100
    assert "done" not in statistics.drops
    assert statistics.dropped_segments == statistics.drops["stuck"].segments
    assert statistics.drops["half"].segments < statistics.dropped_segments
    assert log.writer.statistics().refused_records == 0


def test_drop_oldest_takes_no_more_than_is_needed(make_log: MakeLog) -> None:
    """One segment of headroom, not the backlog."""
    log = make_log(when_full="drop_oldest")
    log.cursors["stuck"] = BEFORE_ALL
    while log.used <= 36_000:
        log.write(1)
    before = log.segments
    log.run()
    assert len(before) - len(log.segments) == 1
    log.run()
    assert len(before) - len(log.segments) == 1


def test_drop_oldest_makes_room_on_a_full_disk(make_log: MakeLog) -> None:
    """A refused write counts like a reached budget, and costs one headroom, not everything."""
    fs = SettableSpace()
    log = make_log(fs, when_full="drop_oldest")
    log.cursors["stuck"] = BEFORE_ALL
    log.write(40)
    before = log.segments
    fs.full = True
    assert log.writer.append(make_batch([PAYLOAD]))
    assert not log.writer.flush(0.2)
    log.run()
    assert len(before) - len(log.segments) == 1
    fs.full = False
    assert log.writer.flush(DEADLINE_S)


def test_a_drop_is_counted_to_the_last_frame_of_an_epoch(
    make_log: MakeLog, open_writer: OpenWriter
) -> None:
    """The next segment's name says nothing about where the older epoch ended."""
    log = make_log(when_full="drop_oldest")
    log.write(3)
    log.writer.close()
    second = open_writer(cursors=[Position(0, 10)], segment_bytes=4_000, min_free_bytes=0)
    assert second.ordinal == 1
    assert second.append(make_batch([PAYLOAD]))
    assert second.flush(DEADLINE_S)
    second.close()
    writer = open_writer(
        budget_bytes=2_000, min_free_bytes=0, segment_bytes=1_000, when_full="drop_oldest"
    )
    retention = Retention(
        log.directory,
        writer.budget,
        fs=SettableSpace(),
        log=writer,
        read_cursors=lambda durable: {"a": Position(0, 0), "end": Position(0, 2)},
    )
    while retention.run():
        pass
    drops = retention.statistics().drops
    assert drops["a"].ranges == (DroppedRange(Position(0, 1), Position(0, 2)),)
    assert "end" not in drops


def test_cursors_are_read_again_durably_under_the_lock_before_anything_goes(
    make_log: MakeLog,
) -> None:
    """A cursor that a power cut could take back must not cost a segment; idle passes sync none."""
    log = make_log()
    log.write(20)
    log.cursors["a"] = BEFORE_ALL
    log.run()
    assert log.asked == [False]
    log.cursors["a"] = END
    log.run()
    assert log.asked == [False, False, True]


def test_a_pass_waits_for_nobody_who_lowers_a_cursor(make_log: MakeLog) -> None:
    """It is put off, counted, and made later."""
    log = make_log()
    log.write(20)
    log.cursors["a"] = END
    before = log.segments
    with hold_segments(log.directory):
        log.run()
        assert log.segments == before
        assert log.retention.statistics().busy == 1
    log.run()
    assert len(log.segments) == 1


def test_a_pass_is_bounded(make_log: MakeLog) -> None:
    """Whoever waits for RETAIN.lock waits for so many deletions at most."""
    log = make_log(budget_bytes=400_000, segment_bytes=1_000)
    log.write(3 * DELETIONS_MAX * 2)
    before = len(log.segments)
    assert before > 2 * DELETIONS_MAX
    log.cursors["a"] = END
    assert log.retention.run()
    assert len(log.segments) == before - DELETIONS_MAX


def test_each_deletion_is_synced_before_the_next_one(make_log: MakeLog) -> None:
    """After a power cut only the oldest are missing: never a hole."""
    fs = FaultyFileSystem()
    log = make_log(fs)
    log.write(30)
    log.cursors["a"] = END
    names = [s.filename for s in log.segments[:-1]]
    fs.calls.clear()
    log.run()
    done = [(c, os.path.basename(p)) for c, p in fs.calls if c in ("unlink", "fsync_dir")]
    expected = [
        [("unlink", name), ("fsync_dir", os.path.basename(log.directory))] for name in names
    ]
    assert done == [step for steps in expected for step in steps]


def test_a_deletion_that_fails_is_tried_again(make_log: MakeLog) -> None:
    """What went before the error is counted once."""
    fs = FaultyFileSystem()
    log = make_log(fs)
    log.write(30)
    log.cursors["a"] = END
    before = log.segments
    fs.fail("unlink", errno.EIO, path=before[1].filename)
    with pytest.raises(OSError, match="Input/output"):
        log.retention.run()
    assert log.segments == before[1:]
    log.run()
    assert log.segments == before[-1:]
    assert log.retention.statistics().deleted_segments == len(before) - 1
    assert log.writer.statistics().wal_bytes == log.used


class Hanging(SettableSpace):
    """A disk that stops in the middle of an fdatasync until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()
        self.waiting = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if not self.go_on.is_set():
            self.waiting.set()
            assert self.go_on.wait(DEADLINE_S)
        super().fdatasync(fd)

    def hang(self, writer: WalWriter) -> None:
        """Begin a commit that hangs."""
        self.go_on.clear()
        assert writer.append(make_batch([PAYLOAD]))
        assert self.waiting.wait(DEADLINE_S)


def test_deletion_goes_on_beside_a_commit_that_hangs(make_log: MakeLog) -> None:
    """A pass holds no lock of the writer, and the writer none of the pass; all bytes count once."""
    fs = Hanging()
    log = make_log(fs)
    assert log.write(45) == 45
    log.cursors["a"] = END
    used = log.used
    try:
        fs.hang(log.writer)
        assert log.writer.usage().used_bytes == used
        log.run()
        statistics = log.writer.statistics()
        assert statistics.deleted_segments > 0
        assert statistics.wal_bytes == used - statistics.deleted_bytes
        assert log.writer.append(make_batch([PAYLOAD]))
    finally:
        fs.go_on.set()
    assert log.writer.flush(DEADLINE_S)
    assert log.writer.statistics().wal_bytes == log.used


def test_the_segment_of_the_durable_mark_stays_though_a_newer_file_was_begun(
    make_log: MakeLog,
) -> None:
    """Until the newer one is durable a power cut may take it: the proof of the end must be left."""
    fs = Hanging()
    log = make_log(fs, segment_bytes=1)
    log.write(4)
    log.cursors["a"] = END
    marked = log.segments[-1]
    try:
        fs.hang(log.writer)
        newest = log.segments[-1]
        assert newest > marked
        log.run()
        assert log.segments == [marked, newest]
    finally:
        fs.go_on.set()
    assert log.writer.flush(DEADLINE_S)
    log.run()
    assert log.segments == [newest]


def test_a_log_opens_after_retention_and_positions_go_on(
    make_log: MakeLog, open_writer: OpenWriter
) -> None:
    """What was deleted is no gap for who starts at the cursor, and no position is used twice."""
    log = make_log()
    frames = log.write(40)
    log.cursors["a"] = Position(0, frames - 1)
    log.run()
    log.writer.close()
    again = open_writer(cursors=[Position(0, frames - 1)])
    assert again.durable == Position(0, frames - 1)
    assert again.append(make_batch([b"next"]))
    assert again.flush(DEADLINE_S)
    assert fsck(SettableSpace(), log.directory).problems == ()
    outcome = read_all(SettableSpace(), log.directory, Position(0, frames - 1))
    assert outcome.places == [(0, frames)]
    assert (outcome.gaps, outcome.ranges) == ((), ())
