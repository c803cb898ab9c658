# SPDX-License-Identifier: Apache-2.0
"""Walking the frames of one segment file, past whatever does not verify.

Everything that reads a log goes through :class:`SegmentWalk`: readers, recovery, ``fsck``,
``dump``. Memory is one read-ahead window and one frame, whatever the segment's size.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from thadam_ros.errors import FormatError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import (
    FRAME_HEADER_BYTES,
    KIND_DATA,
    SEGMENT_COPY_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    FrameHeader,
    SegmentHeader,
    SegmentName,
    epoch_search_key,
    parse_frame_header,
    parse_segment_copy,
)
from thadam_ros.wal.ranges import DAMAGED, TORN, DamagedRange

#: Many small frames come out of one read; a larger frame is read on its own.
READ_AHEAD_BYTES: Final = 256 << 10
#: For walks that look at headers only.
HEADER_READ_AHEAD_BYTES: Final = 4 << 10
_SEARCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a segment belongs to the log, as known from outside the segment.

    Attributes:
        limit: One past the last byte; may lie beyond the end of the file.
        last: Last position, None when unknown.
        durable: Last durable position of the log, None when unknown: whatever does not verify
            at or below it is damage, never a torn tail.
    """

    limit: int
    last: int | None
    durable: Position | None


@dataclass(frozen=True, slots=True)
class Found:
    """A frame whose header verifies, at ``start`` .. ``end`` of the file."""

    start: int
    end: int
    header: FrameHeader


class SegmentWalk:
    """Frames of one segment in file order.

    :meth:`advance` shows the next frame header, :meth:`load` or :meth:`skip` passes it.

    Raises:
        FormatError: The segment has another version, or its header names another segment.
        OSError: From the filesystem.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        name: SegmentName,
        *,
        read_ahead: int = READ_AHEAD_BYTES,
    ) -> None:
        self.name = name
        self.path = os.path.join(directory, name.filename)
        self.expected = name.first
        self.offset = SEGMENT_HEADER_BYTES
        self.header: SegmentHeader | None = None
        self._sync: bytes | None = None
        self._fs = fs
        self._read_ahead = read_ahead
        self._window = memoryview(b"")
        self._window_start = 0
        self._found: Found | None = None
        self._damage: list[DamagedRange] = []
        self._fd = fs.open(self.path, os.O_RDONLY)
        try:
            self.size = fs.size(self.path)
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; frames already loaded stay valid; may be called again."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1

    def measure_size(self) -> int:
        """Return the size of the file now; one that was deleted meanwhile is felt for its end.

        Raises:
            OSError: From the filesystem.
        """
        try:
            self.size = self._fs.size(self.path)
        except FileNotFoundError:
            step = 1 << 20
            while step:
                if self._fs.pread(self._fd, 1, self.size + step - 1):
                    self.size += step
                    step *= 2
                else:
                    step //= 2
        return self.size

    def _read_header(self) -> None:
        data = self._fs.pread(self._fd, SEGMENT_HEADER_BYTES, 0)
        starts = (0, SEGMENT_COPY_BYTES)
        copies = [
            parse_segment_copy(data[start : start + SEGMENT_COPY_BYTES], self.path)
            for start in starts
        ]
        self.header = copies[0] or copies[1]
        if self.header is None:
            # A file cut inside the magic is a cut file, not a foreign one.
            magic = SEGMENT_MAGIC[: len(data)]
            self._magic_seen = any(data.startswith(magic, start) for start in starts)
            self._blank = not any(data)
            if len(data) < SEGMENT_HEADER_BYTES:
                # A cut inside the header: the bad range starts with the file.
                self.offset = 0
            else:
                self._damage.append(self._range(0, SEGMENT_HEADER_BYTES, DAMAGED))
            return
        if self.header.name != self.name:
            raise FormatError(
                f"{self.path} holds the segment {self.header.name.filename}; give the file its "
                "own name back"
            )
        self._sync = self.header.sync
        for start, copy in zip(starts, copies, strict=True):
            if copy is None:
                self._damage.append(self._range(start, start + SEGMENT_COPY_BYTES, DAMAGED))

    def refuse_foreign(self) -> None:
        """Raise when this is no segment at all: another magic and not one frame in it.

        Raises:
            FormatError: The file is not ours.
        """
        if self.header is not None or self._magic_seen or self._blank:
            return
        if self._search(0, self.size, None) is None:
            raise FormatError(
                f"{self.path} is not a WAL segment (its magic is not {SEGMENT_MAGIC!r}); "
                "move it out of the directory"
            )

    def advance(self, extent: Extent) -> Found | DamagedRange | None:
        """Return the next frame or bad range; None at the end of ``extent``.

        A :class:`Found` is returned again until it is loaded or skipped; a bad range is passed.

        Raises:
            OSError: From the filesystem.
        """
        if self._damage:
            return self._damage.pop(0)
        if self._found is None:
            if self.offset >= extent.limit:
                return None
            header = self._header_at(self.offset, extent.limit)
            if header is None:
                return self._pass_unreadable(extent)
            self._found = Found(self.offset, self.offset + header.frame_bytes, header)
        found = self._found
        # With both header copies lost the first frame that fits gives the marker.
        self._sync = found.header.sync
        if extent.last is not None and found.header.position > extent.last:
            if found.header.kind == KIND_DATA:
                # Superseded: a failed fsync moved these positions to the next segment.
                return None
        elif found.header.position > self.expected:
            # The bytes between are gone without a trace.
            lost = self._range(
                found.start, found.start, DAMAGED, self.expected, found.header.position - 1
            )
            self.expected = found.header.position
            return lost
        if found.end > extent.limit:
            self._found = None
            self.offset = found.end
            return self._trailing(found.start, found.end, extent)
        return found

    def load(self, found: Found, extent: Extent) -> memoryview | DamagedRange:
        """Pass ``found`` and return its body, or its range when the body does not verify.

        Raises:
            OSError: From the filesystem.
        """
        start = found.start + FRAME_HEADER_BYTES
        body = self._read(start, found.end - start, extent.limit)
        if len(body) == found.end - start and crc32c(body) == found.header.body_crc:
            self.skip(found)
            return body[: found.header.body_bytes]
        return self.fail(found, extent)

    def fail(self, found: Found, extent: Extent) -> DamagedRange:
        """Pass ``found`` as bad and return its range."""
        self._found = None
        self.offset = found.end
        position = found.header.position
        above = extent.durable is None or Position(self.name.ordinal, position) > extent.durable
        if above and self._search(found.end, extent.limit, extent) is None:
            return self._trailing(found.start, found.end, extent)
        if found.header.kind != KIND_DATA:
            return self._range(found.start, found.end, DAMAGED)
        self.expected = position + 1
        return self._range(found.start, found.end, DAMAGED, position, position)

    def skip(self, found: Found) -> None:
        """Pass ``found`` without reading its body."""
        self._found = None
        self.offset = found.end
        if found.header.kind == KIND_DATA:
            self.expected = found.header.position + 1

    def _pass_unreadable(self, extent: Extent) -> DamagedRange:
        start = self.offset
        following = self._search(start + 1, extent.limit, extent)
        if following is None:
            self.offset = extent.limit
            return self._trailing(start, extent.limit, extent)
        self._found = following
        self.offset = following.start
        position = following.header.position
        first, last = (self.expected, position - 1) if position > self.expected else (None, None)
        self.expected = position
        return self._range(start, following.start, DAMAGED, first, last)

    def _trailing(self, start: int, end: int, extent: Extent) -> DamagedRange:
        """Return the bad range after which no frame header comes, up to the extent's end."""
        self.offset = end = max(end, extent.limit)
        first = Position(self.name.ordinal, self.expected)
        if extent.durable is None or first > extent.durable:
            return DamagedRange(self.name.filename, start, end, TORN, first)
        if extent.last is not None and extent.last < self.expected:
            return self._range(start, end, DAMAGED)
        lost = self._range(start, end, DAMAGED, self.expected, extent.last)
        if extent.last is not None:
            self.expected = extent.last + 1
        return lost

    def _range(
        self, start: int, end: int, kind: str, first: int | None = None, last: int | None = None
    ) -> DamagedRange:
        ordinal = self.name.ordinal
        return DamagedRange(
            self.name.filename,
            start,
            end,
            kind,
            None if first is None else Position(ordinal, first),
            None if last is None else Position(ordinal, last),
        )

    def _header_at(self, offset: int, limit: int) -> FrameHeader | None:
        header = parse_frame_header(self._read(offset, FRAME_HEADER_BYTES, limit))
        if (
            header is None
            or header.epoch != self.name.epoch
            or header.ordinal != self.name.ordinal
            or header.position < self.expected
            or (self._sync is not None and header.sync != self._sync)
        ):
            return None
        return header

    def _search(self, offset: int, limit: int, extent: Extent | None) -> Found | None:
        """Return the first frame at or after ``offset`` whose header verifies."""
        if limit > self.size:
            # The newest segment has grown since it was opened.
            self.measure_size()
        limit = min(limit, self.size)
        if self._sync is not None:
            key, key_offset = self._sync, 0
        else:
            key, key_offset = epoch_search_key(self.name.epoch)
        offset += key_offset
        while offset < limit:
            chunk = self._fs.pread(self._fd, min(_SEARCH_BYTES, limit - offset), offset)
            if len(chunk) < len(key):
                return None
            at = chunk.find(key)
            while at >= 0:
                start = offset + at - key_offset
                header = self._header_at(start, limit)
                if header is not None and not (
                    extent is not None and extent.last is not None and header.position > extent.last
                ):
                    return Found(start, start + header.frame_bytes, header)
                at = chunk.find(key, at + 1)
            # The key may straddle two chunks.
            offset += len(chunk) - len(key) + 1
        return None

    def _read(self, offset: int, size: int, limit: int) -> memoryview:
        """Return up to ``size`` bytes at ``offset``, never any at or above ``limit``.

        Bytes above the limit may still change; they must not stay in the window.
        """
        start = offset - self._window_start
        if start >= 0 and start + size <= len(self._window):
            return self._window[start : start + size]
        wanted = min(max(size, self._read_ahead), max(limit - offset, 0))
        data = memoryview(self._fs.pread(self._fd, wanted, offset))
        if size <= self._read_ahead:
            self._window, self._window_start = data, offset
        return data[:size]
