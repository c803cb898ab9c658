# SPDX-License-Identifier: Apache-2.0
"""``fsck --repair``: damage is named and set aside, what the log knows is mended, no byte lost."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.errors import FormatError, LockHeldError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import FaultyFileSystem, OracleFrame, load_directory
from thadam_ros.wal.fsck import fsck
from thadam_ros.wal.layout import KIND_DECLARATION, SEGMENT_HEADER_BYTES, parse_frame_header
from thadam_ros.wal.mark import MARK_FILE
from thadam_ros.wal.repair import RepairReport, repair

from .conftest import OpenWriter
from .logs import SmallLog, read_all, write_small_log

FS = OsFileSystem()


@pytest.fixture
def log(wal_dir: str) -> SmallLog:
    return write_small_log(wal_dir, 20 << 10, segment_bytes=4 << 10)


def flip(path: str, offset: int, count: int = 1) -> None:
    """Invert bytes of a file in place."""
    with open(path, "r+b") as file:
        file.seek(offset)
        data = file.read(count)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in data))


def declarations(data: bytes) -> list[tuple[int, int]]:
    """Return where the declaration frames of an undamaged segment lie."""
    found, at = [], SEGMENT_HEADER_BYTES
    while (header := parse_frame_header(data[at:])) is not None:
        if header.kind == KIND_DECLARATION:
            found.append((at, at + header.frame_bytes))
        at += header.frame_bytes
    return found


def kept_bytes(directory: str) -> list[bytes]:
    """Return what stands in files of bytes that were set aside."""
    folder = Path(directory)
    suffixes = (".damaged", ".torn", ".suspect")
    return [f.read_bytes() for f in sorted(folder.iterdir()) if f.name.endswith(suffixes)]


def bytes_known(directory: str, path: str, offset: int) -> set[int]:
    """Return what the segment and the files set aside from it hold for one byte of it."""
    found = set()
    name = os.path.basename(path)
    for file in Path(directory).iterdir():
        match = re.fullmatch(
            re.escape(name) + r"(?:\.(\d+)(?:-\d+)?(?:\.\d+)?)?(?:\.[a-z]+)?", file.name
        )
        if match is not None:
            data, at = file.read_bytes(), offset - int(match[1] or 0)
            if 0 <= at < len(data):
                found.add(data[at])
    return found


def test_five_kinds_of_damage_are_named_with_bytes_and_positions_and_repaired(
    log: SmallLog,
) -> None:
    """A header copy, a declaration, a data frame, a missing segment, a torn tail; and what is left.

    All at once: each sentence names the file, its bytes and the positions lost with them.
    """
    one, two, three, *_, last = log.segments
    flip(one, 85)
    start, end = declarations(log.files[one])[0]
    flip(one, start + 100, 3)
    victim = log.file_frames(two)[1]
    flip(two, victim.start + 97, 5)
    broken = Path(two).read_bytes()[victim.start : victim.end]
    os.unlink(three)
    gone = log.file_frames(three)
    with open(last, "ab") as file:
        file.write(b"half a frame")
    size = len(log.files[last])

    lost = [victim, *gone]
    names = [os.path.basename(path) for path in log.segments]
    expected = [
        f"{names[0]}: bytes 80 to 160 are damaged; no frame is lost with it",
        f"{names[0]}: bytes {start} to {end} are damaged; no frame is lost with it",
        f"{names[1]}: bytes {victim.start} to {victim.end} are damaged; "
        f"frame 0:{victim.position} is lost",
        f"{names[-1]}: bytes {size} to {size + 12} are torn; "
        f"frames from 0:{log.frames[-1].position + 1} on are lost",
        f"a segment is missing before {names[3]}; positions 0:{gone[0].position} to "
        f"0:{gone[-1].position} are lost",
    ]
    assert list(fsck(FS, log.directory).problems) == expected

    report = repair(FS, log.directory)
    assert list(report.before.problems) == expected
    assert list(report.after.problems) == [expected[2], expected[4]]
    said = "\n".join(map(str, report.repairs))
    assert f"{names[0]}: bytes 80 to 160 are written again from the other copy" in said
    assert f"{names[0]}: bytes {start} to {end} are written again from the declaration's" in said
    assert f"{names[1]}: bytes {victim.start} to {victim.end} are set aside" in said
    assert f"{names[-1]}: bytes {size} to {size + 12} are torn: cut off" in said
    assert Path(one).read_bytes() == log.files[one]
    assert Path(last).read_bytes() == log.files[last]
    kept = kept_bytes(log.directory)
    assert broken in kept
    assert b"half a frame" in kept
    check_served(log, lost)
    check_repeat(log.directory)


def check_served(log: SmallLog, lost: list[OracleFrame]) -> None:
    """Every frame but the lost ones is read, with its bytes."""
    outcome = read_all(FS, log.directory)
    left = [frame for frame in log.frames if frame not in lost]
    assert outcome.places == [frame.place for frame in left]
    for frame, known in zip(outcome.frames, left, strict=True):
        assert frame.payload.tobytes() == b"".join(r.payload for r in known.records)
        assert frame.source_id == known.source
        assert {frame.topics[int(ref)].name for ref in frame.topic_refs} == {
            record.topic for record in known.records
        }


def check_repeat(directory: str) -> RepairReport:
    """A second repair finds nothing to do and changes nothing."""
    files = load_directory(directory)
    again = repair(FS, directory)
    assert again.repairs == ()
    assert again.before.problems == again.after.problems
    changed = {p for p, d in load_directory(directory).items() if files.get(p) != d}
    assert {os.path.basename(path) for path in changed} <= {"LOCK"}
    return again


def test_a_lost_mark_is_rebuilt(log: SmallLog) -> None:
    """What is intact is exposed again, as the next open would do."""
    os.unlink(os.path.join(log.directory, MARK_FILE))
    report = repair(FS, log.directory)
    assert report.after.problems == ()
    assert [str(item) for item in report.repairs] == [
        f"durable was missing or damaged: rebuilt, it says 0:{log.frames[-1].position}"
    ]
    check_served(log, [])
    check_repeat(log.directory)


def test_a_segment_gets_its_own_name_back(log: SmallLog) -> None:
    """A renamed file is found by its header; the gap that it left is closed."""
    path = log.segments[1]
    os.rename(path, os.path.join(log.directory, "backup.wal"))
    assert len(fsck(FS, log.directory).problems) == 2
    report = repair(FS, log.directory)
    assert report.after.problems == ()
    assert Path(path).read_bytes() == log.files[path]
    check_served(log, [])


def test_files_that_are_no_segments_are_renamed(log: SmallLog) -> None:
    """A stray file, a copy of a segment, and foreign bytes under a segment's name."""
    folder = Path(log.directory)
    (folder / "stray.wal").write_bytes(b"x")
    (folder / "copy.wal").write_bytes(log.files[log.segments[0]])
    Path(log.segments[2]).write_bytes(b"not ours" * 100)
    report = repair(FS, log.directory)
    gone = log.file_frames(log.segments[2])
    assert list(report.after.problems) == [
        f"a segment is missing before {os.path.basename(log.segments[3])}; positions "
        f"0:{gone[0].position} to 0:{gone[-1].position} are lost"
    ]
    assert (folder / "stray.wal.damaged").read_bytes() == b"x"
    assert (folder / "copy.wal.damaged").read_bytes() == log.files[log.segments[0]]
    assert Path(f"{log.segments[2]}.damaged").read_bytes() == b"not ours" * 100
    check_served(log, gone)
    check_repeat(log.directory)


def test_a_segment_of_another_log_gets_no_name_here(log: SmallLog, tmp_path: Path) -> None:
    """Two epochs under one ordinal would make the log unreadable."""
    other = write_small_log(str(tmp_path / "other"), 2_000, segment_bytes=1 << 20)
    (Path(log.directory) / "x.wal").write_bytes(other.files[other.segments[0]])
    report = repair(FS, log.directory)
    assert report.after.problems == ()
    assert (Path(log.directory) / "x.wal.damaged").exists()
    check_served(log, [])


def test_another_version_is_refused_and_nothing_changed(log: SmallLog) -> None:
    """A newer log is not damage; not even a stray file beside it is touched."""
    data = bytearray(log.files[log.segments[1]])
    for at in (0, 80):
        data[at + 8 : at + 12] = (9).to_bytes(4, "little")
        data[at + 76 : at + 80] = crc32c(bytes(data[at : at + 76])).to_bytes(4, "little")
    Path(log.segments[1]).write_bytes(data)
    (Path(log.directory) / "stray.wal").write_bytes(b"x")
    files = load_directory(log.directory)
    with pytest.raises(FormatError, match="version 9"):
        repair(FS, log.directory)
    changed = {p for p, d in load_directory(log.directory).items() if files.get(p) != d}
    assert {os.path.basename(path) for path in changed} <= {"LOCK"}


def test_a_held_lock_refuses_and_names_the_holder(open_writer: OpenWriter, wal_dir: str) -> None:
    """A repair under a writer's feet would be damage of its own."""
    open_writer()
    with pytest.raises(LockHeldError, match=re.escape(f"thadam WAL writer (pid {os.getpid()})")):
        repair(FS, wal_dir)


def test_a_full_disk_leaves_everything_as_it_was(log: SmallLog) -> None:
    """Without room for the copy nothing is written over."""
    flip(log.segments[0], 85)
    before = Path(log.segments[0]).read_bytes()
    fs = FaultyFileSystem()
    fs.fail("pwrite_all", 28)
    with pytest.raises(OSError, match="No space left"):
        repair(fs, log.directory)
    assert Path(log.segments[0]).read_bytes() == before
    assert kept_bytes(log.directory) == []
    fs.mend()
    assert repair(fs, log.directory).after.problems == ()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), hits=st.integers(1, 4))
def test_whatever_is_hit_no_byte_is_destroyed_and_every_intact_frame_is_served(
    tmp_path_factory: pytest.TempPathFactory, seed: int, hits: int
) -> None:
    """Random runs of garbage: what is written over stands in a file beside it."""
    directory = str(tmp_path_factory.mktemp("log") / "wal")
    log = write_small_log(directory, 6 << 10, segment_bytes=2 << 10, seed=seed)
    rng = random.Random(seed)
    changed: list[tuple[str, int, int]] = []
    for _ in range(hits):
        path = rng.choice(log.segments)
        size = len(log.files[path])
        at = rng.randrange(size)
        count = min(rng.choice((1, 4, 200)), size - at)
        flip(path, at, count)
        changed.append((path, at, count))
    damaged = load_directory(directory)
    repair(FS, directory)
    for path, at, count in changed:
        for offset in range(at, at + count):
            assert damaged[path][offset] in bytes_known(directory, path, offset)
    outcome = read_all(FS, directory)
    served = set(outcome.places)
    for frame in log.frames:
        path = os.path.join(directory, frame.file)
        if damaged[path][frame.start : frame.end] == log.files[path][frame.start : frame.end]:
            assert frame.place in served
    known = {frame.place for frame in log.frames}
    assert served <= known
    assert all(
        any(item.loses(Position(*place)) for item in outcome.ranges) for place in known - served
    )
    check_repeat(directory)
