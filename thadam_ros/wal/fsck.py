# SPDX-License-Identifier: Apache-2.0
"""Looking at a whole log from outside: what it holds, what is damaged, what is missing.

Nothing here writes, and nothing here needs the log's lock: it may run beside a writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass

from thadam_ros.errors import FormatError
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.cursor import closed_extent, gap_between, read_segment_header
from thadam_ros.wal.layout import (
    KIND_DATA,
    SEGMENT_SUFFIX,
    SegmentName,
    list_segments,
    parse_segment_name,
)
from thadam_ros.wal.mark import MARK_FILE, Mark, load_mark
from thadam_ros.wal.ranges import DamagedRange, Gap
from thadam_ros.wal.segment import HEADER_READ_AHEAD_BYTES, Extent, Found, SegmentWalk

LOCK_FILE = "LOCK"


@dataclass(frozen=True, slots=True)
class SegmentListing:
    """One segment as ``ls`` shows it, from names, sizes and headers alone.

    Attributes:
        last: Last position, -1 when it holds none that is durable.
        created_ns: Wall clock at creation, 0 when the header does not verify.
    """

    name: SegmentName
    last: int
    bytes: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What ``fsck`` found in one segment.

    Attributes:
        frames, records, declarations: Intact ones.
        last: Last intact position, -1 for none.
        beyond_mark: Intact frames above the durable mark; the next open exposes them.
        refused: Why the file cannot be read at all, or empty.
    """

    name: SegmentName
    bytes: int
    frames: int = 0
    records: int = 0
    declarations: int = 0
    last: int = -1
    beyond_mark: int = 0
    damage: tuple[DamagedRange, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What ``fsck`` found in a log.

    Attributes:
        mark: Content of the durable mark, None when it is missing or does not verify.
        writer_active: A writer holds the lock; what lies above the mark was left alone.
        foreign: Files with a segment's suffix but not a segment's name.
        kept: Bytes that recoveries set aside: file name and size. No problem by themselves.
    """

    directory: str
    mark: Mark | None
    writer_active: bool
    segments: tuple[SegmentReport, ...]
    gaps: tuple[Gap, ...]
    foreign: tuple[str, ...]
    kept: tuple[tuple[str, int], ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong."""
        found: list[str] = []
        if self.mark is None and self.segments:
            found.append(
                f"{MARK_FILE} is missing or does not verify; the next open rebuilds it and nothing "
                "is lost"
            )
        for segment in self.segments:
            if segment.refused:
                found.append(segment.refused)
            found += [describe_range(item) for item in segment.damage]
        found += [describe_gap(gap) for gap in self.gaps]
        found += [f"{name} is not a segment's name; it is not read" for name in self.foreign]
        return tuple(found)


def describe_range(item: DamagedRange) -> str:
    """Return one sentence about a bad range."""
    if item.first is None:
        lost = "no frame is lost with it"
    elif item.last is None:
        lost = f"frames from {item.first} on are lost"
    elif item.last == item.first:
        lost = f"frame {item.first} is lost"
    else:
        lost = f"frames {item.first} to {item.last} are lost"
    return f"{item.file}: bytes {item.start} to {item.end} are {item.kind}; {lost}"


def describe_gap(gap: Gap) -> str:
    """Return one sentence about a gap."""
    where = f"before {gap.before_file}" if gap.before_file else "at the end"
    return f"a segment is missing {where}; positions {gap.first} to {gap.last} are lost"


def has_writer(directory: str) -> bool:
    """Tell whether a living process holds the log's lock."""
    try:
        fd = os.open(os.path.join(directory, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared and given back at once: it keeps no one out but tells of an exclusive holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def list_log(fs: FileSystem, directory: str) -> tuple[Mark | None, list[SegmentListing]]:
    """Return the durable mark and every segment, without reading frames.

    Raises:
        FormatError: A file is of another version.
        OSError: From the filesystem.
    """
    mark = load_mark(fs, directory)
    names = list_segments(fs, directory)
    listed: list[SegmentListing] = []
    for index, name in enumerate(names):
        following = names[index + 1] if index + 1 < len(names) else None
        if following is not None and following.ordinal == name.ordinal:
            last = following.first - 1
        elif mark is not None and mark.position.ordinal == name.ordinal:
            last = mark.position.frame
        else:
            last = _last_position(fs, directory, name)
        header = read_segment_header(fs, directory, name)
        listed.append(
            SegmentListing(
                name=name,
                last=last if last >= name.first else -1,
                bytes=fs.size(os.path.join(directory, name.filename)),
                created_ns=0 if header is None else header.created_ns,
            )
        )
    return mark, listed


def end_of_files(fs: FileSystem, directory: str) -> Mark | None:
    """Return a mark at the last intact header of a log at rest, None when there is no segment.

    For reading what was never exposed: a log whose mark is lost, or the tail a crash left.

    Raises:
        FormatError: A file is of another version.
        OSError: From the filesystem.
    """
    names = list_segments(fs, directory)
    if not names:
        return None
    name = names[-1]
    position, offset = _end_of_segment(fs, directory, name)
    return Mark(name.epoch, Position(name.ordinal, position), name.ordinal, name.first, offset)


def fsck(fs: FileSystem, directory: str, *, locked: bool = False) -> FsckReport:
    """Read every byte of every segment; memory does not grow with the log.

    Args:
        locked: The caller holds the log's lock itself: nothing writes.

    Raises:
        FormatError: Two logs' segments are mixed, or the mark has another version.
        OSError: From the filesystem.
    """
    mark = load_mark(fs, directory)
    active = not locked and has_writer(directory)
    names = list_segments(fs, directory)
    if active and mark is not None:
        # What is being written now is nobody's business yet.
        names = [n for n in names if n[:2] <= (mark.segment_ordinal, mark.segment_first)]
    segments: list[SegmentReport] = []
    gaps: list[Gap] = []
    for index, name in enumerate(names):
        following = names[index + 1] if index + 1 < len(names) else None
        try:
            report, expected = _check_segment(fs, directory, name, following, mark, active)
            if following is not None:
                gap = gap_between(fs, directory, name, expected, following)
                if gap is not None:
                    gaps.append(gap)
            elif mark is not None:
                first = Position(name.ordinal, expected)
                # Positions that were exposed and that no file holds: the newest is missing.
                if first <= mark.position and mark.position.frame >= 0:
                    gaps.append(Gap(first, mark.position, ""))
        except FormatError as exc:
            size = fs.size(os.path.join(directory, name.filename))
            report = SegmentReport(name, size, refused=str(exc))
        segments.append(report)
    files = fs.listdir(directory)
    return FsckReport(
        directory=directory,
        mark=mark,
        writer_active=active,
        segments=tuple(segments),
        gaps=tuple(gaps),
        foreign=tuple(
            f for f in files if f.endswith(SEGMENT_SUFFIX) and parse_segment_name(f) is None
        ),
        kept=_kept(fs, directory, files),
    )


def _check_segment(
    fs: FileSystem,
    directory: str,
    name: SegmentName,
    following: SegmentName | None,
    mark: Mark | None,
    active: bool,
) -> tuple[SegmentReport, int]:
    """Return the report and the position after the last one held or known to be lost."""
    durable = None if mark is None else mark.position
    here = mark is not None and (mark.segment_ordinal, mark.segment_first) == name[:2]
    with contextlib.closing(SegmentWalk(fs, directory, name)) as walk:
        if following is not None:
            extent = closed_extent(fs, directory, name, following, durable)
        elif mark is not None and here:
            end = mark.offset if active else max(walk.size, mark.offset)
            extent = Extent(end, mark.position.frame if end == mark.offset else None, durable)
        else:
            extent = Extent(walk.size, None, durable)
        walk.refuse_foreign()
        frames = records = declarations = beyond = 0
        last = -1
        damage: list[DamagedRange] = []
        while (item := walk.advance(extent)) is not None:
            if isinstance(item, Found):
                header = item.header
                body = walk.load(item, extent)
                if not isinstance(body, DamagedRange):
                    if header.kind == KIND_DATA:
                        frames += 1
                        records += header.records
                        last = header.position
                        beyond += durable is None or Position(name.ordinal, last) > durable
                    else:
                        declarations += 1
                    continue
                item = body
            damage.append(item)
        report = SegmentReport(
            name=name,
            bytes=walk.size,
            frames=frames,
            records=records,
            declarations=declarations,
            last=last,
            beyond_mark=beyond,
            damage=tuple(damage),
        )
        return report, walk.expected


def _kept(fs: FileSystem, directory: str, files: Sequence[str]) -> tuple[tuple[str, int], ...]:
    suffixes = (".torn", ".damaged", ".suspect")
    return tuple((f, fs.size(os.path.join(directory, f))) for f in files if f.endswith(suffixes))


def _end_of_segment(fs: FileSystem, directory: str, name: SegmentName) -> tuple[int, int]:
    """Return the last position and where the last frame ends, by headers."""
    with contextlib.closing(
        SegmentWalk(fs, directory, name, read_ahead=HEADER_READ_AHEAD_BYTES)
    ) as walk:
        extent = Extent(walk.size, None, None)
        end = min(walk.offset, walk.size)
        while (item := walk.advance(extent)) is not None:
            if isinstance(item, Found):
                walk.skip(item)
                end = item.end
        return walk.expected - 1, end


def _last_position(fs: FileSystem, directory: str, name: SegmentName) -> int:
    return _end_of_segment(fs, directory, name)[0]
