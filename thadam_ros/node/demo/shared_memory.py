# SPDX-License-Identifier: Apache-2.0
"""Shared memory of Fast DDS that a killed process leaves in /dev/shm.

A process that ends removes its segment; after a SIGKILL nobody does, and half a megabyte stays
until ``fastdds shm clean`` or a reboot. The demo kills on purpose, so it sweeps up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

_FOLDER = Path("/dev/shm")
_MAPPED = re.compile(r" /dev/shm/((?:fastdds|fastrtps)_[0-9a-f]{16})(?: \(deleted\))?$")
_PORT = re.compile(r"(?:sem\.)?(?:fastdds|fastrtps)_port(\d+)(?:_el|_sl|_mutex)?")
#: Port numbers of a DDS domain (RTPS 9.6.1.1).
_PORT_BASE = 7_400
_PORTS_PER_DOMAIN = 250


def mapped_segments(pid: int) -> set[str]:
    """Return the segments a process has mapped, its own and those of its peers."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return {found[1] for line in lines.splitlines() if (found := _MAPPED.search(line))}


def sweep(segments: Iterable[str], domain: int, folder: Path = _FOLDER) -> int:
    """Remove dead segments and the ports of a domain in which nobody is left.

    Args:
        segments: Names from :func:`mapped_segments`; those with a living owner stay.
        domain: Reserved by the caller, whose processes have all ended.

    Returns:
        Number of files removed.
    """
    removed = sum(_remove_dead(folder, name) for name in segments)
    first = _PORT_BASE + _PORTS_PER_DOMAIN * domain
    for path in folder.iterdir() if folder.is_dir() else ():
        port = _PORT.fullmatch(path.name)
        if port is not None and first <= int(port[1]) < first + _PORTS_PER_DOMAIN:
            removed += _unlink(path)
    return removed


def _remove_dead(folder: Path, name: str) -> int:
    """Remove a segment whose owner no longer holds the lock on its ``_el`` file."""
    lock = folder / f"{name}_el"
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0
    else:
        return _unlink(folder / name) + _unlink(lock)
    finally:
        os.close(fd)


def _unlink(path: Path) -> int:
    with contextlib.suppress(OSError):
        path.unlink()
        return 1
    return 0
