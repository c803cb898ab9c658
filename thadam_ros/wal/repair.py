# SPDX-License-Identifier: Apache-2.0
"""``fsck --repair``: set damage aside, mend what the log itself knows, under the log's lock.

Bytes that do not verify are copied beside their segment before anything is written over them, and
files that are no segments are renamed: no byte is ever destroyed. What can be mended:

=================================  ===========================================================
found                              done
=================================  ===========================================================
a copy of a segment's header       written again from the other copy
a declaration                      written again from its twin
a segment under a wrong name       gets the name that its header says
a file that is no segment          renamed to ``.damaged``
a torn tail, a lost mark           what the next open would do: cut to ``.torn``, rebuilt
a data frame that does not verify  copied to ``.damaged``; it stays lost, readers skip it
a segment is missing               nothing: only a copy from elsewhere brings it back
=================================  ===========================================================

A file of another version is not damage: the repair refuses the whole log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.storage.lock import DirectoryLock
from thadam_ros.wal.cursor import read_header
from thadam_ros.wal.fsck import FsckReport, SegmentReport, fsck
from thadam_ros.wal.layout import (
    FRAME_HEADER_BYTES,
    KIND_DECLARATION,
    SEGMENT_COPY_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    FrameHeader,
    SegmentHeader,
    SegmentName,
    checksum,
    list_segments,
    parse_frame_header,
    parse_segment_copy,
)
from thadam_ros.wal.mark import MARK_FILE, MarkWriter, load_mark
from thadam_ros.wal.ranges import DAMAGED, TORN, DamagedRange
from thadam_ros.wal.recovery import DAMAGED_SUFFIX, TORN_SUFFIX, copy_range, free_name, recover
from thadam_ros.wal.writer import draw_random_epoch

LOCK_OWNER: Final = "thadam wal fsck --repair"
#: A declaration is read whole to be compared with its twin; larger ones do not exist.
_DECLARATION_BYTES_MAX: Final = 64 << 20
_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was done.

    Attributes:
        file: Which file, by the name it had.
        start, end: Which bytes of it; all 0 for a whole file.
        done: What was done, as the end of a sentence.
        kept_in: File beside it that holds the bytes as they were, or empty.
    """

    file: str
    start: int
    end: int
    done: str
    kept_in: str = ""

    def __str__(self) -> str:
        where = f": bytes {self.start} to {self.end}" if self.end else ""
        kept = f"; what stood there is in {self.kept_in}" if self.kept_in else ""
        return f"{self.file}{where} {self.done}{kept}"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found, did and left."""

    before: FsckReport
    repairs: tuple[Repair, ...]
    after: FsckReport


def repair(fs: FileSystem, directory: str) -> RepairReport:
    """Repair the log in ``directory``; may be called again, and then does nothing.

    Raises:
        LockHeldError: A writer has the log; the message says who.
        FormatError: A file has another version, or two logs are mixed; nothing was changed.
        OSError: From the filesystem, ENOSPC included: nothing is written over without a copy.
    """
    with DirectoryLock(directory, LOCK_OWNER):
        strangers = _headers(fs, directory)
        before = found = fsck(fs, directory, locked=True)
        repairs = list(_rename_strangers(fs, directory, before, strangers))
        if repairs:
            # Under its right name a file may turn out to be damaged, too.
            found = fsck(fs, directory, locked=True)
        repairs += _mend_all(fs, directory, found)
        if found.segments or found.mark is not None:
            repairs += _recover_end(fs, directory)
        after = fsck(fs, directory, locked=True)
        # Only with the mark is a torn end of an older segment known to be damage.
        rest = list(_mend_all(fs, directory, after))
        if rest:
            repairs += rest
            after = fsck(fs, directory, locked=True)
        return RepairReport(before, tuple(repairs), after)


def _headers(fs: FileSystem, directory: str) -> dict[str, SegmentHeader | None]:
    """Return the header of every file with a segment's suffix.

    Raises:
        FormatError: One of them, or the mark, has another version; or two logs are mixed.
        OSError: From the filesystem.
    """
    load_mark(fs, directory)
    list_segments(fs, directory)
    return {
        filename: read_header(fs, os.path.join(directory, filename))
        for filename in fs.listdir(directory)
        if filename.endswith(SEGMENT_SUFFIX)
    }


def _rename_strangers(
    fs: FileSystem,
    directory: str,
    found: FsckReport,
    headers: Mapping[str, SegmentHeader | None],
) -> Iterator[Repair]:
    """Give segments their own names, and files that are none another suffix."""
    refused = [segment.name.filename for segment in found.segments if segment.refused]
    for filename in (*refused, *found.foreign):
        path = os.path.join(directory, filename)
        header = headers[filename]
        if header is not None and _has_place(fs, directory, filename, header.name):
            target = os.path.join(directory, header.name.filename)
            done = f"got its own name back: {_base(target)}"
        else:
            target = free_name(fs, path + DAMAGED_SUFFIX)
            done = f"is no segment of this log: renamed to {_base(target)}"
        fs.rename(path, target)
        fs.fsync_dir(directory)
        yield Repair(filename, 0, 0, done)


def _has_place(fs: FileSystem, directory: str, filename: str, own: SegmentName) -> bool:
    """Tell whether the name is free, and of this log: two epochs under one ordinal are not."""
    others = [name for name in list_segments(fs, directory) if name.filename != filename]
    return all(
        name.ordinal != own.ordinal or (name.epoch == own.epoch and name.first != own.first)
        for name in others
    )


def _base(path: str) -> str:
    return os.path.basename(path)


def _mend_all(fs: FileSystem, directory: str, found: FsckReport) -> Iterator[Repair]:
    for segment in found.segments:
        for item in segment.damage:
            # What is torn is for the recovery; what lies behind the file has no bytes.
            if item.kind == DAMAGED and item.start < min(item.end, segment.bytes):
                done = _mend(fs, directory, segment, item)
                if done is not None:
                    yield done


def _mend(
    fs: FileSystem, directory: str, segment: SegmentReport, item: DamagedRange
) -> Repair | None:
    """Copy a bad range aside, unless it is; write it again where its content stands elsewhere."""
    path = os.path.join(directory, item.file)
    end = min(item.end, segment.bytes)
    known = _known_content(fs, path, segment.name, item)
    kept = f"{path}.{item.start}-{item.end}{DAMAGED_SUFFIX}"
    is_kept = fs.exists(kept) and _same_bytes(fs, path, item.start, end, kept)
    if not is_kept:
        # Other bytes under this name are of an earlier damage.
        kept = free_name(fs, kept)
        copy_range(fs, path, item.start, end, kept)
    if known is None:
        done = "are set aside; readers skip them"
        return None if is_kept else Repair(item.file, item.start, item.end, done, _base(kept))
    content, source = known
    fd = fs.open(path, os.O_RDWR)
    try:
        fs.pwrite_all(fd, [content], item.start)
        fs.fsync(fd)
    finally:
        fs.close(fd)
    return Repair(item.file, item.start, item.end, f"are written again from {source}", _base(kept))


def _known_content(
    fs: FileSystem, path: str, name: SegmentName, item: DamagedRange
) -> tuple[bytes, str] | None:
    """Return what belongs into a bad range and where it stands, None when nobody knows."""
    if item.first is not None:
        return None
    size = item.end - item.start
    fd = fs.open(path, os.O_RDONLY)
    try:
        if item.end <= SEGMENT_HEADER_BYTES:
            other = SEGMENT_COPY_BYTES - item.start
            copy = fs.pread(fd, SEGMENT_COPY_BYTES, other) if size == SEGMENT_COPY_BYTES else b""
            known = parse_segment_copy(copy, path)
            is_copy = known is not None and known.name == name
            return (copy, "the other copy of the header") if is_copy else None
        if size > _DECLARATION_BYTES_MAX:
            return None
        following = parse_frame_header(fs.pread(fd, FRAME_HEADER_BYTES, item.end))
        for start in (item.end, item.start - size):
            if start >= SEGMENT_HEADER_BYTES and following is not None:
                frame = fs.pread(fd, size, start)
                if _is_twin(frame, following):
                    return frame, "the declaration's twin"
        return None
    finally:
        fs.close(fd)


def _is_twin(frame: bytes, following: FrameHeader) -> bool:
    """Tell whether ``frame`` is one intact declaration of the data frame that is to follow.

    Each declaration stands twice in a row (format, invariant 2), so a bad range that holds no
    data frame, beside an intact declaration of its length, is that one's twin.

    Args:
        following: The frame behind the bad range: the twin itself, or the data frame.
    """
    header = parse_frame_header(frame)
    return (
        header is not None
        and header.kind == KIND_DECLARATION
        and (header.sync, header.epoch, header.ordinal, header.position)
        == (following.sync, following.epoch, following.ordinal, following.position)
        and header.frame_bytes == len(frame)
        and checksum([memoryview(frame)[FRAME_HEADER_BYTES:]]) == header.body_crc
    )


def _same_bytes(fs: FileSystem, path: str, start: int, end: int, copy: str) -> bool:
    """Tell whether the file ``copy`` holds bytes ``start`` .. ``end`` of ``path``."""
    if fs.size(copy) != end - start:
        return False
    left = fs.open(path, os.O_RDONLY)
    right = fs.open(copy, os.O_RDONLY)
    try:
        return all(
            fs.pread(left, min(_STEP_BYTES, end - at), at)
            == fs.pread(right, min(_STEP_BYTES, end - at), at - start)
            for at in range(start, end, _STEP_BYTES)
        )
    finally:
        fs.close(left)
        fs.close(right)


def _recover_end(fs: FileSystem, directory: str) -> Iterator[Repair]:
    """Do what the next open would do: cut a torn tail, expose what is intact, rebuild the mark."""
    mark = load_mark(fs, directory)
    files = set(fs.listdir(directory))
    recovered = recover(fs, directory, cursors=(), draw_epoch=draw_random_epoch)
    fresh = [name for name in fs.listdir(directory) if name not in files]
    for item in recovered.ranges:
        if item.kind == TORN:
            kept = [f for f in fresh if f.startswith(item.file) and f.endswith(TORN_SUFFIX)]
            yield Repair(item.file, item.start, item.end, "are torn: cut off", ", ".join(kept))
    if mark == recovered.mark:
        return
    page = MarkWriter(fs, directory, recovered.mark)
    page.close()
    was = "was missing or damaged: rebuilt" if mark is None else f"stood at {mark.position}: moved"
    yield Repair(MARK_FILE, 0, 0, f"{was}, it says {recovered.mark.position}")
