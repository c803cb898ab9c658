# SPDX-License-Identifier: Apache-2.0
"""Which segments a log still needs, and letting go of the others (spec 2, budgets).

A pass goes from the oldest segment on. A segment goes when every cursor has passed it and the
replay window does not want it; the window yields when space is short. With ``drop_oldest`` a
segment that some chain still wants yields as well, counted for that chain with its positions.
What the durable mark lies in, and all that is newer, always stays.

Order of one deletion: cursors read and their folders synced under ``RETAIN.lock``, unlink, the
directory's fsync. A power cut between the two brings the segment back, no more; and only the
oldest is ever missing, so that a gap between two segments always means a loss.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.backlog import last_position
from thadam_ros.wal.budget import Budget, SegmentSizes, Usage
from thadam_ros.wal.layout import SegmentName
from thadam_ros.wal.mark import Mark
from thadam_ros.wal.retain_lock import delete_segments

#: One pass deletes at most this many, so that who lowers a cursor waits for a moment only.
DELETIONS_MAX: Final = 16
#: Ranges kept per sink, newest; the counters go on.
RANGES_MAX: Final = 100

#: Sink -> its durable cursor. Asked with True, the cursors must be durable on return.
CursorReader = Callable[[bool], Mapping[str, Position]]


class RetainedLog(Protocol):
    """What a pass needs of the log's writer."""

    @property
    def mark(self) -> Mark: ...

    def usage(self) -> Usage:
        """Measure what the log takes and what is free."""

    def deleted(self, segments: int, size_bytes: int) -> None:
        """Take note of deleted segments."""


@dataclass(frozen=True, slots=True)
class DroppedRange:
    """Frames that went before a chain had stamped them."""

    first: Position
    last: Position


@dataclass(frozen=True, slots=True)
class SinkDrops:
    """What ``drop_oldest`` took from one sink.

    Attributes:
        segments: Segments that went before the sink's cursor had passed them.
        frames: Frames in them above the cursor. The chain may still have delivered those it had
            read already: its own gap counter says what it could not read.
        ranges: Their positions, adjacent ones joined; the newest 100.
    """

    segments: int
    frames: int
    ranges: tuple[DroppedRange, ...]


@dataclass(frozen=True, slots=True)
class RetentionStatistics:
    """Snapshot of the retention; counters count since the writer was opened.

    Attributes:
        passes: Passes so far.
        deleted_segments, deleted_bytes: All that went, dropped ones included.
        yielded_segments: Of them, those that the replay window still wanted.
        dropped_segments, dropped_bytes: Of them, those that a chain still wanted.
        drops: Sink -> what it lost.
        busy: Passes put off because a cursor was being lowered.
        pinned_by: Sinks whose cursor keeps the oldest segment, sorted; of the last pass.
        pressed: Less than a fifth of the budget was left at the last pass.
    """

    passes: int = 0
    deleted_segments: int = 0
    deleted_bytes: int = 0
    yielded_segments: int = 0
    dropped_segments: int = 0
    dropped_bytes: int = 0
    drops: Mapping[str, SinkDrops] = field(default_factory=dict)
    busy: int = 0
    pinned_by: tuple[str, ...] = ()
    pressed: bool = False


@dataclass(slots=True)
class _Drops:
    segments: int = 0
    frames: int = 0
    ranges: deque[DroppedRange] = field(default_factory=lambda: deque(maxlen=RANGES_MAX))

    def add(self, first: Position, last: Position) -> None:
        self.segments += 1
        self.frames += last.frame - first.frame + 1
        before = self.ranges[-1] if self.ranges else None
        if before is not None and before.last == (first.ordinal, first.frame - 1):
            self.ranges[-1] = DroppedRange(before.first, last)
        else:
            self.ranges.append(DroppedRange(first, last))


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment that may be deleted; ``end`` is the place before the next one's first frame."""

    name: SegmentName
    size: int
    following: SegmentName

    @property
    def end(self) -> Position:
        return Position(self.following.ordinal, self.following.first - 1)


class Retention:
    """Deletion passes over one log, made in the process of its writer, one at a time.

    Statistics may be asked from any thread.
    """

    def __init__(
        self,
        directory: str,
        budget: Budget,
        *,
        fs: FileSystem,
        log: RetainedLog,
        read_cursors: CursorReader,
    ) -> None:
        self._directory = directory
        self._budget = budget
        self._fs = fs
        self._log = log
        self._read_cursors = read_cursors
        self._sizes = SegmentSizes(fs, directory)
        self._drops: dict[str, _Drops] = {}
        self._statistics = RetentionStatistics()
        self._passes = self._deleted_segments = self._deleted_bytes = 0
        self._yielded = self._dropped_segments = self._dropped_bytes = self._busy = 0
        self._pinned_by: tuple[str, ...] = ()
        self._pressed = False

    def statistics(self) -> RetentionStatistics:
        """Return the snapshot of the last pass."""
        return self._statistics

    def run(self) -> bool:
        """Make one bounded pass; True when another one has more to do.

        Raises:
            FormatError: The log's files are of two logs, or of another version.
            OSError: From the filesystem; what was deleted before it is counted.
        """
        try:
            self._passes += 1
            # Without a lock and without a sync: most passes find nothing to do.
            if self._next(self._candidates(), self._read_cursors(False), self._excess()) is None:
                return False
            with delete_segments(self._directory) as alone:
                if not alone:
                    self._busy += 1
                    return False
                return self._delete(self._read_cursors(True))
        finally:
            self._publish()

    def _candidates(self) -> deque[_Segment]:
        """Return what lies wholly before the mark's segment, oldest first."""
        mark = self._log.mark
        keep = mark.segment_ordinal, mark.segment_first
        found = self._sizes.measure()
        following = [name for name, _ in found[1:]]
        return deque(
            _Segment(name, size, after)
            for (name, size), after in zip(found, following, strict=False)
            if name[:2] < keep
        )

    def _excess(self) -> int:
        usage = self._log.usage()
        self._pressed = self._budget.pressed(usage)
        return self._budget.excess_bytes(usage)

    def _next(
        self, segments: deque[_Segment], cursors: Mapping[str, Position], excess: int
    ) -> _Segment | None:
        """Return the oldest segment when it has to go."""
        self._pinned_by = ()
        if not segments:
            return None
        oldest = segments[0]
        self._pinned_by = tuple(sorted(s for s, at in cursors.items() if at < oldest.end))
        if self._pinned_by:
            return oldest if excess > 0 and self._budget.drop_oldest else None
        return oldest if excess > 0 or not self._wanted(segments, cursors) else None

    def _wanted(self, segments: deque[_Segment], cursors: Mapping[str, Position]) -> bool:
        """Tell whether the replay window needs the oldest of the passed segments."""
        passed = 0
        for segment in list(segments)[1:]:
            if any(at < segment.end for at in cursors.values()):
                break
            passed += segment.size
        return passed < self._budget.replay_window_bytes

    def _delete(self, cursors: Mapping[str, Position]) -> bool:
        segments, excess = self._candidates(), self._excess()
        for _ in range(DELETIONS_MAX):
            segment = self._next(segments, cursors, excess)
            if segment is None:
                return False
            ranges = self._lost_ranges(segment, cursors)
            yields = not ranges and self._wanted(segments, cursors)
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(os.path.join(self._directory, segment.name.filename))
            segments.popleft()
            excess -= segment.size
            self._count(segment, ranges, yields)
            self._log.deleted(1, segment.size)
            self._fs.fsync_dir(self._directory)
        return self._next(segments, cursors, excess) is not None

    def _lost_ranges(
        self, segment: _Segment, cursors: Mapping[str, Position]
    ) -> dict[str, DroppedRange]:
        """Return what each sink had not stamped of a segment that is about to go."""
        behind = {sink: at for sink, at in cursors.items() if at < segment.end}
        if not behind:
            return {}
        name = segment.name
        last = segment.end
        if last.ordinal != name.ordinal:
            # What cannot be read must not keep the disk full: its first frame stands for all.
            last = Position(name.ordinal, name.first)
            with contextlib.suppress(OSError):
                frame = last_position(self._fs, self._directory, name, segment.following)
                last = Position(name.ordinal, frame)
        lost: dict[str, DroppedRange] = {}
        for sink, at in behind.items():
            first = Position(name.ordinal, name.first)
            if at >= first:
                first = Position(at.ordinal, at.frame + 1)
            if first <= last:
                lost[sink] = DroppedRange(first, last)
        return lost

    def _count(self, segment: _Segment, ranges: Mapping[str, DroppedRange], yields: bool) -> None:
        self._deleted_segments += 1
        self._deleted_bytes += segment.size
        self._yielded += yields
        if ranges:
            self._dropped_segments += 1
            self._dropped_bytes += segment.size
        for sink, lost in ranges.items():
            self._drops.setdefault(sink, _Drops()).add(lost.first, lost.last)

    def _publish(self) -> None:
        self._statistics = RetentionStatistics(
            passes=self._passes,
            deleted_segments=self._deleted_segments,
            deleted_bytes=self._deleted_bytes,
            yielded_segments=self._yielded,
            dropped_segments=self._dropped_segments,
            dropped_bytes=self._dropped_bytes,
            drops={
                sink: SinkDrops(d.segments, d.frames, tuple(d.ranges))
                for sink, d in self._drops.items()
            },
            busy=self._busy,
            pinned_by=self._pinned_by,
            pressed=self._pressed,
        )
