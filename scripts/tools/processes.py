# SPDX-License-Identifier: Apache-2.0
"""Processes that are found again by a mark in their environment (standard library only)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

KILL_AFTER_S = 5.0


def marked(variable: str, value: str) -> dict[int, str]:
    """Living processes started with ``variable=value``, this one not counted: pid -> command."""
    mark = f"{variable}={value}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if pid != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[pid] = command.strip()
        except OSError:
            continue  # ended meanwhile, or belongs to somebody else
    return found


def settle(variable: str, value: str, grace_s: float) -> dict[int, str]:
    """Waits until none is left; what is left after ``grace_s`` is returned."""
    deadline = time.monotonic() + grace_s
    while (left := marked(variable, value)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def stop(variable: str, value: str) -> None:
    """Ends what is left: SIGTERM, after five seconds SIGKILL."""
    for sig, grace_s in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, 1.0)):
        for pid in marked(variable, value):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        if not settle(variable, value, grace_s):
            return
