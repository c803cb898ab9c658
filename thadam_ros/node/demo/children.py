# SPDX-License-Identifier: Apache-2.0
"""Processes that never outlive the demo.

Each child is the leader of a group of its own and is killed by the kernel when the demo dies, in
whatever way. Nothing is ended but what was started here, by its id.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from thadam_ros.node.demo.shared_memory import mapped_segments

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with(parent: int) -> Callable[[], None]:
    def arrange() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the line above.
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return arrange


@dataclass(slots=True)
class Child:
    """One process; its output goes to ``log``.

    Attributes:
        segments: Shared memory it may have left behind when it was killed.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: str
    segments: set[str] = field(default_factory=set)

    @property
    def pid(self) -> int:
        """Process id, also of the group."""
        return self.process.pid

    def returncode(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self.process.poll()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process and whatever it started; nothing when all are gone."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        """SIGKILL, and take the exit code."""
        if self.process.poll() is None:
            self.segments |= mapped_segments(self.pid)
            self.signal_group(signal.SIGKILL)
            self.process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the output."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-lines:])
        except FileNotFoundError:
            return ""


class Children:
    """All children of the demo."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: str
    ) -> Child:
        """Start a process; its output is appended to ``log``.

        Raises:
            OSError: If it cannot be started.
        """
        with open(log, "ab") as output:
            # A signal between fork and the list would leave a child that nobody knows.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            try:
                process = subprocess.Popen(
                    list(argv),
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with(os.getpid()),
                )
                child = Child(name, process, log)
                self._all.append(child)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return child

    def close(self, patience_s: float) -> None:
        """Ask all to end, wait, then kill what is left; may be called again."""
        running = [child for child in self._all if child.returncode() is None]
        for child in running:
            child.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        for child in running:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
        self.kill()

    def kill(self) -> None:
        """SIGKILL everything at once; may be called again."""
        for child in self._all:
            child.kill()

    def segments(self) -> set[str]:
        """Return the shared memory that killed children may have left behind."""
        return set().union(*(child.segments for child in self._all))
