# SPDX-License-Identifier: Apache-2.0
"""When a cut is due and what it commits (spec 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from thadam_ros.model.position import Position

#: A WAL short of space asks for a cut this often at most, so that objects do not become tiny.
PRESSED_AGE_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CutRecord:
    """What a stamp commits: the boundary, its state and its number."""

    cut_no: int
    last: Position
    epoch: int
    state: bytes


@dataclass(frozen=True, slots=True)
class CutPolicy:
    """Limits that make a cut due.

    Attributes:
        max_age_ns: Age of the oldest unstamped submission, with or without rows.
        cut_bytes: Arrow bytes of rows, held or published since the last cut.
        pressed: Tells that the WAL is short of space and a cut would help; asked often, cheap.
    """

    max_age_ns: int
    cut_bytes: int
    pressed: Callable[[], bool] = lambda: False

    @property
    def pressed_age_ns(self) -> int:
        """Age at which a cut is due while the WAL is short of space: not each submission's own."""
        return min(self.max_age_ns, PRESSED_AGE_NS)

    def due(self, oldest_ns: int | None, now_ns: int, cut_bytes: int, requested: bool) -> bool:
        """Tell whether a cut is due; ``oldest_ns`` and ``now_ns`` are monotonic."""
        if oldest_ns is None:
            return False
        age_ns = now_ns - oldest_ns
        return (
            requested
            or age_ns >= self.max_age_ns
            or cut_bytes >= self.cut_bytes
            or (age_ns >= self.pressed_age_ns and self.pressed())
        )
