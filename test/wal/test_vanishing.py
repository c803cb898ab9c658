# SPDX-License-Identifier: Apache-2.0
"""Readers whose segments are deleted under them: a gap with its positions, then the rest."""

from __future__ import annotations

import os

import pytest

from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import make_batch
from thadam_ros.wal.layout import parse_segment_name
from thadam_ros.wal.ranges import Gap
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.writer import WalWriter

from .conftest import OpenWriter
from .test_writer import DEADLINE_S

PAYLOAD = b"p" * 500


def segments(directory: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.endswith(".wal"))


def first_of(name: str) -> int:
    parsed = parse_segment_name(name)
    assert parsed is not None
    return parsed.first


def write(writer: WalWriter, frames: int) -> None:
    for _ in range(frames):
        assert writer.append(make_batch([PAYLOAD]))
        assert writer.flush(DEADLINE_S)


def drain(reader: WalReader) -> list[int]:
    found: list[int] = []
    while frames := reader.read(3, 1 << 20):
        found += [frame.position for frame in frames]
    return found


@pytest.mark.parametrize("removed", [1, 2, 4])
def test_an_open_segment_is_read_to_its_end_and_the_rest_is_a_gap(
    open_writer: OpenWriter, wal_dir: str, removed: int
) -> None:
    """Also when the file grew after it was opened; nothing is called damage."""
    writer = open_writer(segment_bytes=4_000)
    write(writer, 2)
    reader = WalReader(wal_dir, fs=OsFileSystem())
    assert len(reader.read(1, 1 << 20)) == 1
    write(writer, 40)
    names = segments(wal_dir)
    for name in names[:removed]:
        os.unlink(os.path.join(wal_dir, name))
    own_end, goes_on = first_of(names[1]), first_of(names[removed])
    assert drain(reader) == [*range(1, own_end), *range(goes_on, 42)]
    gap = Gap(Position(0, own_end), Position(0, goes_on - 1), names[removed])
    assert reader.gaps == ((gap,) if removed > 1 else ())
    assert reader.gap_frames == goes_on - own_end
    assert reader.damage == ()
    reader.close()


def test_a_segment_that_goes_between_listing_and_opening_ends_no_read(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The same call finds what comes after it: an early [] would look like the end."""

    class Racing(OsFileSystem):
        """Deletes a segment right before it is opened."""

        def __init__(self) -> None:
            self.victims: list[str] = []

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if os.path.basename(path) in self.victims:
                os.unlink(path)
                self.victims.remove(os.path.basename(path))
            return super().open(path, flags, mode)

    fs = Racing()
    writer = open_writer(segment_bytes=4_000)
    write(writer, 40)
    names = segments(wal_dir)
    fs.victims = [names[0], names[1], names[3]]
    reader = WalReader(wal_dir, fs=fs)
    # From the beginning of what there is: the first two are no gap.
    assert [f.position for f in reader.read(1, 1 << 20)] == [first_of(names[2])]
    assert drain(reader) == [
        *range(first_of(names[2]) + 1, first_of(names[3])),
        *range(first_of(names[4]), 40),
    ]
    assert [(gap.first.frame, gap.last.frame) for gap in reader.gaps] == [
        (first_of(names[3]), first_of(names[4]) - 1)
    ]
    reader.close()


@pytest.mark.parametrize("from_first", [True, False])
def test_a_beginning_that_is_gone_is_a_gap_for_who_is_owed_it(
    open_writer: OpenWriter, wal_dir: str, from_first: bool
) -> None:
    """A chain that started with the first frame is told; who reads what there is, is not."""
    writer = open_writer(segment_bytes=4_000)
    write(writer, 20)
    names = segments(wal_dir)
    os.unlink(os.path.join(wal_dir, names[0]))
    reader = WalReader(wal_dir, fs=OsFileSystem(), after=BEFORE_ALL, from_first=from_first)
    assert drain(reader) == list(range(first_of(names[1]), 20))
    expected = Gap(Position(0, 0), Position(0, first_of(names[1]) - 1), names[1])
    assert reader.gaps == ((expected,) if from_first else ())
    reader.close()


def test_the_backlog_is_still_measured_when_its_segment_is_gone(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """Frames stay what the cursor lacks; bytes are those that are there."""
    writer = open_writer(segment_bytes=4_000)
    write(writer, 20)
    reader = WalReader(wal_dir, fs=OsFileSystem())
    after = Position(0, 1)
    before = reader.backlog(after)
    names = segments(wal_dir)
    os.unlink(os.path.join(wal_dir, names[0]))
    assert reader.backlog(after) == before
    os.unlink(os.path.join(wal_dir, names[1]))
    backlog = reader.backlog(after)
    assert backlog.frames == 18
    assert 0 < backlog.bytes < before.bytes
    reader.close()
