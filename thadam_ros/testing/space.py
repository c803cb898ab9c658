# SPDX-License-Identifier: Apache-2.0
"""A disk whose size and free space a test decides."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from thadam_ros.storage.filesystem import OsFileSystem


class SettableSpace(OsFileSystem):
    """The real filesystem that claims to have as much room as it is told.

    Attributes:
        total: Bytes of the whole disk.
        free: Bytes free for everyone; writing does not change it.
        full: Writes into segments are refused with ENOSPC.
    """

    def __init__(self, total: int = 100 << 30, free: int = 50 << 30) -> None:
        self.total = total
        self.free = free
        self.full = False

    def free_bytes(self, path: str) -> int:
        os.stat(path)
        return self.free

    def total_bytes(self, path: str) -> int:
        os.stat(path)
        return self.total

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite_all(fd, buffers, offset)
