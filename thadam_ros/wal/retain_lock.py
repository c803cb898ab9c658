# SPDX-License-Identifier: Apache-2.0
"""``wal/RETAIN.lock``: nobody lowers a cursor while segments are deleted (spec 2)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from typing import Final

RETAIN_LOCK_FILE: Final = "RETAIN.lock"


@contextlib.contextmanager
def hold_segments(directory: str) -> Iterator[None]:
    """Keep every segment of ``directory`` where it is: taken to lower a cursor.

    Shared, and waits for a deletion pass, which is short. A log that does not exist has nothing
    to keep. Like every lock it is a fact of the running kernel, not of the simulated disk.

    Raises:
        OSError: From the filesystem.
    """
    if not os.path.isdir(directory):
        yield
        return
    fd = _open(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def delete_segments(directory: str) -> Iterator[bool]:
    """Exclude everyone who lowers a cursor; yields False when one is at it.

    Raises:
        OSError: From the filesystem.
    """
    fd = _open(directory)
    try:
        free = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            free = False
        yield free
    finally:
        os.close(fd)


def _open(directory: str) -> int:
    # Made where it is missing, for simulated disks whose folders the kernel does not know.
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, RETAIN_LOCK_FILE)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
