# SPDX-License-Identifier: Apache-2.0
"""What a writer finds at open: epochs, crash windows, moved tails, a disk that refuses."""

from __future__ import annotations

import errno
import os

import pytest

from thadam_ros.errors import StorageFullError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import (
    FaultyFileSystem,
    MemoryFileSystem,
    list_valid_frames,
    load_directory,
    make_batch,
)
from thadam_ros.wal.mark import MARK_FILE, MarkWriter, load_mark
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.recovery import recover

from .conftest import OpenWriter
from .logs import SmallLog, open_and_read, read_all, without_mark, write_small_log

DEADLINE_S = 30.0


@pytest.fixture
def log(wal_dir: str) -> SmallLog:
    return write_small_log(wal_dir, 10 << 10, segment_bytes=4 << 10)


def test_the_epoch_is_drawn_once_and_kept_over_restarts(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Also when nothing was written in between, and when the mark was lost."""
    drawn = iter(range(1_000, 2_000))
    draw = drawn.__next__
    writer = open_writer(draw_epoch=draw)
    assert (writer.epoch, writer.ordinal) == (1_000, 0)
    writer.close()
    writer = open_writer(draw_epoch=draw)
    assert writer.epoch == 1_000
    writer.append(make_batch([b"x"]))
    writer.close()
    os.unlink(os.path.join(wal_dir, MARK_FILE))
    writer = open_writer(draw_epoch=draw)
    assert (writer.epoch, writer.durable) == (1_000, Position(0, 0))
    assert not writer.recovered.new_epoch


def test_a_drawn_epoch_is_a_positive_63_bit_integer(open_writer: OpenWriter) -> None:
    """It has to fit the columns of every store."""
    assert 0 < open_writer().epoch < 1 << 63


def test_a_cursor_beyond_the_end_begins_a_new_epoch_after_the_last_frame(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The chain beyond starts at the new epoch; one inside finishes the old one first."""
    writer = open_writer()
    for index in range(3):
        writer.append(make_batch([bytes([index])]))
        assert writer.flush(DEADLINE_S)
    first_epoch = writer.epoch
    writer.close()
    inside, beyond = Position(0, 1), Position(0, 9)
    writer = open_writer(cursors=[inside, beyond])
    assert writer.recovered.new_epoch
    assert writer.statistics().new_epoch
    assert (writer.ordinal, writer.durable) == (1, Position(1, -1))
    assert writer.epoch != first_epoch
    writer.append(make_batch([b"new"]))
    assert writer.flush(DEADLINE_S)
    fs = OsFileSystem()
    assert read_all(fs, wal_dir, beyond).places == [(1, 0)]
    outcome = read_all(fs, wal_dir, inside)
    assert outcome.places == [(0, 2), (1, 0)]
    assert [frame.epoch for frame in outcome.frames] == [first_epoch, writer.epoch]
    assert not outcome.gaps
    assert not outcome.ranges
    reader = WalReader(wal_dir, fs=fs)
    assert [reader.backlog(p).frames for p in (BEFORE_ALL, inside, beyond, Position(1, 0))] == [
        4,
        2,
        1,
        0,
    ]
    reader.close()


def test_a_new_epoch_without_frames_is_kept_over_restarts(open_writer: OpenWriter) -> None:
    """It is in the mark, and the mark is synced."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    writer.close()
    writer = open_writer(cursors=[Position(0, 5)])
    epoch = writer.epoch
    writer.close()
    writer = open_writer(cursors=[Position(0, 5)])
    assert (writer.ordinal, writer.epoch) == (1, epoch)
    assert not writer.recovered.new_epoch


def test_a_cursor_of_a_later_epoch_than_the_log_has_is_passed(open_writer: OpenWriter) -> None:
    """A log restored from an older copy must not use that epoch's ordinal again."""
    writer = open_writer(cursors=[Position(4, 17)])
    assert writer.ordinal == 5


def test_cursors_inside_the_log_change_nothing(open_writer: OpenWriter) -> None:
    """At the end is not beyond it."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    writer.close()
    writer = open_writer(cursors=[BEFORE_ALL, Position(0, 0)])
    assert (writer.ordinal, writer.recovered.new_epoch) == (0, False)


def test_a_new_epoch_survives_each_loss_of_its_segments(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A gap between two epochs is reported from the old end to the new beginning."""
    writer = open_writer()
    writer.append(make_batch([b"a"]))
    writer.close()
    writer = open_writer(cursors=[Position(0, 5)], segment_bytes=1)
    for _ in range(3):
        writer.append(make_batch([b"b"]))
        assert writer.flush(DEADLINE_S)
    writer.close()
    files = load_directory(wal_dir)
    segments = sorted(path for path in files if path.endswith(".wal"))
    assert len(segments) == 4
    del files[segments[1]]
    outcome = open_and_read(files, wal_dir)
    assert outcome.places == [(0, 0), (1, 1), (1, 2)]
    assert [(gap.first, gap.last) for gap in outcome.gaps] == [(Position(0, 1), Position(1, 0))]


def test_frames_above_a_lost_mark_are_exposed_after_a_sync(wal_dir: str) -> None:
    """They are whole, so they are durable once recovery has written and synced them."""
    log = write_small_log(wal_dir, 10 << 10, segment_bytes=4 << 10)
    os.unlink(os.path.join(wal_dir, MARK_FILE))
    fs = FaultyFileSystem()
    recovered = recover(fs, wal_dir, cursors=(), draw_epoch=lambda: 1)
    assert recovered.mark.position == Position(*log.frames[-1].place)
    assert recovered.mark.epoch == log.frames[-1].epoch
    # Written again in place, then synced, and only then returned to be exposed.
    path = log.segments[-1]
    assert fs.calls.index(("pwrite_all", path)) < fs.calls.index(("fsync", path))
    assert not os.path.exists(os.path.join(wal_dir, MARK_FILE))
    assert load_directory(wal_dir)[log.segments[-1]] == log.files[log.segments[-1]]


def test_a_recovery_that_cannot_sync_exposes_nothing(open_writer: OpenWriter, wal_dir: str) -> None:
    """open() raises, the lock is free again, a later open works."""
    log = write_small_log(wal_dir, 4 << 10, segment_bytes=1 << 20)
    os.unlink(os.path.join(wal_dir, MARK_FILE))
    fs = FaultyFileSystem()
    fs.fail("fsync", errno.EIO, path=".wal")
    with pytest.raises(OSError, match="Input/output"):
        open_writer(fs=fs)
    assert load_mark(OsFileSystem(), wal_dir) is None
    writer = open_writer()
    assert writer.durable == Position(*log.frames[-1].place)


def test_a_torn_tail_is_never_dropped_unsaved(open_writer: OpenWriter, wal_dir: str) -> None:
    """Where the disk is too full to keep its bytes, open says so and changes nothing."""
    log = write_small_log(wal_dir, 4 << 10, segment_bytes=1 << 20)
    path = log.segments[-1]
    with open(path, "ab") as file:
        file.write(b"tail" * 100)
    fs = FaultyFileSystem()
    fs.fail("pwrite_all", errno.ENOSPC, path=".torn")
    with pytest.raises(StorageFullError):
        open_writer(fs=fs)
    assert load_directory(wal_dir)[path] == log.files[path] + b"tail" * 100
    writer = open_writer()
    statistics = writer.statistics()
    assert (statistics.torn_ranges, statistics.torn_bytes) == (1, 400)
    kept = [name for name in os.listdir(wal_dir) if name.endswith(".torn")]
    assert [load_directory(wal_dir)[os.path.join(wal_dir, name)] for name in kept] == [
        b"tail" * 100
    ]


def test_a_segment_with_nothing_valid_is_moved_whole_and_its_place_used_again(
    open_writer: OpenWriter, log: SmallLog
) -> None:
    """A crash right after the file was created: the name is free for the next segment."""
    last = log.frames[-1]
    name = f"00000000-{last.epoch:016x}-{last.position + 1:020d}.wal"
    path = os.path.join(log.directory, name)
    for content in (b"", b"THADAMWL", bytes(4096), os.urandom(300)):
        with open(path, "wb") as file:
            file.write(content)
        writer = open_writer()
        assert writer.durable == Position(*last.place)
        writer.append(make_batch([b"next"]))
        writer.close()
        assert os.path.exists(path)
        assert list_valid_frames(log.directory)[-1].records[0].payload == b"next"
        os.unlink(path)
        os.unlink(os.path.join(log.directory, MARK_FILE))
        open_writer().close()
    assert len([n for n in os.listdir(log.directory) if n.endswith(".torn")]) == 4


def test_a_crash_between_a_failed_fsync_and_the_fresh_segment_serves_nothing_twice(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The suspect's frames above the mark are superseded by the fresh segment's."""
    fs = FaultyFileSystem()
    writer = open_writer(fs=fs)
    writer.append(make_batch([b"one"]))
    assert writer.flush(DEADLINE_S)
    fs.fail("fdatasync", errno.EIO)
    writer.append(make_batch([b"two"]))
    assert writer.flush(DEADLINE_S)
    writer.close()
    files = load_directory(wal_dir)
    suspect, fresh = sorted(path for path in files if path.endswith(".wal"))
    for cut in range(0, len(files[fresh]) + 1, 7):
        at_crash = without_mark({**files, fresh: files[fresh][:cut]})
        outcome = open_and_read(at_crash, wal_dir)
        # "two" was written to both files; it is served once, from one of them or the other.
        assert [bytes(f.payload) for f in outcome.frames] == [b"one", b"two"]
    assert len(files[suspect]) > 0


def test_recovery_twice_finds_the_same_log(log: SmallLog) -> None:
    """A crash in the middle of a recovery costs nothing: the next one starts over."""
    path = log.segments[-1]
    fs = MemoryFileSystem({**log.files, path: log.files[path][:-5] + b"junk!" + b"tail"})
    first = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1)
    again = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1)
    assert again.mark == first.mark
    MarkWriter(fs, log.directory, again.mark).close()
    assert fs.open_files == 0


def test_leftovers_of_an_interrupted_recovery_are_swept(
    open_writer: OpenWriter, log: SmallLog
) -> None:
    """Temporary files are never read and do not stay."""
    leftover = os.path.join(log.directory, "x.torn.tmp")
    with open(leftover, "wb") as file:
        file.write(b"half")
    open_writer()
    assert not os.path.exists(leftover)


def test_start_reads_only_the_newest_segment(wal_dir: str) -> None:
    """Start-up does not grow with the backlog."""
    log = write_small_log(wal_dir, 40 << 10, segment_bytes=4 << 10)

    class Opens(OsFileSystem):
        def __init__(self) -> None:
            self.opened: set[str] = set()

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            self.opened.add(path)
            return super().open(path, flags, mode)

    fs = Opens()
    recover(fs, wal_dir, cursors=(), draw_epoch=lambda: 1)
    assert len(log.segments) > 5
    assert {p for p in fs.opened if p.endswith(".wal")} == {log.segments[-1]}


def test_damage_that_a_full_disk_cannot_copy_does_not_keep_the_log_closed(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The bytes are still in the segment; the next open copies them."""
    log = write_small_log(wal_dir, 4 << 10, segment_bytes=1 << 20)
    with open(log.segments[0], "r+b") as file:
        file.seek(log.frames[1].start + 100)
        file.write(b"\xff\xff\xff")
    fs = FaultyFileSystem()
    fs.fail("pwrite_all", errno.ENOSPC, path=".damaged")
    writer = open_writer(fs=fs)
    statistics = writer.statistics()
    assert (statistics.damaged_ranges, statistics.damage_not_copied) == (1, 1)
    writer.close()
    assert open_writer().statistics().damage_not_copied == 0
    assert any(name.endswith(".damaged") for name in os.listdir(wal_dir))
