# SPDX-License-Identifier: Apache-2.0
"""A window of the log as a rosbag2 bag (spec 2, *Tools*): one frame in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from thadam_ros.errors import FatalError
from thadam_ros.files.bag_writer import BagWriter
from thadam_ros.model.globs import glob_matches
from thadam_ros.model.message import Frame, TopicDeclaration
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import list_segments
from thadam_ros.wal.mark import load_mark
from thadam_ros.wal.ranges import DamagedRange, Gap
from thadam_ros.wal.reader import WalReader

#: Loss that is listed; more is counted.
REPORTS_MAX: Final = 1_000

_Report = TypeVar("_Report", DamagedRange, Gap)

NOT_CDR: Final = "not CDR"
UNDECLARED: Final = "its topic's declaration is damaged"
BEFORE_1970: Final = "a log time before 1970"


@dataclass(frozen=True, slots=True)
class Window:
    """What to take of a log; None means without a bound.

    Attributes:
        first, last: Positions, both included.
        from_ns, to_ns: Ingest times, both included. The log is in order of position, not of
            time, so the whole of ``first`` .. ``last`` is looked at.
        topics: Globs over topic names; () for all.
        source: Only this source.
    """

    first: Position | None = None
    last: Position | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    topics: tuple[str, ...] = ()
    source: str | None = None

    def takes(self, topic: str) -> bool:
        """Tell whether a topic belongs to the window."""
        return not self.topics or any(glob_matches(glob, topic) for glob in self.topics)

    def side(self, times_ns: npt.NDArray[np.int64]) -> int:
        """Return -1 when all ``times_ns`` lie before the window, 1 after, 0 else."""
        if not len(times_ns):
            return 0
        if self.from_ns is not None and times_ns.max() < self.from_ns:
            return -1
        return 1 if self.to_ns is not None and times_ns.min() > self.to_ns else 0


@dataclass(slots=True)
class ExportResult:
    """What an export wrote and what it met.

    Attributes:
        bytes: Of payloads.
        first, last: Positions of the first and last frame with a message in the bag.
        topics: Topic -> messages.
        left_out: (topic, reason) -> messages of the window that a bag cannot hold.
        damage, gaps: In the window, or where it may have been; at most 1000 are listed.
        damage_count, gap_count: All of them.
    """

    messages: int = 0
    bytes: int = 0
    first: Position | None = None
    last: Position | None = None
    topics: Counter[str] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    damage: list[DamagedRange] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damage_count: int = 0
    gap_count: int = 0

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing of the window was lost on the way."""
        lost = any(reason != NOT_CDR for _, reason in self.left_out)
        return not (self.damage_count or self.gap_count or lost)


def export_window(
    directory: str,
    folder: Path,
    window: Window,
    *,
    fs: FileSystem,
    compression: str = "zstd",
    progress: Callable[[ExportResult], None] = lambda _: None,
) -> ExportResult:
    """Write what ``window`` takes of the log's durable frames to a new bag at ``folder``.

    Messages keep the log's order and their payload bytes; log time is the ingest time, publish
    time the source timestamp, or the log time where that is unknown.

    Args:
        progress: Called after every frame.

    Raises:
        FatalError: The durable mark is lost, the folder exists, or there are too many topics.
        FormatError: A file is not ours or of another version.
        OSError: From the filesystem; the bag is then not there.
    """
    if load_mark(fs, directory) is None and list_segments(fs, directory):
        raise FatalError(
            f"the durable mark of {directory} is missing or does not verify, so nothing counts as "
            "durable; thadam wal fsck --repair rebuilds it"
        )
    result = ExportResult()
    after = BEFORE_ALL
    if window.first is not None:
        after = Position(window.first.ordinal, window.first.frame - 1)
    reader = WalReader(directory, fs=fs, after=after)
    try:
        with BagWriter(folder, compression=compression) as bag:
            for frame in _frames(reader, window, result):
                _write_frame(frame, window, bag, result)
                progress(result)
            bag.close(_custom(result))
    finally:
        reader.close()
    return result


def _custom(result: ExportResult) -> dict[str, str]:
    if result.first is None or result.last is None:
        return {}
    return {"wal_first": str(result.first), "wal_last": str(result.last)}


def _frames(reader: WalReader, window: Window, result: ExportResult) -> Iterator[Frame]:
    """Yield the frames of the window; put loss on the way into ``result`` where it may matter.

    Frames are read one at a time, so that each loss is known to lie between two of them: what is
    lost has no time, but its neighbours have.
    """
    seen_damage = seen_gaps = 0
    before = -1
    while True:
        frames = reader.read(1, 1)
        frame = frames[0] if frames else None
        # What is lost between two frames on the same outer side lies outside of the window, too.
        side = 1 if frame is None else window.side(frame.ingest_times_ns)
        if side == 0 or side != before:
            _note(
                window,
                _newest(reader.damage, reader.damaged_count - seen_damage),
                _newest(reader.gaps, reader.gap_count - seen_gaps),
                result,
            )
        seen_damage, seen_gaps, before = reader.damaged_count, reader.gap_count, side
        if frame is None:
            return
        if window.last is not None and Position(frame.ordinal, frame.position) > window.last:
            return
        if side == 0:
            yield frame


def _newest(reports: tuple[_Report, ...], count: int) -> tuple[_Report, ...]:
    return reports[-count:] if count else ()


def _note(
    window: Window, damage: Sequence[DamagedRange], gaps: Sequence[Gap], result: ExportResult
) -> None:
    last = window.last
    found = [d for d in damage if last is None or d.first is None or d.first <= last]
    missing = [gap for gap in gaps if last is None or gap.first <= last]
    result.damage_count += len(found)
    result.gap_count += len(missing)
    result.damage += found[: REPORTS_MAX - len(result.damage)]
    result.gaps += missing[: REPORTS_MAX - len(result.gaps)]


def _write_frame(frame: Frame, window: Window, bag: BagWriter, result: ExportResult) -> None:
    if window.source is not None and frame.source_id not in ("", window.source):
        return
    refs = frame.topic_refs
    times = frame.ingest_times_ns
    inside = np.ones(len(frame), np.bool_)
    if window.from_ns is not None:
        inside &= times >= window.from_ns
    if window.to_ns is not None:
        inside &= times <= window.to_ns
    if window.source is not None and not frame.source_id:
        result.left_out["?", UNDECLARED] += int(inside.sum())
        return
    taken: dict[int, TopicDeclaration] = {}
    for ref in np.unique(refs[inside]).tolist():
        topic = frame.topics.get(ref)
        if topic is None:
            result.left_out[f"?{ref}", UNDECLARED] += int((inside & (refs == ref)).sum())
        elif window.takes(topic.name):
            taken[ref] = topic
    chosen = np.flatnonzero(inside & np.isin(refs, list(taken)))
    columns = (refs, times, frame.source_timestamps_ns, frame.sequences)
    starts, ends = frame.offsets[chosen].tolist(), frame.offsets[chosen + 1].tolist()
    payload = frame.payload
    for start, end, ref, time_ns, source_ns, sequence in zip(
        starts, ends, *(column[chosen].tolist() for column in columns), strict=True
    ):
        topic = taken[ref]
        if topic.encoding != "cdr":
            result.left_out[topic.name, NOT_CDR] += 1
        elif time_ns < 0:
            result.left_out[topic.name, BEFORE_1970] += 1
        else:
            bag.write(
                topic,
                payload[start:end].tobytes(),
                log_time_ns=time_ns,
                publish_time_ns=source_ns if source_ns > 0 else time_ns,
                sequence=sequence,
            )
            result.messages += 1
            result.bytes += end - start
            result.topics[topic.name] += 1
            position = Position(frame.ordinal, frame.position)
            result.first = result.first or position
            result.last = position


def left_out_sentences(left_out: Mapping[tuple[str, str], int]) -> list[str]:
    """Return one sentence for each topic and reason."""
    return [
        f"{topic}: {count} messages left out: {reason}"
        for (topic, reason), count in sorted(left_out.items())
    ]
