# SPDX-License-Identifier: Apache-2.0
"""The writer's segment files: stamp, write, sync, move the mark, and what to do when one fails.

No thread here; :mod:`thadam_ros.wal.writer` calls it from its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from thadam_ros.errors import FatalError, StorageFullError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.encode import (
    Buffer,
    EncodedFrame,
    encode_declarations,
    source_entry,
)
from thadam_ros.wal.layout import SegmentHeader, SegmentName, is_full
from thadam_ros.wal.mark import Mark, MarkWriter

SUSPECT_SUFFIX: Final = ".suspect"

#: Declarations of the topics (True) or publishers (False) with these references.
Declarer = Callable[[bool, Sequence[int]], list[dict[str, object]]]


class LogFailedError(FatalError):
    """Writing failed, and so did the replacement segment; the message is the first error."""


@dataclass(slots=True)
class LogCounters:
    """Counted by :class:`SegmentLog`; meanings as in :class:`WalStatistics`.

    ``segment_bytes`` is what was put into segment files, bytes that became superseded included.
    """

    frames: int = 0
    records: int = 0
    bytes: int = 0
    fsyncs: int = 0
    commits: int = 0
    faults: int = 0
    suspects: int = 0
    segments: int = 0
    segment_bytes: int = 0
    first_error: str = ""
    last_error: str = ""


@dataclass(slots=True)
class _Declared:
    """What a segment has declared so far."""

    topics: set[int] = field(default_factory=set)
    publishers: set[int] = field(default_factory=set)
    sources: dict[str, int] = field(default_factory=dict)

    def copy(self) -> _Declared:
        return _Declared(set(self.topics), set(self.publishers), dict(self.sources))


@dataclass(slots=True)
class _Segment:
    """The file being written; ``offset`` is its durable end, 0 before the first commit."""

    name: SegmentName
    fd: int
    sync: bytes
    header: bytes
    offset: int = 0
    declared: _Declared = field(default_factory=_Declared)


class SegmentLog:
    """Appends frames to the newest segment and keeps the durable mark.

    A segment is created with its first frame, never before: a log that is opened and closed
    leaves no file behind.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        mark: Mark,
        *,
        segment_bytes: int,
        segments: int,
        declare: Declarer,
        time_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._declare = declare
        self._time_ns = time_ns
        self._random_bytes = random_bytes
        self._segment: _Segment | None = None
        self._previous = (mark.segment_ordinal, mark.segment_first, mark.offset)
        self._unexposed: Mark | None = None
        #: The segment holds bytes past its durable end that no one can vouch for.
        self._dirty = False
        self.mark = mark
        #: Begin a fresh segment with the next frames, so that the one at hand can be deleted.
        self.finish_early = False
        self.counters = LogCounters(segments=segments)
        self._page = MarkWriter(fs, directory, mark)

    @property
    def segment_size(self) -> int:
        """Bytes of the segment being written, 0 when there is none."""
        segment = self._segment
        return 0 if segment is None else segment.offset

    def write(self, frames: Sequence[EncodedFrame]) -> None:
        """Make ``frames`` durable under the next positions and move the mark.

        All of them or none. After :class:`StorageFullError` call it again with the same frames.

        Raises:
            StorageFullError: Disk or quota is exhausted; the log is as it was.
            LogFailedError: The write failed, and once more in a fresh segment.
        """
        try:
            self._attempt(frames)
        except OSError as first:
            self._note(first)
            if is_full(first) and self._segment_is_clean():
                raise StorageFullError(str(first)) from first
            self._abandon()
            try:
                self._attempt(frames)
            except OSError as second:
                self._note(second)
                self._abandon()
                if is_full(second):
                    raise StorageFullError(str(second)) from second
                raise LogFailedError(str(first)) from second

    def close(self) -> None:
        """Make the mark itself durable and close the files; may be called again.

        Raises:
            OSError: The mark could not be synced.
        """
        if self._segment is not None:
            self._fs.close(self._segment.fd)
            self._segment = None
        try:
            self._page.sync()
        finally:
            self._page.close()

    def _note(self, error: OSError) -> None:
        text = f"{type(error).__name__}: {error}"
        self.counters.last_error = text
        if not is_full(error):
            self.counters.faults += 1
            self.counters.first_error = self.counters.first_error or text

    def _attempt(self, frames: Sequence[EncodedFrame]) -> None:
        if self._unexposed is None:
            self._unexposed = self._write_synced(frames)
            self.counters.commits += 1
            self.counters.frames += len(frames)
            self.counters.records += sum(frame.header.records for frame in frames)
        # From here on the frames are durable; only the mark is missing. A second try must not
        # write them again.
        self._page.move(self._unexposed)
        self.mark, self._unexposed = self._unexposed, None

    def _write_synced(self, frames: Sequence[EncodedFrame]) -> Mark:
        segment = self._segment
        full = self._segment_bytes if not self.finish_early else 1
        if segment is not None and segment.offset >= full:
            self._finish()
            segment = None
        if segment is None:
            segment = self._create()
        fresh = segment.offset == 0
        declared = segment.declared.copy()
        buffers: list[Buffer] = [segment.header] if fresh else []
        position = self.mark.position.frame
        for frame in frames:
            position += 1
            self._stamp(segment, declared, frame, position, buffers)
        size = sum(map(len, buffers))
        try:
            self._fs.pwrite_all(segment.fd, buffers, segment.offset)
        except OSError as exc:
            self._rewind(segment, exc)
            raise
        self.counters.segment_bytes += size
        try:
            self._fs.fdatasync(segment.fd)
            if fresh:
                self._fs.fsync_dir(self._directory)
        except OSError:
            # Never synced again: what the kernel could not write it may have forgotten.
            self._dirty = True
            raise
        self.counters.fsyncs += 1
        self.counters.bytes += size
        segment.offset += size
        segment.declared = declared
        return Mark(
            segment.name.epoch,
            Position(segment.name.ordinal, position),
            segment.name.ordinal,
            segment.name.first,
            segment.offset,
        )

    def _stamp(
        self,
        segment: _Segment,
        declared: _Declared,
        frame: EncodedFrame,
        position: int,
        buffers: list[Buffer],
    ) -> None:
        """Add ``frame`` to ``buffers``, after the declarations that ``segment`` still lacks."""
        entries: list[dict[str, object]] = []
        source_ref = declared.sources.get(frame.source_id)
        if source_ref is None:
            source_ref = len(declared.sources) + 1
            declared.sources[frame.source_id] = source_ref
            entries.append(source_entry(source_ref, frame.source_id))
        topics = frame.topic_refs - declared.topics
        publishers = frame.publisher_refs - declared.publishers
        if topics:
            entries += self._declare(True, sorted(topics))
            declared.topics |= topics
        if publishers:
            entries += self._declare(False, sorted(publishers))
            declared.publishers |= publishers
        header = frame.header._replace(
            sync=segment.sync,
            epoch=segment.name.epoch,
            ordinal=segment.name.ordinal,
            position=position,
            source_ref=source_ref,
        )
        if entries:
            declaration, body = encode_declarations(entries, header)
            # Twice: one damaged spot must not leave a whole segment undecodable.
            buffers += [declaration.pack(), *body] * 2
        buffers.append(header.pack())
        buffers += frame.body

    def _create(self) -> _Segment:
        position = self.mark.position
        name = SegmentName(position.ordinal, position.frame + 1, self.mark.epoch)
        path = os.path.join(self._directory, name.filename)
        sync = self._random_bytes(8)
        previous_ordinal, previous_first, previous_bytes = self._previous
        header = SegmentHeader(
            name, self._time_ns(), sync, previous_ordinal, previous_first, previous_bytes
        ).pack()
        fd = self._fs.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._segment = _Segment(name, fd, sync, header)
        self._dirty = False
        self.counters.segments += 1
        return self._segment

    def _finish(self) -> None:
        """Close a full segment; all of it is durable."""
        segment = self._segment
        if segment is not None:
            self._previous = (segment.name.ordinal, segment.name.first, segment.offset)
            self._segment = None
            self._fs.close(segment.fd)

    def _rewind(self, segment: _Segment, error: OSError) -> None:
        """Take back a write that failed half-way.

        What stayed behind would be a torn tail after a crash, or frames that were counted as
        lost; and a full disk needs the room.
        """
        self._dirty = True
        if not is_full(error):
            return
        path = os.path.join(self._directory, segment.name.filename)
        try:
            if segment.offset == 0:
                self._segment = None
                self._fs.close(segment.fd)
                self._fs.unlink(path)
                self.counters.segments -= 1
            else:
                self._fs.ftruncate(segment.fd, segment.offset)
        except OSError as exc:
            self._note(exc)
            return
        self._dirty = False

    def _segment_is_clean(self) -> bool:
        return self._unexposed is not None or not self._dirty

    def _abandon(self) -> None:
        """Close the segment as suspect; the next write begins a fresh one."""
        segment = self._segment
        if segment is None or self._unexposed is not None:
            return
        self._segment = None
        self._dirty = False
        self.counters.suspects += 1
        try:
            self._fs.close(segment.fd)
            if segment.offset:
                self._previous = (segment.name.ordinal, segment.name.first, segment.offset)
            else:
                # The fresh segment needs this name; nothing in the file was ever exposed.
                self._set_aside(segment.name)
        except OSError as exc:
            self._note(exc)

    def _set_aside(self, name: SegmentName) -> None:
        path = os.path.join(self._directory, name.filename)
        target, number = path + SUSPECT_SUFFIX, 1
        while self._fs.exists(target):
            target, number = f"{path}.{number}{SUSPECT_SUFFIX}", number + 1
        size = self._fs.size(path)
        self._fs.rename(path, target)
        self.counters.segments -= 1
        self.counters.segment_bytes -= size
