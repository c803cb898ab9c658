# SPDX-License-Identifier: Apache-2.0
"""Whole files: replaced at once, read at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from thadam_ros.storage.atomic import read_whole, replace_durably
from thadam_ros.storage.filesystem import OsFileSystem


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_a_file_of_any_size_is_read_whole(tmp_path: Path, size: int) -> None:
    """Also where it ends exactly with a read."""
    data = bytes(range(256)) * (size // 256 + 1)
    path = str(tmp_path / "file")
    replace_durably(OsFileSystem(), path, data[:size])
    assert read_whole(OsFileSystem(), path) == data[:size]


def test_a_file_that_is_replaced_while_it_is_read_is_the_old_or_the_new_one(
    tmp_path: Path,
) -> None:
    """A longer successor is never cut to the size of the file before it."""
    path = str(tmp_path / "file")
    replace_durably(OsFileSystem(), path, b"old")

    class Replacing(OsFileSystem):
        """Replaces the file right before or after it is opened."""

        def __init__(self, before: bool) -> None:
            self.before = before

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if self.before:
                replace_durably(OsFileSystem(), path, b"longer than before")
            fd = super().open(path, flags, mode)
            if not self.before:
                replace_durably(OsFileSystem(), path, b"short")
            return fd

    assert read_whole(Replacing(True), path) == b"longer than before"
    assert read_whole(Replacing(False), path) == b"longer than before"
