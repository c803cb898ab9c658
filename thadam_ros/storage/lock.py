# SPDX-License-Identifier: Apache-2.0
"""Directory locks: flock on a file that says who holds it (spec 1.5)."""

from __future__ import annotations

import errno
import fcntl
import os
from types import TracebackType

from thadam_ros.errors import LockHeldError


class DirectoryLock:
    """An exclusive flock on ``<directory>/LOCK``, released when the process ends, however it ends.

    The real filesystem is used on purpose: a lock is a fact of the running kernel, not of the disk.

    Raises:
        LockHeldError: If another process (or another lock object) holds it; names the holder.
    """

    def __init__(self, directory: str, owner: str, filename: str = "LOCK") -> None:
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, filename)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = os.pread(self._fd, 256, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            self._fd = -1
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise LockHeldError(
                f"{self.path} is held by {holder or 'an unnamed process'}; stop it first, "
                "or give this one its own directory"
            ) from exc
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{owner} (pid {os.getpid()})\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
