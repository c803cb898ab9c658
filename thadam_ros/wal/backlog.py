# SPDX-License-Identifier: Apache-2.0
"""How much of a log still waits after a position, from frame headers and file sizes alone."""

from __future__ import annotations

import os

from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.cursor import LogCursor, closed_extent
from thadam_ros.wal.layout import KIND_DATA, SegmentName, list_segments
from thadam_ros.wal.mark import Mark
from thadam_ros.wal.ranges import Backlog
from thadam_ros.wal.segment import HEADER_READ_AHEAD_BYTES, Found, SegmentWalk

_NOTHING = Backlog(0, 0, 0)


class BacklogMeter:
    """Follows a chain's cursor: each header is looked at once while the cursor moves forward."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._cursor: LogCursor | None = None
        self._after = Position(0, -1)
        self._sizes: dict[SegmentName, int] = {}
        self._ends: dict[int, int] = {}

    def measure(self, after: Position, mark: Mark | None) -> Backlog:
        """Return what is durable and lies after ``after``.

        Raises:
            FormatError: A file is not ours or of another version.
            OSError: From the filesystem.
        """
        if mark is None or mark.position <= after:
            return _NOTHING
        first = self._first_after(after, mark)
        if first is None or self._cursor is None or self._cursor.walk is None:
            return _NOTHING
        name = self._cursor.walk.name
        waiting = 0
        last_of: dict[int, SegmentName] = {}
        segments = list_segments(self._fs, self._directory)
        self._sizes = {s: size for s, size in self._sizes.items() if s >= name}
        for segment in segments:
            last_of[segment.ordinal] = segment
            if name <= segment and segment[:2] <= (mark.segment_ordinal, mark.segment_first):
                waiting += self._size(segment, mark)
        if name not in segments:
            # Deleted while it is read: what is left of it still waits, and is still there.
            waiting += self._cursor.extent.limit
        frames = 0
        for ordinal in sorted(last_of):
            if after.ordinal <= ordinal <= mark.position.ordinal:
                begin = after.frame if ordinal == after.ordinal else -1
                end = (
                    mark.position.frame
                    if ordinal == mark.position.ordinal
                    else self._end_of(last_of[ordinal])
                )
                frames += max(0, end - begin)
        return Backlog(frames, max(0, waiting - first.start), first.header.ingest_time_ns)

    def close(self) -> None:
        """Close the file at hand; may be called again."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _first_after(self, after: Position, mark: Mark) -> Found | None:
        if self._cursor is None or after < self._after:
            self.close()
            self._cursor = LogCursor(
                self._fs, self._directory, after, read_ahead=HEADER_READ_AHEAD_BYTES
            )
        self._after = after
        while (item := self._cursor.advance(mark)) is not None:
            if not isinstance(item, Found) or self._cursor.walk is None:
                continue
            position = Position(item.header.ordinal, item.header.position)
            if item.header.kind == KIND_DATA and position > after:
                return item
            self._cursor.walk.skip(item)
        return None

    def _size(self, name: SegmentName, mark: Mark) -> int:
        if name[:2] == (mark.segment_ordinal, mark.segment_first):
            return mark.offset
        size = self._sizes.get(name)
        if size is None:
            try:
                size = self._fs.size(os.path.join(self._directory, name.filename))
            except FileNotFoundError:
                # Deleted since it was listed.
                return 0
            self._sizes[name] = size
        return size

    def _end_of(self, name: SegmentName) -> int:
        """Return the last position of an epoch that is over, from its last segment's headers."""
        if name.ordinal not in self._ends:
            self._ends[name.ordinal] = last_position(self._fs, self._directory, name, None)
        return self._ends[name.ordinal]


def last_position(
    fs: FileSystem, directory: str, name: SegmentName, following: SegmentName | None
) -> int:
    """Return the last position of the last segment of an epoch, from its frame headers.

    Raises:
        FormatError: It is not ours or of another version.
        OSError: From the filesystem.
    """
    walk = SegmentWalk(fs, directory, name, read_ahead=HEADER_READ_AHEAD_BYTES)
    try:
        extent = closed_extent(fs, directory, name, following, None)
        while (item := walk.advance(extent)) is not None:
            if isinstance(item, Found):
                walk.skip(item)
        return walk.expected - 1
    finally:
        walk.close()
