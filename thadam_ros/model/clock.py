# SPDX-License-Identifier: Apache-2.0
"""Clocks, passed in wherever time matters so that tests can inject their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """What the product may ask of time."""

    def time_ns(self) -> int:
        """Wall clock, ns since the Unix epoch. For stamps only, never for durations."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, ns. For durations and timeouts."""

    def boottime_ns(self) -> int:
        """CLOCK_BOOTTIME, ns since boot, suspends included."""

    def boot_id(self) -> bytes:
        """16 bytes that name this boot."""


class SystemClock:
    """The machine's own clocks."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def boottime_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def boot_id(self) -> bytes:
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        except OSError:
            # Without procfs every boot looks alike: stale claims are then found by time alone.
            return bytes(16)
        return bytes.fromhex(text.strip().replace("-", ""))
