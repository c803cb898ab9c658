# SPDX-License-Identifier: Apache-2.0
"""Positions in the write-ahead log and their total order (spec 2)."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A frame's place: the epoch's ordinal, then the frame number inside it (both from 0).

    Tuples compare lexicographically, which is the total order (ordinal, frame).
    """

    ordinal: int
    frame: int

    def __str__(self) -> str:
        return f"{self.ordinal}:{self.frame}"


#: Before the first frame of the first epoch: nothing is settled.
BEFORE_ALL = Position(0, -1)
