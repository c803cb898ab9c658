# SPDX-License-Identifier: Apache-2.0
"""The filesystem as the product sees it, passed in so that tests can put a simulated disk there.

Only these calls touch durable data. Errors are the operating system's own ``OSError``; the
callers decide what ENOSPC, EIO and the rest mean.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Protocol


class PageMap(Protocol):
    """Bytes of a file that follow what other processes write into it."""

    def __getitem__(self, key: slice) -> bytes: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """File operations on absolute paths and file descriptors."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int: ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, size: int, offset: int) -> bytes: ...

    def map_readonly(self, fd: int, size: int) -> PageMap:
        """Map the first ``size`` bytes, shared with every process; outlives ``fd``."""

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        """Write all buffers one after another at ``offset``; return the bytes written."""

    def fdatasync(self, fd: int) -> None: ...

    def fsync(self, fd: int) -> None: ...

    def ftruncate(self, fd: int, size: int) -> None: ...

    def size(self, path: str) -> int: ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def makedirs(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Return what an ordinary user may still write on the filesystem of ``path``."""

    def total_bytes(self, path: str) -> int:
        """Return the size of the filesystem of ``path``, 0 where it does not say."""


class OsFileSystem:
    """The real thing."""

    #: Linux allows at most IOV_MAX (1024) buffers a call.
    _IOV_MAX = 1024

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        chunks: list[bytes] = []
        while size > 0:
            chunk = os.pread(fd, size, offset)
            if not chunk:
                break
            chunks.append(chunk)
            size -= len(chunk)
            offset += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def map_readonly(self, fd: int, size: int) -> PageMap:
        return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        pending = [memoryview(b).cast("B") for b in buffers if len(b)]
        total = sum(len(b) for b in pending)
        first = 0
        while first < len(pending):
            written = os.pwritev(fd, pending[first : first + self._IOV_MAX], offset)
            offset += written
            # A short write is legal: continue inside the buffer where it stopped.
            while first < len(pending) and written >= len(pending[first]):
                written -= len(pending[first])
                first += 1
            if written:
                pending[first] = pending[first][written:]
        return total

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def total_bytes(self, path: str) -> int:
        disk = os.statvfs(path)
        return disk.f_blocks * disk.f_frsize
