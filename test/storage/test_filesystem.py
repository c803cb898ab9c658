# SPDX-License-Identifier: Apache-2.0
"""Promises of durable files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.errors import LockHeldError
from thadam_ros.storage.atomic import read_whole, replace_durably
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.storage.lock import DirectoryLock


def test_many_buffers_are_written_whole_in_order(tmp_path: Path) -> None:
    """More buffers than one vectored write takes, empty ones among them."""
    fs = OsFileSystem()
    buffers = [b"%d," % i if i % 3 else b"" for i in range(3000)]
    fd = fs.open(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    assert fs.pwrite_all(fd, buffers, 5) == len(b"".join(buffers))
    assert fs.pread(fd, 1 << 20, 5) == b"".join(buffers)
    fs.close(fd)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take any prefix; the rest follows at the right offset."""
    real = os.pwritev

    def short(fd: int, buffers: list[memoryview], offset: int) -> int:
        return real(fd, [buffers[0][:3]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    fs = OsFileSystem()
    fd = fs.open(str(tmp_path / "f"), os.O_RDWR | os.O_CREAT)
    fs.pwrite_all(fd, [b"abcdefgh", b"ij", b"klmn"], 0)
    assert fs.pread(fd, 100, 0) == b"abcdefghijklmn"
    fs.close(fd)


def test_a_replaced_file_holds_the_new_content_and_no_leftover(tmp_path: Path) -> None:
    """Replacement is by rename."""
    fs = OsFileSystem()
    path = str(tmp_path / "f")
    replace_durably(fs, path, b"old and long")
    replace_durably(fs, path, b"new")
    assert read_whole(fs, path) == b"new"
    assert os.listdir(tmp_path) == ["f"]


def test_a_held_lock_says_who_holds_it(tmp_path: Path) -> None:
    """The second holder learns name and pid of the first, from another process too."""
    with DirectoryLock(str(tmp_path), "thadam_lake"):
        with pytest.raises(LockHeldError, match=rf"thadam_lake \(pid {os.getpid()}\)"):
            DirectoryLock(str(tmp_path), "other")
        code = (
            "import sys; from thadam_ros.storage.lock import DirectoryLock;"
            "DirectoryLock(sys.argv[1], 'other')"
        )
        child = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert child.returncode != 0
        assert "thadam_lake" in child.stderr
    DirectoryLock(str(tmp_path), "next").release()
