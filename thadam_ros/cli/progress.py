# SPDX-License-Identifier: Apache-2.0
"""One line on a terminal that says how far something is; nothing where no person reads."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, Final

from thadam_ros.cli.terminal import human_bytes, is_terminal

_EVERY_S: Final = 0.1
_WIDTH: Final = 78


class Progress:
    """Rewrites its line at most ten times a second; a context manager that clears it."""

    def __init__(self, what: str, total: int | None = None, stream: IO[str] | None = None) -> None:
        """Prepare a line such as ``exported 120000 of 500000 messages, 43.1 MiB``."""
        self._what = what
        self._total = total
        self._out = sys.stderr if stream is None else stream
        self._shown = is_terminal(self._out)
        self._next_s = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown and self._next_s:
            self._out.write("\r" + " " * _WIDTH + "\r")
            self._out.flush()

    def update(self, messages: int, size: int) -> None:
        """Say how many messages and payload bytes are done."""
        if not self._shown or (now_s := time.monotonic()) < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        of = f" of {self._total}" if self._total else ""
        line = f"{self._what} {messages}{of} messages, {human_bytes(size)}"
        self._out.write("\r" + line[:_WIDTH].ljust(_WIDTH))
        self._out.flush()
