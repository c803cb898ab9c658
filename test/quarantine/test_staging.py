# SPDX-License-Identifier: Apache-2.0
"""Rejects are durable when append returns, once each, through crashes, damage and full disks."""

from __future__ import annotations

import errno
import os
import random
import struct
from dataclasses import replace
from pathlib import Path

import crc32c
import pytest

from thadam_ros.errors import FatalError, FormatError, StorageFullError, TransientError
from thadam_ros.model.event import REJECT_RAW_BYTES_MAX
from thadam_ros.quarantine.format import HEADER_BYTES
from thadam_ros.quarantine.staging import QuarantineUnwritableError, Staging, read_staging
from thadam_ros.storage.filesystem import OsFileSystem

from .reject_fixtures import HookedFs, UnsyncedFs, only_segment, reject, staged


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A staging directory that does not exist yet."""
    return tmp_path / "chains" / "lake" / "staging"


def _open(directory: Path, fs: object = None, **settings: int) -> Staging:
    return Staging.open(str(directory), fs or UnsyncedFs(), **settings)  # type: ignore[arg-type]


def test_rejects_read_back_equal_in_order(directory: Path) -> None:
    """Every field survives, raw bytes of any kind included."""
    rejects = [
        reject(1, raw=b""),
        reject(2, raw=bytes(range(256)), sample_idx=7, record_index=3),
        reject(3, raw=b"RJCT" * 10, reason="ungewöhnlich \N{SNOWMAN}", clock_synced=False),
        reject(2**62, raw=b"x" * REJECT_RAW_BYTES_MAX, raw_truncated=True, dataset=""),
    ]
    staging = _open(directory)
    assert staging.append(rejects) == 4
    staging.close()
    assert list(read_staging(str(directory), OsFileSystem())) == rejects


def test_raw_bytes_are_cut_at_65536_and_exactly_65536_are_whole(directory: Path) -> None:
    """The limit of spec 4.3, also when a caller hands over more."""
    staging = _open(directory)
    staging.append([reject(1, raw=b"x" * 65_536), reject(2, raw=b"y" * 65_537)])
    whole, cut = staged(directory)[0]
    assert (len(whole.raw), whole.raw_truncated) == (65_536, False)
    assert (len(cut.raw), cut.raw_truncated) == (65_536, True)


def test_a_reason_that_is_not_utf8_is_staged_nevertheless(directory: Path) -> None:
    """A reject is never refused for how it is described."""
    staging = _open(directory)
    assert staging.append([reject(1, reason="bad \udcff byte", topic="/\ud800")]) == 1
    [read] = staged(directory)[0]
    assert read.reason == "bad ? byte"
    assert staging.append([reject(1, reason="bad \udcff byte", topic="/\ud800")]) == 0


def test_one_write_and_one_fsync_per_call(directory: Path) -> None:
    """Durable before it counts, at the price of one fsync however many rejects."""
    fs = HookedFs(lambda name, arguments: None)
    staging = _open(directory, fs)
    fs.calls.clear()
    staging.append([reject(i) for i in range(100)])
    assert [c for c in fs.calls if c != "open"] == ["pwrite_all", "fsync", "fsync_dir"]
    fs.calls.clear()
    staging.append([reject(i) for i in range(100, 200)])
    assert fs.calls == ["pwrite_all", "fsync"]
    fs.calls.clear()
    staging.append([reject(i) for i in range(200)])
    assert fs.calls == []


def test_a_known_reject_is_not_written_again(directory: Path) -> None:
    """Within a call, between calls and after a restart; the counters tell."""
    staging = _open(directory)
    assert staging.append([reject(1), reject(2), reject(1)]) == 2
    assert staging.append([reject(2), reject(3)]) == 1
    staging.close()
    again = _open(directory)
    assert again.append([reject(i) for i in range(5)]) == 2
    assert [r.wal_pos for r in staged(directory)[0]] == [1, 2, 3, 0, 4]
    assert staging.statistics().duplicates_total == 2
    assert again.statistics().duplicates_total == 3
    assert again.statistics().rejects == 5


@pytest.mark.parametrize(
    "change",
    [
        {"wal_epoch": 1},
        {"wal_pos": 2},
        {"record_index": 1},
        {"sample_idx": 0},
        {"dataset": "odometry"},
        {"row_hash": "00"},
        {"error_domain": "quality"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_each_part_of_the_identity_makes_another_reject(
    directory: Path, change: dict[str, object]
) -> None:
    """(epoch, position, record, sample, dataset, row hash, domain)."""
    staging = _open(directory)
    staging.append([reject(1)])
    assert staging.append([replace(reject(1), **change)]) == 1  # type: ignore[arg-type]


def test_what_is_not_part_of_the_identity_makes_no_other_reject(directory: Path) -> None:
    """A corrected sentence or another code of the same domain is the same reject."""
    staging = _open(directory)
    staging.append([reject(1)])
    same = replace(reject(1), reason="other", error_code="decode.string", raw=b"", topic="/t")
    assert staging.append([same]) == 0


def test_counts_cover_what_staging_holds(directory: Path) -> None:
    """By domain and code, after a restart too; the returned mapping does not move."""
    staging = _open(directory)
    staging.append([reject(1), reject(2)])
    before = staging.counts()
    staging.append([reject(3, error_domain="quality", error_code="quality.norm")])
    assert before == {("decode", "decode.truncated"): 2}
    expected = {("decode", "decode.truncated"): 2, ("quality", "quality.norm"): 1}
    assert staging.counts() == expected
    staging.close()
    assert _open(directory).counts() == expected


def test_segments_rotate_by_size_and_stay_one_store(directory: Path) -> None:
    """A full segment is closed; identities span all of them."""
    staging = _open(directory, segment_bytes=2000)
    for position in range(40):
        staging.append([reject(position)])
    names = sorted(p.name for p in directory.iterdir())
    assert names[:2] == ["00000001.staging", "00000002.staging"]
    assert len(names) == staging.statistics().segments > 3
    assert staging.statistics().bytes == sum(p.stat().st_size for p in directory.iterdir())
    staging.close()
    again = _open(directory, segment_bytes=2000)
    assert again.append([reject(position) for position in range(41)]) == 1
    assert [r.wal_pos for r in staged(directory)[0]] == list(range(41))
    assert again.statistics().bytes == sum(p.stat().st_size for p in directory.iterdir())


def test_a_cut_at_every_byte_keeps_the_records_before_it(directory: Path) -> None:
    """A torn tail is dropped and counted; what it held is new again and goes behind the rest."""
    staging = _open(directory)
    ends = [HEADER_BYTES]
    for position in range(3):
        staging.append([reject(position)])
        ends.append(staging.statistics().bytes)
    staging.close()
    path = only_segment(directory)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends[1:])
        good_end = max([end for end in ends if end <= size], default=0)
        assert [r.wal_pos for r in staged(directory)[0]] == list(range(kept))
        again = _open(directory)
        assert again.statistics().torn_bytes == size - good_end
        assert again.statistics().damaged == ()
        assert path.stat().st_size == good_end
        assert again.append([reject(position) for position in range(3)]) == 3 - kept
        again.close()
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 500, random.Random(3).randbytes(500), b"RJCT" * 125],
    ids=["zeros", "noise", "magic"],
)
def test_garbage_behind_the_last_record_is_torn(directory: Path, tail: bytes) -> None:
    """A power cut may leave zeros or anything in bytes that were never synced."""
    staging = _open(directory)
    staging.append([reject(1)])
    staging.close()
    path = only_segment(directory)
    good = path.read_bytes()
    path.write_bytes(good + tail)
    again = _open(directory)
    assert again.statistics().torn_bytes == 500
    assert path.read_bytes() == good
    again.append([reject(2)])
    assert [r.wal_pos for r in staged(directory)[0]] == [1, 2]


def test_every_flipped_byte_costs_only_its_own_record(directory: Path) -> None:
    """The other rejects are read, the reported range covers the flip and touches no other."""
    staging = _open(directory)
    bounds = []
    start = HEADER_BYTES
    for position in range(4):
        staging.append([reject(position)])
        bounds.append((start, staging.statistics().bytes))
        start = bounds[-1][1]
    staging.close()
    path = only_segment(directory)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        hit = [i for i, (low, high) in enumerate(bounds) if low <= at < high]
        rejects, damages = staged(directory)
        assert [r.wal_pos for r in rejects] == [i for i in range(4) if i not in hit]
        [damage] = damages
        assert damage.start <= at < damage.end
        expected = bounds[hit[0]] if hit else (0, HEADER_BYTES)
        assert (damage.start, damage.end) == expected
        assert damage.torn == (hit == [3])


def test_a_restart_after_damage_appends_behind_what_is_left(directory: Path) -> None:
    """Damage in the middle, also in the header, is reported and neither cut off nor hidden."""
    staging = _open(directory)
    staging.append([reject(0)])
    first_end = staging.statistics().bytes
    staging.append([reject(1)])
    staging.append([reject(2)])
    staging.close()
    path = only_segment(directory)
    whole = bytearray(path.read_bytes())
    for at in (3, first_end + 40):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        again = _open(directory)
        assert again.statistics().damaged_ranges == 1
        assert again.statistics().torn_bytes == 0
        known = [r.wal_pos for r in staged(directory)[0]]
        assert again.append([reject(p) for p in range(5)]) == 5 - len(known)
        again.close()
        assert sorted(r.wal_pos for r in staged(directory)[0]) == list(range(5))
        assert path.read_bytes()[: len(damaged)] == damaged
        for extra in directory.glob("*.staging"):
            extra.unlink()


def test_many_random_flips_never_invent_or_alter_a_reject(directory: Path) -> None:
    """Whatever is read was written, and every byte is either a record's or reported."""
    staging = _open(directory)
    written = [reject(p, raw=b"RJCT%d" % p * (p % 50)) for p in range(60)]
    staging.append(written)
    staging.close()
    path = only_segment(directory)
    whole = path.read_bytes()
    rng = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        rejects, damages = staged(directory)
        assert [r for r in rejects if r not in written] == []
        changed = {i for i, (a, b) in enumerate(zip(data, whole, strict=True)) if a != b}
        assert all(any(d.start <= i < d.end for d in damages) for i in changed)


def test_a_record_inside_somebodys_raw_bytes_is_not_taken_for_one(directory: Path) -> None:
    """Even when the head around it is broken: a record knows its own offset."""
    inner_dir = directory.parent / "inner"
    inner = _open(inner_dir)
    inner.append([reject(666, reason="planted")])
    planted = only_segment(inner_dir).read_bytes()[HEADER_BYTES:]
    staging = _open(directory)
    staging.append([reject(1)])
    start = staging.statistics().bytes
    staging.append([reject(2, raw=planted * 3)])
    staging.append([reject(3)])
    path = only_segment(directory)
    data = bytearray(path.read_bytes())
    data[start + 5] ^= 0xFF
    path.write_bytes(data)
    rejects, damages = staged(directory)
    assert [r.wal_pos for r in rejects] == [1, 3]
    assert len(damages) == 1


def test_another_format_version_is_refused_with_both_versions(directory: Path) -> None:
    """Never guessed at, never overwritten."""
    staging = _open(directory)
    staging.append([reject(1)])
    staging.close()
    path = only_segment(directory)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 8, 2)
    struct.pack_into("<I", data, 12, crc32c.crc32c(bytes(data[:12])))
    path.write_bytes(data)
    with pytest.raises(FormatError, match="version 2; this software reads 1"):
        _open(directory)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(
    ("call", "first"),
    [
        ("open", True),
        ("pwrite_all", True),
        ("fsync", True),
        ("fsync_dir", True),
        ("pwrite_all", False),
        ("fsync", False),
    ],
)
def test_a_full_disk_counts_nothing_and_leaves_nothing_half(
    directory: Path, code: int, call: str, first: bool
) -> None:
    """Transient; the repetition cuts the half-written bytes off and appends once."""
    failing = False

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        if failing and name == call:
            if name == "pwrite_all":
                fd, buffers, offset = arguments
                half = b"".join(buffers)[:90]  # type: ignore[arg-type]
                OsFileSystem().pwrite_all(fd, [half], offset)  # type: ignore[arg-type]
            raise OSError(code, os.strerror(code))

    staging = _open(directory, HookedFs(hook))
    if not first:
        staging.append([reject(0)])
    before = dict(staging.counts())
    failing = True
    for _ in range(3):
        with pytest.raises(StorageFullError):
            staging.append([reject(1, raw=b"long " * 100), reject(2)])
    assert staging.counts() == before
    assert staging.statistics().failures_total == 3
    failing = False
    assert staging.append([reject(3)]) == 1
    assert staging.append([reject(1), reject(3)]) == 1
    rejects, damages = staged(directory)
    assert [r.wal_pos for r in rejects] == [3, 1] if first else [0, 3, 1]
    assert damages == []
    assert len(list(directory.iterdir())) == 1


@pytest.mark.parametrize("call", ["open", "pwrite_all", "fsync", "fsync_dir"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES])
def test_any_other_error_is_fatal_and_counts_nothing(directory: Path, call: str, code: int) -> None:
    """Staging that cannot be written stops publishing: QuarantineUnwritableError."""
    failing = False

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        if failing and name == call:
            raise OSError(code, os.strerror(code))

    staging = _open(directory, HookedFs(hook))
    failing = True
    with pytest.raises(QuarantineUnwritableError) as caught:
        staging.append([reject(1)])
    assert isinstance(caught.value, FatalError)
    assert not isinstance(caught.value, TransientError)
    assert staging.counts() == {}
    failing = False
    assert staging.append([reject(1)]) == 1
    assert [r.wal_pos for r in staged(directory)[0]] == [1]


@pytest.mark.parametrize(
    "error", [RuntimeError, MemoryError, KeyboardInterrupt, SystemExit], ids=lambda e: e.__name__
)
@pytest.mark.parametrize("call", ["pwrite_all", "fsync"])
def test_whatever_is_raised_in_the_middle_the_next_append_is_whole(
    directory: Path, call: str, error: type[BaseException]
) -> None:
    """Also an interruption after the bytes were written: once each, readable, counted."""
    failing = False

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        if failing and name == call:
            raise error()

    staging = _open(directory, HookedFs(hook))
    staging.append([reject(0)])
    failing = True
    with pytest.raises(error):
        staging.append([reject(1), reject(2)])
    failing = False
    assert staging.append([reject(2), reject(1)]) == 2
    rejects, damages = staged(directory)
    assert [r.wal_pos for r in rejects] == [0, 2, 1]
    assert damages == []


def test_what_a_dead_process_left_unsynced_is_synced_before_it_counts_as_known(
    directory: Path,
) -> None:
    """It may be in the page cache alone; a reject known from there would never be written again."""
    staging = _open(directory)
    staging.append([reject(1)])
    fs = HookedFs(lambda name, arguments: None)
    _open(directory, fs)
    assert fs.calls.index("fsync") < fs.calls.index("pread")


def test_a_reader_beside_a_growing_segment_sees_whole_rejects_only(directory: Path) -> None:
    """No lock is needed to look."""
    staging = _open(directory)
    seen = []
    for position in range(5):
        staging.append([reject(position)])
        seen.append(len(list(read_staging(str(directory), OsFileSystem()))))
    assert seen == [1, 2, 3, 4, 5]
    assert list(read_staging(str(directory / "missing"), OsFileSystem())) == []


def test_close_may_be_called_again(directory: Path) -> None:
    """Everything appended was durable before."""
    staging = _open(directory)
    staging.append([reject(1)])
    staging.close()
    staging.close()
    assert len(staged(directory)[0]) == 1
