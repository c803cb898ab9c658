# SPDX-License-Identifier: Apache-2.0
"""Readers: order, bounds, following, damage, gaps, and never above the durable mark."""

from __future__ import annotations

import errno
import os
import random
import threading

import numpy as np
import pytest

from thadam_ros.errors import FormatError
from thadam_ros.model.message import Frame, TopicDeclaration
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import (
    FaultyFileSystem,
    MemoryFileSystem,
    list_valid_frames,
    load_directory,
    make_batch,
)
from thadam_ros.wal.mark import MARK_BYTES, MARK_FILE, MarkWriter
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.recovery import recover

from .conftest import OpenWriter
from .logs import SmallLog, open_and_read, read_all, write_small_log

DEADLINE_S = 30.0


@pytest.fixture
def log(wal_dir: str) -> SmallLog:
    return write_small_log(wal_dir, 20 << 10, segment_bytes=5 << 10)


def drain(reader: WalReader) -> list[Frame]:
    frames: list[Frame] = []
    while batch := reader.read(100, 1 << 24):
        frames += batch
    return frames


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_reader_and_oracle_see_the_same_records(wal_dir: str, compression: str) -> None:
    """Every array, attribute and name, frame by frame."""
    log = write_small_log(wal_dir, 20 << 10, segment_bytes=5 << 10, compression=compression)
    frames = read_all(OsFileSystem(), wal_dir).frames
    assert len(frames) == len(log.frames) > 10
    for frame, expected in zip(frames, log.frames, strict=True):
        assert (frame.ordinal, frame.position) == expected.place
        assert (frame.epoch, frame.source_id) == (expected.epoch, expected.source)
        assert len(frame) == len(expected.records)
        for i, record in enumerate(expected.records):
            payload = frame.payload[frame.offsets[i] : frame.offsets[i + 1]].tobytes()
            assert payload == record.payload
            assert frame.topics[int(frame.topic_refs[i])].name == record.topic
            assert int(frame.ingest_times_ns[i]) == record.ingest_time_ns
            assert int(frame.source_timestamps_ns[i]) == record.source_timestamp_ns
            assert int(frame.sequences[i]) == record.sequence
            assert frame.publishers.get(int(frame.publisher_refs[i]), b"") == record.publisher
            assert dict(frame.attributes.get(i, {})) == record.attributes


def test_arrays_are_read_only_views_of_the_stated_types(log: SmallLog) -> None:
    """Nobody changes what others read, and nobody converts."""
    frame = read_all(OsFileSystem(), log.directory).frames[0]
    for name, dtype in (
        ("topic_refs", np.uint32),
        ("publisher_refs", np.uint32),
        ("ingest_times_ns", np.int64),
        ("source_timestamps_ns", np.int64),
        ("offsets", np.int64),
        ("sequences", np.uint64),
        ("payload", np.uint8),
    ):
        values = getattr(frame, name)
        assert values.dtype == dtype
        assert not values.flags.writeable
        assert values.base is not None
        assert values.flags.aligned


def test_reading_begins_strictly_after_the_given_position(log: SmallLog) -> None:
    """Whatever the place: start, middle, segment edges, end, beyond."""
    places = [frame.place for frame in log.frames]
    for index, place in enumerate(places):
        outcome = read_all(OsFileSystem(), log.directory, Position(*place))
        assert outcome.places == places[index + 1 :]
        assert not outcome.ranges
        assert not outcome.gaps
    assert read_all(OsFileSystem(), log.directory, Position(0, 10_000)).frames == ()


def test_limits_bound_a_read_but_one_frame_always_comes(log: SmallLog) -> None:
    """frames_max and bytes_max hold; a frame larger than bytes_max is returned alone."""
    reader = WalReader(log.directory, fs=OsFileSystem())
    sizes = [len(frame.payload) for frame in drain(reader)]
    reader.close()
    for limit in (1, 500, 1_500):
        reader = WalReader(log.directory, fs=OsFileSystem())
        seen: list[int] = []
        while batch := reader.read(3, limit):
            assert len(batch) <= 3
            assert len(batch) == 1 or sum(len(f.payload) for f in batch) <= limit
            seen += [len(frame.payload) for frame in batch]
        reader.close()
        assert seen == sizes


def test_a_reader_follows_commits_and_rotation(open_writer: OpenWriter, wal_dir: str) -> None:
    """A reader that was there before the log sees each frame as it becomes durable."""
    reader = WalReader(wal_dir, fs=OsFileSystem())
    assert reader.read(10, 1 << 20) == []
    assert reader.durable == BEFORE_ALL
    writer = open_writer(segment_bytes=2_000)
    topic = writer.declare_topic(TopicDeclaration("/t"))
    for index in range(30):
        writer.append(make_batch([bytes([index]) * 300], topic_ref=topic))
        assert writer.flush(DEADLINE_S)
        frames = reader.read(10, 1 << 20)
        assert [(f.position, int(f.payload[0])) for f in frames] == [(index, index)]
        assert frames[0].topics[topic].name == "/t"
        assert reader.read(10, 1 << 20) == []
    assert writer.statistics().segments > 5
    assert not reader.damage
    assert not reader.gaps
    reader.close()


def test_a_reader_follows_a_writer_that_was_opened_again(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Reopening begins a fresh segment; the reader goes over to it."""
    reader = WalReader(wal_dir, fs=OsFileSystem())
    for index in range(4):
        writer = open_writer()
        writer.append(make_batch([bytes([index])]))
        writer.close()
        assert [f.position for f in reader.read(10, 1 << 20)] == [index]
    reader.close()


def test_nothing_above_the_mark_is_delivered(log: SmallLog) -> None:
    """Frames that lie in the file but are not exposed yet stay unseen."""
    fs = MemoryFileSystem(log.files)
    mark = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1).mark
    last_file = [frame for frame in log.frames if frame.file == log.frames[-1].file]
    early = last_file[0]
    MarkWriter(
        fs,
        log.directory,
        mark._replace(position=Position(*early.place), offset=early.end),
    ).close()
    reader = WalReader(log.directory, fs=fs)
    frames = drain(reader)
    assert (frames[-1].ordinal, frames[-1].position) == early.place
    MarkWriter(fs, log.directory, mark).close()
    later = drain(reader)
    assert [(f.ordinal, f.position) for f in later] == [f.place for f in last_file[1:]]
    reader.close()


def test_bytes_above_the_mark_may_change_until_they_are_durable(log: SmallLog) -> None:
    """A write that was taken back and written anew is read as it became durable."""
    fs = MemoryFileSystem(log.files)
    mark = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1).mark
    path = log.segments[-1]
    frames = log.file_frames(path)
    early = frames[0]
    fs.files[path][early.end :] = b"\x5a" * (len(fs.files[path]) - early.end)
    MarkWriter(
        fs, log.directory, mark._replace(position=Position(*early.place), offset=early.end)
    ).close()
    reader = WalReader(log.directory, fs=fs)
    assert drain(reader)[-1].position == early.position
    fs.files[path][:] = log.files[path]
    MarkWriter(fs, log.directory, mark).close()
    assert [frame.position for frame in drain(reader)] == [f.position for f in frames[1:]]
    assert not reader.damage
    reader.close()


def test_a_garbage_mark_page_moves_a_reader_nowhere_and_is_counted(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The last good mark stays in force; the writer's next commit makes the page good."""
    writer = open_writer()
    writer.append(make_batch([b"one"]))
    assert writer.flush(DEADLINE_S)
    reader = WalReader(wal_dir, fs=OsFileSystem())
    assert len(reader.read(10, 1 << 20)) == 1
    path = os.path.join(wal_dir, MARK_FILE)
    with open(path, "r+b") as file:
        file.write(random.Random(3).randbytes(MARK_BYTES))
    assert reader.read(10, 1 << 20) == []
    assert reader.durable == Position(0, 0)
    assert reader.mark_unreadable >= 1
    fresh = WalReader(wal_dir, fs=OsFileSystem())
    assert fresh.read(10, 1 << 20) == []
    writer.append(make_batch([b"two"]))
    assert writer.flush(DEADLINE_S)
    assert [f.position for f in reader.read(10, 1 << 20)] == [1]
    assert [f.position for f in fresh.read(10, 1 << 20)] == [0, 1]
    reader.close()
    fresh.close()


def test_a_torn_slot_of_the_mark_leaves_the_other_in_force(log: SmallLog) -> None:
    """Half a slot never verifies, wherever the write stopped."""
    path = os.path.join(log.directory, MARK_FILE)
    page = log.files[path]
    for offset in (0, MARK_BYTES // 2):
        for length in (1, 9, 20, 40, 79):
            torn = bytearray(page)
            torn[offset : offset + length] = b"\xa5" * length
            fs = MemoryFileSystem({**log.files, path: bytes(torn)})
            assert read_all(fs, log.directory).places == [f.place for f in log.frames]


def test_a_damaged_frame_is_skipped_and_reported(log: SmallLog) -> None:
    """Range, kind and position of the lost frame; the others come."""
    victim = log.frames[3]
    path = os.path.join(log.directory, victim.file)
    data = bytearray(log.files[path])
    data[victim.start + 100] ^= 0x10
    fs = MemoryFileSystem({**log.files, path: bytes(data)})
    reader = WalReader(log.directory, fs=fs)
    assert [(f.ordinal, f.position) for f in drain(reader)] == [
        f.place for f in log.frames if f is not victim
    ]
    (found,) = reader.damage
    assert (found.file, found.start, found.end, found.kind) == (
        victim.file,
        victim.start,
        victim.end,
        "damaged",
    )
    assert found.first == found.last == Position(*victim.place)
    assert (reader.damaged_count, reader.damaged_bytes) == (1, victim.end - victim.start)
    reader.close()


def test_a_missing_segment_is_a_gap_with_its_positions(log: SmallLog) -> None:
    """First, middle and last segment, each missing once; reading goes on."""
    for index, path in enumerate(log.segments):
        files = {p: d for p, d in log.files.items() if p != path}
        lost = [frame.place for frame in log.file_frames(path)]
        outcome = open_and_read(files, log.directory)
        kept = [frame.place for frame in log.frames if frame.place not in lost]
        assert outcome.places == kept
        if index == 0:
            # The oldest segments are deleted on purpose; who wants them says where it stood.
            assert not outcome.gaps
            fs = MemoryFileSystem(files)
            asked = read_all(fs, log.directory, Position(0, lost[0][1]))
            assert [(g.first, g.last) for g in asked.gaps] == [
                (Position(0, lost[0][1] + 1), Position(*lost[-1]))
            ]
        else:
            assert [(g.first, g.last) for g in outcome.gaps] == [
                (Position(*lost[0]), Position(*lost[-1]))
            ]
        assert not outcome.ranges


def test_positions_of_a_missing_last_segment_are_never_used_again(
    open_writer: OpenWriter, log: SmallLog
) -> None:
    """The mark remembers what was exposed; the gap is reported once."""
    lost = log.file_frames(log.segments[-1])
    os.unlink(log.segments[-1])
    reader = WalReader(log.directory, fs=OsFileSystem(), after=BEFORE_ALL)
    before = len(drain(reader))
    assert before == len(log.frames) - len(lost)
    writer = open_writer()
    writer.append(make_batch([b"next"]))
    assert writer.flush(DEADLINE_S)
    (frame,) = drain(reader)
    assert (frame.ordinal, frame.position) == (0, lost[-1].position + 1)
    assert [(g.first, g.last) for g in reader.gaps] == [
        (Position(*lost[0].place), Position(*lost[-1].place))
    ]
    reader.close()


def test_another_version_or_magic_is_refused_by_name(log: SmallLog) -> None:
    """The sentence has the file and both versions; nothing is skipped in silence."""
    from crc32c import crc32c

    path = log.segments[1]
    copy = bytearray(log.files[path][:80])
    copy[8:12] = (9).to_bytes(4, "little")
    copy[76:80] = crc32c(bytes(copy[:76])).to_bytes(4, "little")
    newer = bytes(copy) * 2 + log.files[path][160:]
    foreign = b"SQLite format 3\0" * 400
    for data, pattern in ((newer, "version 9.*version 1"), (foreign, "magic")):
        fs = MemoryFileSystem({**log.files, path: data})
        reader = WalReader(log.directory, fs=fs)
        with pytest.raises(FormatError, match=f"{os.path.basename(path)}.*{pattern}"):
            drain(reader)
        with pytest.raises(FormatError):
            reader.read(10, 1 << 20)
        reader.close()
    last = log.segments[-1]
    fs = MemoryFileSystem({**log.files, last: foreign})
    with pytest.raises(FormatError, match="magic"):
        recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1)


def test_segments_of_two_logs_are_refused(log: SmallLog, tmp_path: object) -> None:
    """Copied together they would be read as one."""
    other = write_small_log(f"{tmp_path}/wal", 2_000, segment_bytes=1 << 20)
    stray = {
        os.path.join(log.directory, os.path.basename(p)): other.files[p] for p in other.segments
    }
    fs = MemoryFileSystem({**log.files, **stray})
    with pytest.raises(FormatError, match="two logs"):
        drain(WalReader(log.directory, fs=fs))


def test_a_read_error_loses_no_frame(log: SmallLog) -> None:
    """What was read before the error is delivered, the rest on the next call."""
    fs = FaultyFileSystem()
    reader = WalReader(log.directory, fs=fs)
    first = reader.read(2, 1 << 20)
    fs.fail("pread", errno.EIO, times=2)
    seen = [f.position for f in first]
    errors = 0
    for _ in range(100):
        try:
            frames = reader.read(100, 1 << 24)
        except OSError:
            errors += 1
            continue
        if not frames:
            break
        seen += [f.position for f in frames]
    assert seen == [frame.position for frame in log.frames]
    assert errors
    assert not reader.damage
    reader.close()


def test_a_payload_that_is_a_wal_is_a_payload(open_writer: OpenWriter, wal_dir: str) -> None:
    """Captured segments, another's and this one's own, are never taken for frames."""
    other = write_small_log(f"{wal_dir}-other", 6_000, segment_bytes=1 << 20)
    nested = other.files[other.segments[0]]
    writer = open_writer()
    writer.append(make_batch([b"first"]))
    assert writer.flush(DEADLINE_S)
    own = next(d for p, d in load_directory(wal_dir).items() if p.endswith(".wal"))
    for payload in (nested, own, own + nested):
        writer.append(make_batch([payload]))
        assert writer.flush(DEADLINE_S)
    writer.append(make_batch([b"last"]))
    writer.close()
    frames = list_valid_frames(wal_dir)
    assert [len(f.records[0].payload) for f in frames] == [
        5,
        len(nested),
        len(own),
        len(own) + len(nested),
        4,
    ]
    files = {p: d for p, d in load_directory(wal_dir).items() if not p.endswith("LOCK")}
    small = SmallLog(wal_dir, files, tuple(frames))
    path = small.segments[0]
    for victim in frames[1:4]:
        # In the header: the frame's length is lost, so its payload has to be searched.
        data = bytearray(files[path])
        data[victim.start + 20] ^= 1
        outcome = open_and_read({**files, path: bytes(data)}, wal_dir)
        assert outcome.places == [f.place for f in frames if f is not victim]
        (found,) = set(outcome.ranges)
        assert (found.start, found.end, found.kind) == (victim.start, victim.end, "damaged")


def test_a_frame_whose_declaration_is_lost_twice_still_comes(log: SmallLog) -> None:
    """Without its topic's definition it is still delivered: the chain rejects it, counted."""
    path = log.segments[0]
    first = log.file_frames(path)[0]
    data = bytearray(log.files[path])
    data[160 + 96 + 5] ^= 1
    data[first.start - 20] ^= 1
    outcome = open_and_read({**log.files, path: bytes(data)}, log.directory)
    assert outcome.places == [f.place for f in log.frames]
    assert outcome.frames[0].source_id == ""
    assert not set(outcome.frames[0].topics) & set(outcome.frames[0].topic_refs.tolist())
    assert {item.first for item in outcome.ranges} == {None}


def test_one_lost_declaration_costs_no_name(log: SmallLog) -> None:
    """Each stands twice."""
    path = log.segments[0]
    data = bytearray(log.files[path])
    data[160 + 96 + 5] ^= 1
    outcome = open_and_read({**log.files, path: bytes(data)}, log.directory)
    frame = outcome.frames[0]
    assert frame.source_id == "robot"
    assert set(frame.topics) >= set(frame.topic_refs.tolist())


def test_backlog_counts_what_waits_and_follows_the_cursor(log: SmallLog) -> None:
    """Frames and age at every position, forwards and back; bytes shrink to 0."""
    reader = WalReader(log.directory, fs=OsFileSystem())
    frames = drain(reader)
    places = [Position(*frame.place) for frame in log.frames]
    previous = None
    for index, place in enumerate([BEFORE_ALL, *places]):
        backlog = reader.backlog(place)
        assert backlog.frames == len(places) - index
        if index < len(places):
            assert backlog.oldest_ingest_time_ns == frames[index].ingest_time_ns
            assert 0 < backlog.bytes < (previous or 1 << 30)
        else:
            assert (backlog.bytes, backlog.oldest_ingest_time_ns) == (0, 0)
        previous = backlog.bytes
    assert reader.backlog(places[2]).frames == len(places) - 3
    reader.close()


def test_backlog_reads_headers_only_and_each_once(open_writer: OpenWriter, wal_dir: str) -> None:
    """A gigabyte that waits costs what its frame headers cost, and only the first time."""
    writer = open_writer(commit_bytes=1 << 20)
    for _ in range(8):
        writer.append(make_batch([b"x" * (1 << 20)]))
    assert writer.flush(DEADLINE_S)

    class Counting(OsFileSystem):
        read = 0

        def pread(self, fd: int, size: int, offset: int) -> bytes:
            data = super().pread(fd, size, offset)
            self.read += len(data)
            return data

    fs = Counting()
    reader = WalReader(wal_dir, fs=fs)
    assert reader.backlog(Position(0, 5)).frames == 2
    assert fs.read < 100_000
    before = fs.read
    assert reader.backlog(Position(0, 5)).frames == 2
    assert fs.read == before
    reader.close()


def test_a_mark_file_that_was_replaced_is_found_again(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A reader that mapped the old file does not stand still for ever."""
    writer = open_writer()
    writer.append(make_batch([b"one"]))
    writer.close()
    reader = WalReader(wal_dir, fs=OsFileSystem())
    assert len(drain(reader)) == 1
    os.unlink(os.path.join(wal_dir, MARK_FILE))
    writer = open_writer()
    writer.append(make_batch([b"two"]))
    assert writer.flush(DEADLINE_S)
    seen: list[Frame] = []
    for _ in range(1_000):
        seen += reader.read(10, 1 << 20)
    assert [frame.position for frame in seen] == [1]
    reader.close()


def test_backlog_and_reports_may_be_asked_while_another_thread_reads(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A status thread asks without end; the reading thread gets every frame."""
    writer = open_writer(commit_interval_ns=0, segment_bytes=20_000)
    reader = WalReader(wal_dir, fs=OsFileSystem())
    failures: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                position = reader.position
                assert reader.backlog(position).frames >= 0
                assert reader.durable >= position
                assert not reader.damage
                assert not reader.gaps
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    try:
        for index in range(300):
            writer.append(make_batch([bytes([index % 256]) * 500]))
            seen += [f.position for f in reader.read(10, 1 << 20)]
        assert writer.flush(DEADLINE_S)
        seen += [f.position for f in drain(reader)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert seen == list(range(writer.durable.frame + 1))
    reader.close()


def test_damage_in_a_segment_that_grew_since_it_was_opened_costs_only_itself(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """A following reader finds the next intact frame beyond the size it met at first."""
    writer = open_writer(commit="each", compression="none")
    ref = writer.declare_topic(TopicDeclaration("/a"))
    reader = WalReader(wal_dir, fs=OsFileSystem())
    assert writer.append(make_batch([b"first"], topic_ref=ref))
    assert writer.flush(DEADLINE_S)
    assert [frame.position for frame in drain(reader)] == [0]
    (name,) = [name for name in os.listdir(wal_dir) if name.endswith(".wal")]
    path = os.path.join(wal_dir, name)
    start = os.path.getsize(path)
    for payload in (b"second", b"third", b"fourth"):
        assert writer.append(make_batch([payload], topic_ref=ref))
    assert writer.flush(DEADLINE_S)
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 16)
    assert [frame.position for frame in drain(reader)] == [2, 3]
    (lost,) = reader.damage
    assert (lost.first, lost.last) == (Position(0, 1), Position(0, 1))
    reader.close()
