# SPDX-License-Identifier: Apache-2.0
"""What a writer does before it writes: find the end of the log and make it whole (spec 2).

Only the newest segment is scanned, frame by frame, so start-up does not grow with the backlog.
The recovery never appends to what it found: the writer begins a fresh segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from thadam_ros.model.position import Position
from thadam_ros.storage.atomic import TEMP_SUFFIX
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import KIND_DATA, SegmentName, is_full, list_segments
from thadam_ros.wal.mark import Mark, load_mark
from thadam_ros.wal.ranges import DAMAGED, TORN, DamagedRange
from thadam_ros.wal.segment import Extent, Found, SegmentWalk

TORN_SUFFIX: Final = ".torn"
DAMAGED_SUFFIX: Final = ".damaged"
_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """The end of the log, whole and synced.

    Attributes:
        mark: Where the log ends; not yet exposed.
        ranges: Torn tails, now in ``.torn`` files, and damage, copied to ``.damaged`` files.
        frames: Intact data frames in the newest segment.
        damage_not_copied: Damaged ranges that a full disk left without a copy. They stay in the
            segment all the same, and the next open tries again.
        new_epoch: A cursor lay beyond the end, so the next frame begins a new epoch.
    """

    mark: Mark
    ranges: tuple[DamagedRange, ...] = ()
    frames: int = 0
    damage_not_copied: int = 0
    new_epoch: bool = False


def make_directory(fs: FileSystem, directory: str) -> None:
    """Create ``directory`` so that a power cut cannot take it away with the log in it.

    Its own name is synced at every call: who created it may have been killed before doing so.

    Raises:
        OSError: From the filesystem.
    """
    parents = [os.path.dirname(directory)]
    while not fs.exists(parents[-1]) and os.path.dirname(parents[-1]) != parents[-1]:
        parents.append(os.path.dirname(parents[-1]))
    fs.makedirs(directory)
    for parent in reversed(parents):
        fs.fsync_dir(parent)


def recover(
    fs: FileSystem,
    directory: str,
    *,
    cursors: Sequence[Position],
    draw_epoch: Callable[[], int],
) -> Recovered:
    """Bring the newest segment of ``directory`` in order and say where the log ends.

    Call it under the log's lock. May be called again: a second run finds nothing torn.

    Raises:
        FormatError: A file is not ours or of another version.
        OSError: From the filesystem, ENOSPC included: a torn tail is never dropped unsaved.
    """
    for leftover in fs.listdir(directory):
        if leftover.endswith(TEMP_SUFFIX):
            fs.unlink(os.path.join(directory, leftover))
    known = load_mark(fs, directory)
    ranges: list[DamagedRange] = []
    segments = list_segments(fs, directory)
    end: Mark | None = None
    frames = 0
    if segments and known is not None and _is_foreign(known, segments[-1]):
        known = None
    while segments and end is None:
        end, frames = _recover_segment(fs, directory, segments.pop(), known, ranges)
    not_copied = _keep_damage(fs, directory, ranges)
    if end is None:
        # No frame at all: a fresh log, or an epoch without frames yet.
        end = known or Mark(draw_epoch(), Position(0, -1), 0, -1, 0)
    elif known is not None and known.position > end.position:
        # Frames that were exposed are gone with their file, or a new epoch got none yet: a
        # position is never used twice.
        end = end._replace(epoch=known.epoch, position=known.position)
    beyond = [cursor for cursor in cursors if cursor > end.position]
    if beyond:
        ordinal = max(end.position.ordinal, max(beyond).ordinal) + 1
        end = end._replace(epoch=draw_epoch(), position=Position(ordinal, -1))
    return Recovered(end, tuple(ranges), frames, not_copied, bool(beyond))


def _is_foreign(mark: Mark, name: SegmentName) -> bool:
    """Tell whether ``mark`` speaks of another log than ``name``: files were copied together."""
    return mark.position.ordinal == name.ordinal and mark.epoch != name.epoch


def _recover_segment(
    fs: FileSystem,
    directory: str,
    name: SegmentName,
    mark: Mark | None,
    ranges: list[DamagedRange],
) -> tuple[Mark | None, int]:
    """Return the end of the log in ``name`` and its intact frames; None when all of it is torn."""
    here = mark is not None and (mark.segment_ordinal, mark.segment_first) == name[:2]
    durable_end = mark.offset if mark is not None and here else 0
    walk = SegmentWalk(fs, directory, name)
    try:
        exposed = None if mark is None else mark.position
        above = exposed is None or Position(name.ordinal, name.first) > exposed
        if not above:
            walk.refuse_foreign()
        limit = max(walk.size, durable_end)
        found, frames, tail = _scan(walk, Extent(limit, None, exposed))
        expected, size = walk.expected, walk.size
    finally:
        walk.close()
    if above and expected == name.first:
        _move_whole(fs, directory, name, size, ranges)
        return None, 0
    frame = expected - 1
    if exposed is not None and here and exposed.ordinal == name.ordinal:
        frame = max(frame, exposed.frame)
        found = [_bounded(item, exposed) for item in found]
    path = os.path.join(directory, name.filename)
    end = size
    for item in found:
        if item.kind == TORN:
            end = item.start
            if item.start < size:
                copy_range(fs, path, item.start, size, f"{path}.{item.start}{TORN_SUFFIX}")
    ranges.extend(found)
    _settle(fs, path, min(tail, durable_end), tail, end)
    fs.fsync_dir(directory)
    return (
        Mark(
            name.epoch,
            Position(name.ordinal, frame),
            name.ordinal,
            name.first,
            max(end, durable_end),
        ),
        frames,
    )


def _bounded(item: DamagedRange, durable: Position) -> DamagedRange:
    """Name the last frame lost at the damaged end of a log, which the mark knows."""
    if item.kind != DAMAGED or item.first is None or item.last is not None:
        return item
    return DamagedRange(item.file, item.start, item.end, item.kind, item.first, durable)


def _scan(walk: SegmentWalk, extent: Extent) -> tuple[list[DamagedRange], int, int]:
    """Walk the segment; return the bad ranges, the intact data frames and where the last ends."""
    found: list[DamagedRange] = []
    frames = 0
    tail = 0
    while (item := walk.advance(extent)) is not None:
        if isinstance(item, Found):
            body = walk.load(item, extent)
            if not isinstance(body, DamagedRange):
                frames += item.header.kind == KIND_DATA
                tail = item.end
                continue
            item = body
        found.append(item)
    return found, frames, tail


def _move_whole(
    fs: FileSystem, directory: str, name: SegmentName, size: int, ranges: list[DamagedRange]
) -> None:
    """Move a segment aside in which nothing was ever exposed and nothing is intact."""
    path = os.path.join(directory, name.filename)
    fs.rename(path, free_name(fs, f"{path}.0{TORN_SUFFIX}"))
    fs.fsync_dir(directory)
    ranges.append(DamagedRange(name.filename, 0, size, TORN, Position(name.ordinal, name.first)))


def _settle(fs: FileSystem, path: str, start: int, tail: int, end: int) -> None:
    """Cut the file at ``end`` and make what stays durable.

    What lies above the mark is written again in place first: after a failed fsync the kernel
    keeps such pages as clean, and another fsync would return without writing them.
    """
    fd = fs.open(path, os.O_RDWR)
    try:
        while start < tail:
            data = fs.pread(fd, min(_COPY_BYTES, tail - start), start)
            if not data:
                break
            fs.pwrite_all(fd, [data], start)
            start += len(data)
        if end < fs.size(path):
            fs.ftruncate(fd, end)
        fs.fsync(fd)
    finally:
        fs.close(fd)


def _keep_damage(fs: FileSystem, directory: str, ranges: Sequence[DamagedRange]) -> int:
    """Copy damaged bytes beside the segment, so that they outlive its deletion.

    Returns:
        How many a full disk refused: that must not keep a log closed.
    """
    refused = 0
    for item in ranges:
        if item.kind != DAMAGED or item.start == item.end:
            continue
        path = os.path.join(directory, item.file)
        target = f"{path}.{item.start}-{item.end}{DAMAGED_SUFFIX}"
        try:
            if not fs.exists(target):
                copy_range(fs, path, item.start, min(item.end, fs.size(path)), target)
        except OSError as exc:
            if not is_full(exc):
                raise
            refused += 1
    return refused


def copy_range(fs: FileSystem, path: str, start: int, end: int, target: str) -> None:
    """Copy bytes ``start`` .. ``end`` of a file durably to ``target``, or to a name beside it.

    Raises:
        OSError: From the filesystem; there is no half a copy then.
    """
    if end <= start:
        return
    target = free_name(fs, target)
    temp = target + TEMP_SUFFIX
    source = fs.open(path, os.O_RDONLY)
    try:
        fd = fs.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            at = start
            while at < end:
                data = fs.pread(source, min(_COPY_BYTES, end - at), at)
                if not data:
                    break
                fs.pwrite_all(fd, [data], at - start)
                at += len(data)
            fs.fsync(fd)
        finally:
            fs.close(fd)
    finally:
        fs.close(source)
    fs.rename(temp, target)
    fs.fsync_dir(os.path.dirname(target))


def free_name(fs: FileSystem, target: str) -> str:
    """Return ``target``, or a name beside it: bytes set aside earlier are never overwritten."""
    name, number = target, 1
    while fs.exists(name):
        stem, suffix = os.path.splitext(target)
        name, number = f"{stem}.{number}{suffix}", number + 1
    return name
