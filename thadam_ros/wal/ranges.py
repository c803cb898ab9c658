# SPDX-License-Identifier: Apache-2.0
"""What a reader found wrong, and what still waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from thadam_ros.model.position import Position

TORN: Final = "torn"
DAMAGED: Final = "damaged"


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of one segment that do not verify, and the frames that are lost with them.

    Attributes:
        file: Segment file name without directory.
        start: First byte; always where a frame or a header copy begins.
        end: One past the last byte. Beyond the end of the file when bytes are missing.
        kind: ``torn`` or ``damaged`` (spec 2, recovery table).
        first: First frame lost, None when the range holds none (a header copy, a declaration).
        last: Last frame lost; None with a ``first`` means that nobody can know how many.
    """

    file: str
    start: int
    end: int
    kind: str
    first: Position | None = None
    last: Position | None = None

    def loses(self, position: Position) -> bool:
        """Tell whether the frame at ``position`` is inside the range."""
        if self.first is None or position < self.first:
            return False
        return self.last is None or position <= self.last


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions that no segment file holds: a file is missing.

    Attributes:
        first: First position that is missing, right after the last one that was there.
        last: Last position that is missing, right before the first one of ``before_file``.
        before_file: The segment at which reading goes on, empty at the end of the log.
    """

    first: Position
    last: Position
    before_file: str

    @property
    def frames(self) -> int:
        """How many positions are missing; 0 when the gap spans epochs and nobody can know."""
        return self.last.frame - self.first.frame + 1 if self.first[0] == self.last[0] else 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is durable and lies after a position.

    Attributes:
        frames: Number of positions, lost ones included.
        bytes: Bytes on disk.
        oldest_ingest_time_ns: Ingest time of the first waiting frame, 0 when none waits.
    """

    frames: int
    bytes: int
    oldest_ingest_time_ns: int
