# SPDX-License-Identifier: Apache-2.0
"""Reading a log in position order, in any process, without a lock, up to the durable mark."""

from __future__ import annotations

import threading
from typing import Final, TypeVar

from thadam_ros.errors import FormatError
from thadam_ros.model.message import Frame
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.backlog import BacklogMeter
from thadam_ros.wal.cursor import LogCursor
from thadam_ros.wal.frames import BodyError, References, build_frame
from thadam_ros.wal.layout import KIND_DATA
from thadam_ros.wal.mark import FixedMark, Mark, MarkReader
from thadam_ros.wal.ranges import Backlog, DamagedRange, Gap
from thadam_ros.wal.segment import Found

#: A log that rots everywhere must not fill memory with reports; the counters go on.
REPORTS_MAX: Final = 10_000


_Report = TypeVar("_Report", DamagedRange, Gap)


class WalReader:
    """Durable data frames strictly after a position, in position order.

    One thread reads; ``durable``, ``backlog`` and the reports may be asked from any. The log need
    not exist yet. A read that the disk refuses raises and is tried again from the same place: only
    bytes that were read and do not verify are damage.

    Attributes:
        damaged_count, damaged_bytes, gap_count: All found so far, also those no longer listed.
        gap_frames: Positions missing in them, as far as both ends are in one epoch.
    """

    def __init__(
        self,
        directory: str,
        *,
        fs: FileSystem,
        after: Position = BEFORE_ALL,
        marks: MarkReader | FixedMark | None = None,
        from_first: bool = False,
    ) -> None:
        """Begin after ``after``; ``marks`` replaces the directory's own durable mark.

        Args:
            from_first: A log that no longer has its first frame has a gap at its beginning.
        """
        self._marks = MarkReader(fs, directory) if marks is None else marks
        self._cursor = LogCursor(fs, directory, after, from_first=from_first)
        self._meter = BacklogMeter(fs, directory)
        self._after = after
        self._segment = 0
        self._references = References()
        self._meter_lock = threading.Lock()
        self._damage: list[DamagedRange] = []
        self._gaps: list[Gap] = []
        self.damaged_count = 0
        self.damaged_bytes = 0
        self.gap_count = 0
        self.gap_frames = 0

    @property
    def durable(self) -> Position:
        """Last durable position of the log, BEFORE_ALL while there is none."""
        mark = self._marks.read()
        return BEFORE_ALL if mark is None else mark.position

    @property
    def position(self) -> Position:
        """Last position delivered, or the one given at the start."""
        return self._after

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """Ranges skipped so far, newest 10 000."""
        return tuple(self._damage)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Missing positions met so far, newest 10 000."""
        return tuple(self._gaps)

    @property
    def mark_unreadable(self) -> int:
        """How often the durable mark did not verify; reading then stays where it was."""
        return self._marks.unreadable

    def read(self, frames_max: int, bytes_max: int) -> list[Frame]:
        """Return the next durable frames; [] when none is left.

        Args:
            bytes_max: Bound of the payload bytes, decompressed; one frame is always returned.

        Raises:
            FormatError: A file is not ours or of another version.
            OSError: From the filesystem.
        """
        frames: list[Frame] = []
        mark = self._marks.read()
        if mark is None:
            return frames
        payload_bytes = 0
        try:
            while len(frames) < frames_max:
                found = self._next_data(mark)
                if found is None:
                    break
                size = found.header.payload_bytes
                if frames and payload_bytes + size > bytes_max:
                    break
                frame = self._load_data(found)
                if frame is not None:
                    frames.append(frame)
                    payload_bytes += size
        except (OSError, FormatError):
            # Frames already taken must not be lost; the next call meets the error again.
            if not frames:
                raise
        return frames

    def backlog(self, after: Position) -> Backlog:
        """Return what is durable and lies after ``after``; reads headers only, each once.

        Raises:
            FormatError: A file is not ours or of another version.
            OSError: From the filesystem.
        """
        with self._meter_lock:
            return self._meter.measure(after, self._marks.read())

    def close(self) -> None:
        """Close all files; frames already returned stay valid; may be called again."""
        self._cursor.close()
        with self._meter_lock:
            self._meter.close()
        self._marks.close()

    def _next_data(self, mark: Mark) -> Found | None:
        """Return the next data frame to deliver; takes in declarations and reports on the way."""
        while (item := self._cursor.advance(mark)) is not None:
            if isinstance(item, DamagedRange):
                self._report(item)
            elif isinstance(item, Gap):
                _keep(self._gaps, item)
                self.gap_count += 1
                self.gap_frames += item.frames
            elif item.header.kind != KIND_DATA:
                self._declare(item)
            elif Position(item.header.ordinal, item.header.position) > self._after:
                return item
            elif self._cursor.walk is not None:
                self._cursor.walk.skip(item)
        return None

    def _body(self, found: Found) -> memoryview | None:
        walk = self._cursor.walk
        assert walk is not None
        if self._segment != self._cursor.segments_entered:
            self._segment = self._cursor.segments_entered
            self._references = References()
        body = walk.load(found, self._cursor.extent)
        if isinstance(body, DamagedRange):
            self._report(body)
            return None
        return body

    def _declare(self, found: Found) -> None:
        body = self._body(found)
        if body is None:
            return
        try:
            self._references.add(found.header, body)
        except BodyError:
            self._fail(found)

    def _load_data(self, found: Found) -> Frame | None:
        body = self._body(found)
        if body is None:
            return None
        try:
            frame = build_frame(found.header, body, self._references)
        except BodyError:
            self._fail(found)
            return None
        self._after = Position(frame.ordinal, frame.position)
        return frame

    def _fail(self, found: Found) -> None:
        walk = self._cursor.walk
        assert walk is not None
        self._report(walk.fail(found, self._cursor.extent))

    def _report(self, item: DamagedRange) -> None:
        _keep(self._damage, item)
        self.damaged_count += 1
        self.damaged_bytes += item.end - item.start


def _keep(reports: list[_Report], item: _Report) -> None:
    reports.append(item)
    if len(reports) > REPORTS_MAX:
        del reports[0]
