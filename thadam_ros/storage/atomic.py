# SPDX-License-Identifier: Apache-2.0
"""Durable replacement of a whole file: temp, fsync, rename, fsync directory (spec 1.5)."""

from __future__ import annotations

import os

from thadam_ros.storage.filesystem import FileSystem

#: Suffix of files that are not yet renamed; swept on open, never read.
TEMP_SUFFIX = ".tmp"
_READ_BYTES = 1 << 20


def replace_durably(fs: FileSystem, path: str, data: bytes) -> None:
    """Make ``path`` hold exactly ``data``; after a crash it holds the old or the new content.

    Raises:
        OSError: From the filesystem; the old content is untouched then.
    """
    temp = path + TEMP_SUFFIX
    fd = fs.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        fs.pwrite_all(fd, [data], 0)
        fs.fsync(fd)
    finally:
        fs.close(fd)
    fs.rename(temp, path)
    fs.fsync_dir(os.path.dirname(path))


def read_whole(fs: FileSystem, path: str) -> bytes:
    """Return the content of ``path``.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    # Never by the size of the path: the file may be replaced by a longer one in between.
    fd = fs.open(path, os.O_RDONLY)
    try:
        chunks = [fs.pread(fd, _READ_BYTES, 0)]
        while len(chunks[-1]) == _READ_BYTES:
            chunks.append(fs.pread(fd, _READ_BYTES, _READ_BYTES * len(chunks)))
        return b"".join(chunks)
    finally:
        fs.close(fd)
