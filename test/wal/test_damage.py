# SPDX-License-Identifier: Apache-2.0
"""Any cut at any byte and any bit flip: what is intact is served, what is lost is said."""

from __future__ import annotations

import os
import random

import pytest

from thadam_ros.model.position import Position
from thadam_ros.testing.wal import MemoryFileSystem, OracleFrame, scan_segment
from thadam_ros.wal.recovery import recover

from .logs import (
    SmallLog,
    check_outcome,
    open_and_read,
    uncovered,
    without_mark,
    write_small_log,
)


def _cut_everywhere(log: SmallLog, stride: int) -> int:
    cuts = 0
    for path in log.segments:
        size = len(log.files[path])
        for cut in range(0, size, stride):
            files = {**log.files, path: log.files[path][:cut]}
            check_outcome(log, open_and_read(files, log.directory), path, [(cut, size)])
            cuts += 1
    return cuts


def test_every_cut_leaves_a_log_that_opens_and_says_what_was_lost(wal_dir: str) -> None:
    """Each byte of a 12 KiB log in three segments is the first one missing once."""
    log = write_small_log(wal_dir, 12 << 10, segment_bytes=4 << 10, payload_bytes=200)
    assert len(log.segments) >= 3
    assert _cut_everywhere(log, 1) > 12 << 10


def test_cuts_of_a_64_kib_log_at_every_seventeenth_byte(wal_dir: str) -> None:
    """The larger log, sampled; the long form cuts at every byte."""
    log = write_small_log(wal_dir, 60 << 10, segment_bytes=16 << 10, payload_bytes=1500)
    assert _cut_everywhere(log, 17) > 3_000


def test_cuts_of_a_compressed_log_at_every_seventh_byte(wal_dir: str) -> None:
    """Half a compressed payload is no payload."""
    log = write_small_log(wal_dir, 10 << 10, segment_bytes=4 << 10, compression="zstd")
    assert _cut_everywhere(log, 7) > 1_000


@pytest.mark.long
def test_every_cut_of_a_64_kib_log(wal_dir: str) -> None:
    """Each byte of a log of just under 64 KiB in four segments is the first one missing once."""
    log = write_small_log(wal_dir, 60 << 10, segment_bytes=16 << 10, payload_bytes=1500)
    assert _cut_everywhere(log, 1) > 60 << 10


def _flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_random_bit_flips_lose_only_the_frames_they_hit(wal_dir: str, compression: str) -> None:
    """2 000 single flips, the durable mark's page included, each on a fresh copy."""
    log = write_small_log(
        wal_dir, 20 << 10, segment_bytes=6 << 10, payload_bytes=500, compression=compression
    )
    rng = random.Random(5)
    paths = sorted(log.files)
    for _ in range(2_000):
        path = rng.choices(paths, [len(log.files[path]) for path in paths])[0]
        bit = rng.randrange(8 * len(log.files[path]))
        outcome = open_and_read({**log.files, path: _flip(log.files[path], bit)}, log.directory)
        if path.endswith(".wal"):
            check_outcome(log, outcome, path, [(bit // 8, bit // 8 + 1)])
        else:
            assert outcome.places == [frame.place for frame in log.frames]
            assert not outcome.ranges


def test_many_flips_at_once_lose_only_the_frames_they_hit(wal_dir: str) -> None:
    """Two to six flips in one segment, 300 times."""
    log = write_small_log(wal_dir, 20 << 10, segment_bytes=6 << 10, payload_bytes=500)
    rng = random.Random(6)
    for _ in range(300):
        path = rng.choice(log.segments)
        data = log.files[path]
        bits = sorted(rng.randrange(160 * 8, 8 * len(data)) for _ in range(rng.randrange(2, 7)))
        for bit in bits:
            data = _flip(data, bit)
        changed = [(bit // 8, bit // 8 + 1) for bit in bits]
        changed = [(low, high) for low, high in changed if data[low] != log.files[path][low]]
        outcome = open_and_read({**log.files, path: data}, log.directory)
        check_outcome(log, outcome, path, changed)


def test_both_header_copies_lost_costs_no_frame(wal_dir: str) -> None:
    """Frames are found by the epoch in the file name when the sync marker is gone."""
    log = write_small_log(wal_dir, 12 << 10, segment_bytes=4 << 10)
    for path in log.segments:
        data = bytearray(log.files[path])
        data[20:30] = data[100:110] = b"\xff" * 10
        outcome = open_and_read({**log.files, path: bytes(data)}, log.directory)
        check_outcome(log, outcome, path, [(20, 30), (100, 110)])


def test_a_zeroed_first_block_costs_only_the_frames_in_it(wal_dir: str) -> None:
    """A lost first sector takes the header and the first frames, nothing else."""
    log = write_small_log(wal_dir, 12 << 10, segment_bytes=4 << 10)
    for path in log.segments:
        data = bytes(512) + log.files[path][512:]
        check_outcome(
            log, open_and_read({**log.files, path: data}, log.directory), path, [(0, 512)]
        )


def test_cuts_above_a_lost_mark_are_torn_and_moved_aside(wal_dir: str) -> None:
    """Without a mark nothing was exposed: a cut tail is torn, and its bytes are kept."""
    log = write_small_log(wal_dir, 8 << 10, segment_bytes=1 << 20)
    path = log.segments[-1]
    size = len(log.files[path])
    starts = [frame.start for frame in log.frames]
    for cut in range(0, size, 3):
        files = without_mark({**log.files, path: log.files[path][:cut]})
        outcome = open_and_read(files, log.directory)
        intact = [frame for frame in log.frames if frame.end <= cut]
        assert outcome.places == [frame.place for frame in intact]
        end_of_intact = max((frame.end for frame in intact), default=0)
        assert all(item.kind == "torn" for item in outcome.ranges)
        if cut > end_of_intact and cut not in starts:
            next_place = Position(0, len(intact))
            assert any(item.loses(next_place) for item in outcome.ranges) or not intact
            tail = [r for r in outcome.ranges if r.start >= end_of_intact or r.start == 0]
            assert not uncovered(_bad_start(log.files[path], cut), cut, tail)


def _bad_start(data: bytes, cut: int) -> int:
    """Return where the first frame that ``cut`` breaks begins, declarations included."""
    valid_end = 160
    while valid_end + 96 <= len(data):
        length = int.from_bytes(data[valid_end + 28 : valid_end + 32], "little")
        end = valid_end + 96 + (length + 7) // 8 * 8
        if end > cut:
            break
        valid_end = end
    return valid_end if cut >= 160 else 0


def test_garbage_after_the_end_is_cut_off_and_kept(wal_dir: str) -> None:
    """Whatever a crash left above the mark is moved to a .torn file, byte for byte."""
    log = write_small_log(wal_dir, 4 << 10, segment_bytes=1 << 20)
    path = log.segments[-1]
    for tail in (b"\0" * 4096, random.Random(1).randbytes(5000), log.files[path][160:300]):
        fs = MemoryFileSystem({**log.files, path: log.files[path] + tail})
        recovered = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1)
        size = len(log.files[path])
        assert [(r.kind, r.start, r.end) for r in recovered.ranges] == [
            ("torn", size, size + len(tail))
        ]
        assert bytes(fs.files[path]) == log.files[path]
        assert bytes(fs.files[f"{path}.{size}.torn"]) == tail


def test_damage_is_copied_beside_the_segment_and_stays_in_it(wal_dir: str) -> None:
    """Recovery never destroys bytes: the damaged range is in a .damaged file as it was."""
    log = write_small_log(wal_dir, 4 << 10, segment_bytes=1 << 20)
    path = log.segments[-1]
    frame = log.frames[2]
    data = _flip(log.files[path], 8 * (frame.start + 120))
    fs = MemoryFileSystem({**log.files, path: data})
    for _ in range(2):
        recovered = recover(fs, log.directory, cursors=(), draw_epoch=lambda: 1)
        assert [(r.kind, r.start, r.end) for r in recovered.ranges] == [
            ("damaged", frame.start, frame.end)
        ]
    kept = f"{path}.{frame.start}-{frame.end}.damaged"
    assert bytes(fs.files[kept]) == data[frame.start : frame.end]
    assert bytes(fs.files[path]) == data
    assert len([p for p in fs.files if p.endswith(".damaged")]) == 1


def test_the_oracle_agrees_with_the_reader_on_damaged_bytes(wal_dir: str) -> None:
    """Two programs that share no code find the same frames in 200 damaged segments."""
    log = write_small_log(wal_dir, 8 << 10, segment_bytes=1 << 20)
    path = log.segments[0]
    rng = random.Random(9)
    for _ in range(200):
        data = log.files[path]
        for _ in range(3):
            data = _flip(data, rng.randrange(8 * len(data)))
        seen: list[OracleFrame] = scan_segment(os.path.basename(path), data)
        outcome = open_and_read({**log.files, path: data}, log.directory)
        assert outcome.places == [frame.place for frame in seen]
