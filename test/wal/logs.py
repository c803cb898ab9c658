# SPDX-License-Identifier: Apache-2.0
"""Small logs with a bit of everything, and what a reader makes of damaged copies of them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import Frame, TopicDeclaration
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem
from thadam_ros.testing.wal import (
    MemoryFileSystem,
    OracleFrame,
    list_valid_frames,
    load_directory,
    make_batch,
)
from thadam_ros.wal.mark import MARK_FILE, MarkWriter
from thadam_ros.wal.ranges import DamagedRange, Gap
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.recovery import recover
from thadam_ros.wal.writer import WalWriter


@dataclass(frozen=True)
class SmallLog:
    """A closed log, its bytes, and the frames the oracle finds in them."""

    directory: str
    files: dict[str, bytes]
    frames: tuple[OracleFrame, ...]

    @property
    def segments(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".wal"))

    def file_frames(self, path: str) -> list[OracleFrame]:
        return [frame for frame in self.frames if frame.file == os.path.basename(path)]


def write_small_log(
    directory: str,
    total_bytes: int,
    *,
    segment_bytes: int,
    payload_bytes: int = 300,
    compression: str = "none",
    seed: int = 1,
) -> SmallLog:
    """Write frames of 1..6 records, with attributes and empty payloads among them."""
    rng = random.Random(seed)
    writer = WalWriter.open(
        directory,
        WalConfig(
            segment_bytes=segment_bytes,
            compression=compression,
            commit_interval_ns=0,
            min_free_bytes=0,
        ),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    topics = [
        writer.declare_topic(TopicDeclaration(f"/t{i}", type_name="x/msg/T", definition="int32 a"))
        for i in range(3)
    ]
    publisher = writer.declare_publisher(bytes(range(24)))
    while writer.statistics().bytes < total_bytes:
        payloads = [
            rng.randbytes(rng.choice((0, 1, 7, rng.randrange(payload_bytes))))
            if compression == "none"
            else b"ab" * rng.randrange(payload_bytes)
            for _ in range(rng.randrange(1, 6))
        ]
        writer.append(
            make_batch(
                payloads,
                topic_ref=rng.choice(topics),
                publisher_ref=rng.choice((0, publisher)),
                first_sequence=rng.choice((None, 5)),
                attributes={0: {"retain": "1"}} if rng.random() < 0.3 else None,
            )
        )
        assert writer.flush(10)
    writer.close()
    files = {p: d for p, d in load_directory(directory).items() if not p.endswith("LOCK")}
    return SmallLog(directory, files, tuple(list_valid_frames(directory)))


@dataclass(frozen=True)
class Outcome:
    """What opening and reading a log came to."""

    frames: tuple[Frame, ...]
    ranges: tuple[DamagedRange, ...]
    gaps: tuple[Gap, ...]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(frame.ordinal, frame.position) for frame in self.frames]


def read_all(fs: FileSystem, directory: str, after: Position = BEFORE_ALL) -> Outcome:
    """Read to the durable mark without a writer."""
    reader = WalReader(directory, fs=fs, after=after)
    try:
        frames: list[Frame] = []
        while batch := reader.read(7, 1 << 20):
            frames += batch
        return Outcome(tuple(frames), reader.damage, reader.gaps)
    finally:
        reader.close()


def open_and_read(files: dict[str, bytes], directory: str) -> Outcome:
    """Do what a writer does at open, then read everything."""
    fs = MemoryFileSystem(files)
    recovered = recover(fs, directory, cursors=(), draw_epoch=lambda: 77)
    MarkWriter(fs, directory, recovered.mark).close()
    outcome = read_all(fs, directory)
    assert fs.open_files == 0, "a file was left open"
    return Outcome(outcome.frames, recovered.ranges + outcome.ranges, outcome.gaps)


def without_mark(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if os.path.basename(path) != MARK_FILE}


def uncovered(start: int, end: int, ranges: Sequence[DamagedRange]) -> list[tuple[int, int]]:
    """Return what of ``start`` .. ``end`` no range covers."""
    left = [(start, end)]
    for item in ranges:
        left = [
            piece
            for low, high in left
            for piece in ((low, min(high, item.start)), (max(low, item.end), high))
            if piece[0] < piece[1]
        ]
    return left


def check_outcome(
    log: SmallLog, outcome: Outcome, path: str, changed: Sequence[tuple[int, int]]
) -> None:
    """Hold ``outcome`` against the oracle when bytes ``changed`` of ``path`` are not as written.

    Delivered = intact; every changed byte is in a range; no range touches an intact frame; every
    lost frame is in a range, and so classed.
    """
    name = os.path.basename(path)
    touched = {
        frame.place
        for frame in log.file_frames(path)
        if any(start < frame.end and frame.start < end for start, end in changed)
    }
    intact = [frame for frame in log.frames if frame.place not in touched]
    assert outcome.places == [frame.place for frame in intact]
    ranges = [item for item in outcome.ranges if item.file == name]
    assert {item.file for item in outcome.ranges} <= {name}
    for start, end in changed:
        assert not uncovered(start, end, ranges)
    for frame in intact:
        if frame.file == name:
            assert not any(r.start < frame.end and frame.start < r.end for r in ranges), frame
    for place in touched:
        assert any(item.loses(Position(*place)) for item in ranges), place
    assert all(item.kind in ("torn", "damaged") for item in ranges)
    assert not outcome.gaps
