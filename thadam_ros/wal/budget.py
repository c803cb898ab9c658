# SPDX-License-Identifier: Apache-2.0
"""What a log may take of its filesystem, and what it takes (spec 2, budgets)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from thadam_ros.config.schema import WalConfig
from thadam_ros.errors import FormatError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import SegmentName, list_segments

_GIB: Final = 1 << 30
BUDGET_BYTES_MAX: Final = 20 * _GIB
MIN_FREE_BYTES_MIN: Final = 2 * _GIB
#: Used where a filesystem does not say how much is free.
UNLIMITED: Final = 1 << 62
#: A chain looks at the disk at most this often.
_LOOK_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What a log takes, and what its filesystem has left.

    Attributes:
        used_bytes: Bytes of all segment files.
        free_bytes: Bytes that are free on the filesystem.
        refused: The last write was refused by disk or quota, whatever the figures say.
    """

    used_bytes: int
    free_bytes: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits in force, defaults worked out.

    Attributes:
        budget_bytes: Most that all segments may take.
        min_free_bytes: What capture leaves free on the filesystem.
        replay_window_bytes: What is kept although every chain has passed it.
        segment_bytes: Size at which a segment ends: as configured, but small enough that what
            is over can be deleted, for the newest segment never is.
        drop_oldest: At the budget the oldest segment yields; else new messages.
        free_known: The filesystem says how large it is and what is free.
    """

    budget_bytes: int
    min_free_bytes: int
    replay_window_bytes: int
    segment_bytes: int
    drop_oldest: bool
    free_known: bool = True

    @property
    def headroom_bytes(self) -> int:
        """How far below a limit segments yield already, so that capture does not touch it."""
        return min(self.segment_bytes, self.budget_bytes // 8)

    def excess_bytes(self, usage: Usage) -> int:
        """Return how much has to go so that capture has headroom; 0 when it has."""
        over_budget = usage.used_bytes - (self.budget_bytes - self.headroom_bytes)
        over_free = self.min_free_bytes + self.headroom_bytes - usage.free_bytes
        return max(0, over_budget, over_free, self.headroom_bytes if usage.refused else 0)

    def pressed(self, usage: Usage) -> bool:
        """Tell whether less than a fifth of the budget is left to either limit (spec 5.2)."""
        margin = self.budget_bytes // 5
        return (
            usage.used_bytes > self.budget_bytes - margin
            or usage.free_bytes < self.min_free_bytes + margin
        )


def effective_budget(config: WalConfig, total_bytes: int) -> Budget:
    """Work out the limits for a filesystem of ``total_bytes``, 0 when it does not say.

    A default never asks for more than a filesystem has: ``min_free`` is at most a quarter of it,
    else a disk below 8 GiB could not be captured to at all. What is configured stands as it is.
    """
    budget, min_free = config.budget_bytes, config.min_free_bytes
    if budget is None:
        budget = min(BUDGET_BYTES_MAX, total_bytes // 5) if total_bytes else BUDGET_BYTES_MAX
    if min_free is None:
        min_free = min(max(MIN_FREE_BYTES_MIN, total_bytes // 20), total_bytes // 4)
    segment = min(config.segment_bytes, budget // 2)
    if total_bytes > min_free:
        segment = min(segment, (total_bytes - min_free) // 4)
    window = config.replay_window_bytes
    return Budget(
        budget_bytes=budget,
        min_free_bytes=min_free if total_bytes else 0,
        replay_window_bytes=budget // 4 if window is None else window,
        segment_bytes=max(1, segment),
        drop_oldest=config.when_full == "drop_oldest",
        free_known=total_bytes > 0,
    )


def measure_budget(fs: FileSystem, directory: str, config: WalConfig) -> Budget:
    """Return the limits for the filesystem of ``directory``, which may not exist yet.

    Raises:
        OSError: From the filesystem.
    """
    while not fs.exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return effective_budget(config, fs.total_bytes(directory))


def measure_free(fs: FileSystem, directory: str, budget: Budget) -> int:
    """Return the free bytes of the filesystem of ``directory``.

    Raises:
        OSError: From the filesystem.
    """
    return fs.free_bytes(directory) if budget.free_known else UNLIMITED


class SegmentSizes:
    """Sizes of a log's segments; those that no longer grow are looked up once."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._closed: dict[SegmentName, int] = {}

    def measure(self) -> list[tuple[SegmentName, int]]:
        """Return every segment with its size, oldest first.

        Raises:
            FormatError: Segments of two logs are mixed.
            OSError: From the filesystem.
        """
        names = list_segments(self._fs, self._directory)
        known = self._closed
        self._closed = {}
        found: list[tuple[SegmentName, int]] = []
        for name in names:
            size = known.get(name)
            if size is None:
                try:
                    size = self._fs.size(os.path.join(self._directory, name.filename))
                except FileNotFoundError:
                    # Deleted since it was listed.
                    continue
            if name != names[-1]:
                self._closed[name] = size
            found.append((name, size))
        return found


class PressureGauge:
    """Tells a chain, in any process, that an early cut would let a segment go (spec 5.2)."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: WalConfig,
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._monotonic_ns = monotonic_ns
        self._sizes = SegmentSizes(fs, directory)
        self._lock = threading.Lock()
        self._looked_ns: int | None = None
        self._newest: Position | None = None
        self.budget = measure_budget(fs, directory, config)

    def pressed(self, cursor: Position) -> bool:
        """Tell whether space is short and ``cursor`` keeps a segment that is no longer written.

        Looks at the disk once a second; in between it is free. While the log cannot be looked
        at nothing is pressed: who reads and writes it says what is wrong.
        """
        now = self._monotonic_ns()
        with self._lock:
            if self._looked_ns is None or now - self._looked_ns >= _LOOK_NS:
                self._looked_ns = now
                self._newest = self._look()
            return self._newest is not None and cursor < self._newest

    def _look(self) -> Position | None:
        """Return the place before the newest segment while space is short."""
        try:
            segments = self._sizes.measure()
            if len(segments) < 2:
                return None
            used = sum(size for _, size in segments)
            free = measure_free(self._fs, self._directory, self.budget)
        except (OSError, FormatError):
            return None
        if not self.budget.pressed(Usage(used, free)):
            return None
        newest = segments[-1][0]
        return Position(newest.ordinal, newest.first - 1)
