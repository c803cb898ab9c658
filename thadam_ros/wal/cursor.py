# SPDX-License-Identifier: Apache-2.0
"""Going through a log's segments in order, up to a durable mark that moves.

(Not to be confused with a chain's cursor file: this is a place in the files, held in memory.)
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from thadam_ros.errors import FormatError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import (
    SEGMENT_COPY_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    SegmentName,
    list_segments,
    parse_segment_copy,
)
from thadam_ros.wal.mark import Mark
from thadam_ros.wal.ranges import DamagedRange, Gap
from thadam_ros.wal.segment import READ_AHEAD_BYTES, Extent, Found, SegmentWalk

#: A file that is gone right after it was listed is one that was deleted; the next look finds what
#: came after it. Nobody deletes so fast that this many looks fail.
_TRIES: Final = 64


def read_segment_header(fs: FileSystem, directory: str, name: SegmentName) -> SegmentHeader | None:
    """Return the header of a segment, None when neither copy verifies.

    Raises:
        FormatError: The segment has another version.
        OSError: From the filesystem.
    """
    return read_header(fs, os.path.join(directory, name.filename))


def read_header(fs: FileSystem, path: str) -> SegmentHeader | None:
    """Return the header of the segment file ``path``; as :func:`read_segment_header`."""
    fd = fs.open(path, os.O_RDONLY)
    try:
        data = fs.pread(fd, SEGMENT_HEADER_BYTES, 0)
    finally:
        fs.close(fd)
    return parse_segment_copy(data[:SEGMENT_COPY_BYTES], path) or parse_segment_copy(
        data[SEGMENT_COPY_BYTES:], path
    )


def closed_extent(
    fs: FileSystem,
    directory: str,
    name: SegmentName,
    following: SegmentName | None,
    durable: Position | None,
    *,
    size: int | None = None,
) -> Extent:
    """Return how much of ``name`` belongs to the log when ``following`` comes after it.

    The next segment's header says how long this one was, so that a cut is seen even where it
    fell between two frames, and a suspect's tail is never read.

    Args:
        size: Bytes of ``name``, where they are known already.

    Raises:
        FormatError: The next segment has another version.
        OSError: From the filesystem.
    """
    if size is None:
        size = fs.size(os.path.join(directory, name.filename))
    if following is None:
        return Extent(size, None, durable)
    same_epoch = following.ordinal == name.ordinal
    header = read_segment_header(fs, directory, following)
    if header is None:
        return Extent(size, following.first - 1 if same_epoch else None, durable)
    if header.follows(name):
        return Extent(header.previous_bytes, following.first - 1 if same_epoch else None, durable)
    # A segment is missing between the two; it began where its own name said.
    missing = header.previous_ordinal, header.previous_first
    if missing[0] == name.ordinal and missing[1] > name.first:
        return Extent(size, missing[1] - 1, durable)
    return Extent(size, None, durable)


class LogCursor:
    """Frame headers, damage and gaps of a log after a position.

    :meth:`advance` shows a frame, ``walk.load`` or ``walk.skip`` passes it. Ranges and gaps that
    lie wholly at or before ``after`` are passed in silence: they were met on the way there. A
    segment that is deleted meanwhile is read to its end when it is open already; else it is a gap.

    Args:
        from_first: With ``after`` before everything: what the log no longer has of its beginning
            is a gap, else reading begins with what there is.

    Attributes:
        walk: The segment at hand, None before the first.
        extent: Its extent at the last :meth:`advance`.
        segments_entered: Moves with each segment: references are scoped to one.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        after: Position,
        *,
        read_ahead: int = READ_AHEAD_BYTES,
        from_first: bool = False,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._after = after
        self._from_first = from_first
        self._read_ahead = read_ahead
        self._closed: Extent | None = None
        self._left: tuple[SegmentName, int] | None = None
        self.walk: SegmentWalk | None = None
        self.extent = Extent(0, None, None)
        self.segments_entered = 0

    def advance(self, mark: Mark) -> Found | DamagedRange | Gap | None:
        """Return the next frame, bad range or gap; None when nothing durable is left.

        Raises:
            FormatError: A file is not ours or of another version.
            OSError: From the filesystem.
        """
        while True:
            walk = self.walk
            if walk is None:
                walk, gap = self._enter_next(mark)
                if walk is None:
                    return None
                if gap is not None and gap.last > self._after:
                    return gap
            key = walk.name.ordinal, walk.name.first
            end = mark.segment_ordinal, mark.segment_first
            if key >= end:
                self.extent = Extent(
                    mark.offset if key == end else 0,
                    mark.position.frame if mark.position.ordinal == walk.name.ordinal else None,
                    mark.position,
                )
            elif self._closed is None:
                self._closed = self.extent = self._close_extent(walk, mark)
            item = walk.advance(self.extent)
            if isinstance(item, DamagedRange):
                if item.first is None or item.last is None or item.last > self._after:
                    return item
            elif item is not None:
                return item
            elif key >= end:
                return self._missing_end(walk, mark)
            else:
                self._left = walk.name, walk.expected
                self.close()

    def _missing_end(self, walk: SegmentWalk, mark: Mark) -> Gap | None:
        """Return the exposed positions that no file holds, once: the newest file is missing."""
        first = Position(walk.name.ordinal, walk.expected)
        if mark.position.ordinal != walk.name.ordinal or first > mark.position:
            return None
        walk.expected = mark.position.frame + 1
        return Gap(first, mark.position, "") if mark.position > self._after else None

    def close(self) -> None:
        """Close the file at hand; may be called again."""
        if self.walk is not None:
            self.walk.close()
            self.walk = None

    def _close_extent(self, walk: SegmentWalk, mark: Mark) -> Extent:
        end = mark.segment_ordinal, mark.segment_first
        for _ in range(_TRIES):
            following = self._next_after(walk.name, end)
            with contextlib.suppress(FileNotFoundError):
                return closed_extent(
                    self._fs,
                    self._directory,
                    walk.name,
                    following,
                    mark.position,
                    size=walk.measure_size(),
                )
        raise _vanishing(self._directory)

    def _next_after(self, name: SegmentName, end: tuple[int, int]) -> SegmentName | None:
        for segment in list_segments(self._fs, self._directory):
            if segment > name and segment[:2] <= end:
                return segment
        return None

    def _enter_next(self, mark: Mark) -> tuple[SegmentWalk | None, Gap | None]:
        """Open the next segment up to the mark's, if there is one; say what is missing before."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return self._enter(mark)
        raise _vanishing(self._directory)

    def _enter(self, mark: Mark) -> tuple[SegmentWalk | None, Gap | None]:
        end = mark.segment_ordinal, mark.segment_first
        names = [s for s in list_segments(self._fs, self._directory) if s[:2] <= end]
        gap: Gap | None = None
        if self._left is None:
            wanted = self._after.ordinal, self._after.frame + 1
            before = [name for name in names if name[:2] <= wanted]
            if not names:
                return None, None
            name = before[-1] if before else names[0]
            if not before and (self._after != BEFORE_ALL or self._from_first):
                gap = _gap(Position(*wanted), name)
        else:
            left, expected = self._left
            following = [name for name in names if name > left]
            if not following:
                return None, None
            name = following[0]
            gap = gap_between(self._fs, self._directory, left, expected, name)
        walk = SegmentWalk(self._fs, self._directory, name, read_ahead=self._read_ahead)
        try:
            walk.refuse_foreign()
        except FormatError:
            walk.close()
            raise
        self.walk = walk
        self._closed = None
        self.segments_entered += 1
        return walk, gap


def gap_between(
    fs: FileSystem, directory: str, left: SegmentName, expected: int, following: SegmentName
) -> Gap | None:
    """Return what is missing between two segments, None when nothing is.

    Args:
        expected: The position after the last one that ``left`` holds or is known to have lost.

    Raises:
        FormatError: ``following`` has another version.
        OSError: From the filesystem.
    """
    if following.ordinal == left.ordinal:
        missing = expected < following.first
    else:
        header = read_segment_header(fs, directory, following)
        missing = following.first != 0 if header is None else not header.follows(left)
    return _gap(Position(left.ordinal, expected), following) if missing else None


def _gap(first: Position, name: SegmentName) -> Gap:
    return Gap(first, Position(name.ordinal, name.first - 1), name.filename)


def _vanishing(directory: str) -> OSError:
    return OSError(errno.EAGAIN, "segments vanish faster than they can be opened", directory)
