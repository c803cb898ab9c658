# SPDX-License-Identifier: Apache-2.0
"""fsck and ls: the whole log from outside."""

from __future__ import annotations

import os

import pytest

from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import MemoryFileSystem, make_batch
from thadam_ros.wal.fsck import end_of_files, fsck, has_writer, list_log
from thadam_ros.wal.mark import MARK_FILE

from .conftest import OpenWriter
from .logs import SmallLog, without_mark, write_small_log


@pytest.fixture
def log(wal_dir: str) -> SmallLog:
    return write_small_log(wal_dir, 12 << 10, segment_bytes=4 << 10)


def test_a_sound_log_has_no_problem_and_its_sums_are_right(log: SmallLog) -> None:
    """Frames and records per segment equal the oracle's."""
    report = fsck(OsFileSystem(), log.directory)
    assert report.problems == ()
    assert [s.name.filename for s in report.segments] == [
        os.path.basename(path) for path in log.segments
    ]
    for segment, path in zip(report.segments, log.segments, strict=True):
        frames = log.file_frames(path)
        assert (segment.frames, segment.last) == (len(frames), frames[-1].position)
        assert segment.records == sum(len(frame.records) for frame in frames)
        assert segment.bytes == len(log.files[path])


def test_every_kind_of_problem_is_one_sentence(log: SmallLog) -> None:
    """Damage, a gap, a refused file, a stray file and a lost mark, all in one report."""
    first, second, *_, last = log.segments
    frame = log.file_frames(first)[1]
    damaged = bytearray(log.files[first])
    damaged[frame.start + 99] ^= 1
    files = {**log.files, first: bytes(damaged), last: b"not ours" * 100}
    del files[second]
    files[os.path.join(log.directory, "stray.wal")] = b"x"
    files = without_mark(files)
    report = fsck(MemoryFileSystem(files), log.directory)
    text = "\n".join(report.problems)
    assert f"{frame.file}: bytes {frame.start} to {frame.end} are damaged" in text
    assert f"frame 0:{frame.position} is lost" in text
    assert "a segment is missing before" in text
    assert "its magic is not" in text
    assert "stray.wal is not a segment's name" in text
    assert f"{MARK_FILE} is missing" in text
    assert len(report.problems) == 5


def test_a_torn_tail_and_a_damaged_one_are_told_apart_by_the_mark(log: SmallLog) -> None:
    """The same cut, once below the mark and once above it."""
    path = log.segments[-1]
    cut = {**log.files, path: log.files[path][:-30]}
    last = Position(*log.frames[-1].place)
    (below,) = fsck(MemoryFileSystem(cut), log.directory).segments[-1].damage
    assert (below.kind, below.first, below.last) == ("damaged", last, last)
    assert below.end == len(log.files[path])
    (above,) = fsck(MemoryFileSystem(without_mark(cut)), log.directory).segments[-1].damage
    assert (above.kind, above.first) == ("torn", last)


def test_frames_above_the_mark_are_counted_apart(log: SmallLog) -> None:
    """They are no problem: the next open exposes them."""
    report = fsck(MemoryFileSystem(without_mark(log.files)), log.directory)
    assert sum(s.beyond_mark for s in report.segments) == len(log.frames)
    assert len(report.problems) == 1


def test_beside_a_writer_only_what_is_durable_is_looked_at(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A write in flight is not a torn tail."""
    writer = open_writer()
    writer.append(make_batch([b"x"]))
    assert writer.flush(30)
    assert has_writer(wal_dir)
    (name,) = [n for n in os.listdir(wal_dir) if n.endswith(".wal")]
    with open(os.path.join(wal_dir, name), "ab") as file:
        file.write(b"half a frame")
    report = fsck(OsFileSystem(), wal_dir)
    assert report.writer_active
    assert report.problems == ()
    writer.close()
    assert not has_writer(wal_dir)
    assert [item.kind for item in fsck(OsFileSystem(), wal_dir).segments[0].damage] == ["torn"]


def test_what_recovery_kept_is_listed(open_writer: OpenWriter, wal_dir: str) -> None:
    """Kept bytes are no problem, but nobody should have to look for them."""
    log = write_small_log(wal_dir, 2_000, segment_bytes=1 << 20)
    with open(log.segments[0], "ab") as file:
        file.write(b"tail")
    open_writer().close()
    report = fsck(OsFileSystem(), wal_dir)
    assert report.problems == ()
    assert [size for _, size in report.kept] == [4]


def test_ls_needs_no_frame(log: SmallLog) -> None:
    """Positions come from names and the mark."""
    mark, segments = list_log(MemoryFileSystem(log.files), log.directory)
    assert mark is not None
    assert mark.position == Position(*log.frames[-1].place)
    for segment, path in zip(segments, log.segments, strict=True):
        frames = log.file_frames(path)
        assert (segment.name.first, segment.last) == (frames[0].position, frames[-1].position)
        assert segment.created_ns > 0


def test_the_end_of_files_is_the_last_intact_header(log: SmallLog) -> None:
    """What a lost mark would have said."""
    mark, _ = list_log(MemoryFileSystem(log.files), log.directory)
    assert end_of_files(MemoryFileSystem(without_mark(log.files)), log.directory) == mark
    assert end_of_files(MemoryFileSystem({}), log.directory) is None
