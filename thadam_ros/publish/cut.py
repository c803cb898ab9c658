# SPDX-License-Identifier: Apache-2.0
"""When a cut is due and what it commits (spec 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

from thadam_ros.model.position import Position


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
    """

    max_age_ns: int
    cut_bytes: int

    def due(self, oldest_ns: int | None, now_ns: int, cut_bytes: int, requested: bool) -> bool:
        """Tell whether a cut is due; ``oldest_ns`` and ``now_ns`` are monotonic."""
        if oldest_ns is None:
            return False
        return requested or now_ns - oldest_ns >= self.max_age_ns or cut_bytes >= self.cut_bytes
