# SPDX-License-Identifier: Apache-2.0
"""Promises of the cursor file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thadam_ros.chain.cursor import Cursor, CursorStore, read_cursor
from thadam_ros.errors import FormatError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem


class StoppingFileSystem(OsFileSystem):
    """Raises at the n-th call that changes the disk, as a crash there would end the process."""

    def __init__(self, stop_at: int) -> None:
        self.calls = 0
        self.stop_at = stop_at

    def _tick(self) -> None:
        self.calls += 1
        if self.calls == self.stop_at:
            raise OSError(5, "injected")

    def fsync(self, fd: int) -> None:
        self._tick()
        super().fsync(fd)

    def rename(self, source: str, target: str) -> None:
        self._tick()
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self._tick()
        super().fsync_dir(path)

    def unlink(self, path: str) -> None:
        self._tick()
        super().unlink(path)


def _cursor(number: int) -> Cursor:
    return Cursor(Position(0, number * 10), epoch=77, cut_no=number)


def test_a_chain_that_never_stamped_has_no_cursor(tmp_path: Path) -> None:
    """A new folder yields neither cursor nor state."""
    assert CursorStore(str(tmp_path), OsFileSystem()).load() == (None, None)


def test_cursor_and_state_come_back_as_committed(tmp_path: Path) -> None:
    """The newest commit wins and older state files are gone."""
    store = CursorStore(str(tmp_path), OsFileSystem())
    for number in (1, 2, 3):
        store.commit(_cursor(number), b"state %d" % number)
    assert CursorStore(str(tmp_path), OsFileSystem()).load() == (_cursor(3), b"state 3")
    assert sorted(os.listdir(tmp_path)) == ["cursor", "state-3"]


def test_an_interrupted_commit_leaves_the_old_or_the_new_pair_never_a_mixture(
    tmp_path: Path,
) -> None:
    """Stopping at every single filesystem step keeps cursor and state together."""
    seen = set()
    for stop_at in range(1, 40):
        directory = tmp_path / str(stop_at)
        directory.mkdir()
        CursorStore(str(directory), OsFileSystem()).commit(_cursor(1), b"one")
        failing = StoppingFileSystem(stop_at)
        try:
            CursorStore(str(directory), failing).commit(_cursor(2), b"two")
        except OSError:
            pass
        else:
            break
        pair = CursorStore(str(directory), OsFileSystem()).load()
        assert pair in ((_cursor(1), b"one"), (_cursor(2), b"two"))
        assert len(os.listdir(directory)) == 2, "leftovers are swept on load"
        seen.add(pair[1])
    assert seen == {b"one", b"two"}
    assert stop_at > 5


@pytest.mark.parametrize("byte", range(0, 150, 7))
def test_a_damaged_cursor_is_refused_with_its_name(tmp_path: Path, byte: int) -> None:
    """Any flipped byte is noticed."""
    CursorStore(str(tmp_path), OsFileSystem()).commit(_cursor(1), b"one")
    path = tmp_path / "cursor"
    raw = bytearray(path.read_bytes())
    raw[byte % len(raw)] ^= 0x01
    path.write_bytes(bytes(raw))
    with pytest.raises(FormatError, match="cursor"):
        CursorStore(str(tmp_path), OsFileSystem()).load()


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    """The cursor's checksum of the state is compared."""
    CursorStore(str(tmp_path), OsFileSystem()).commit(_cursor(1), b"one")
    (tmp_path / "state-1").write_bytes(b"One")
    with pytest.raises(FormatError, match="state-1"):
        CursorStore(str(tmp_path), OsFileSystem()).load()


def test_reading_a_cursor_from_outside_changes_nothing(tmp_path: Path) -> None:
    """Other processes look at the cursor without sweeping the owner's files."""
    CursorStore(str(tmp_path), OsFileSystem()).commit(_cursor(4), b"four")
    (tmp_path / "state-5").write_bytes(b"being written")
    assert read_cursor(str(tmp_path), OsFileSystem()) == _cursor(4)
    assert (tmp_path / "state-5").exists()
