# SPDX-License-Identifier: Apache-2.0
"""Setting a cursor back against deletion passes that run meanwhile (spec 2, ``RETAIN.lock``)."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from thadam_ros.chain.cursor import Cursor, CursorStore, read_cursor
from thadam_ros.chain.lower import RangeGoneError, lower_cursor
from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import make_batch
from thadam_ros.wal.layout import list_segments
from thadam_ros.wal.retention import Retention
from thadam_ros.wal.writer import WalWriter

DEADLINE_S = 30.0


class Bench:
    """A log of many small segments, a chain folder, and the retention over both."""

    def __init__(self, folder: Path) -> None:
        self.fs = OsFileSystem()
        self.wal_dir = str(folder / "wal")
        self.chain_dir = str(folder / "chain")
        os.makedirs(self.chain_dir)
        self.store = CursorStore(self.chain_dir, self.fs)
        config = WalConfig(
            budget_bytes=1 << 20,
            min_free_bytes=0,
            segment_bytes=1_000,
            replay_window_bytes=0,
            commit_interval_ns=0,
        )
        self.writer = WalWriter.open(
            self.wal_dir, config, fs=self.fs, clock=SystemClock(), clock_synced=lambda: True
        )
        self.retention = Retention(
            self.wal_dir,
            self.writer.budget,
            fs=self.fs,
            log=self.writer,
            read_cursors=self.cursors,
        )

    def cursors(self, durable: bool) -> dict[str, Position]:
        cursor = read_cursor(self.chain_dir, self.fs)
        return {"a": BEFORE_ALL if cursor is None else cursor.position}

    def write(self, frames: int) -> None:
        for _ in range(frames):
            assert self.writer.append(make_batch([b"p" * 500]))
            assert self.writer.flush(DEADLINE_S)

    def raise_to(self, frame: int) -> None:
        before, _ = self.store.load()
        number = 0 if before is None else before.cut_no
        self.store.commit(Cursor(Position(0, frame), 7, number + 1), b"state")

    def lower_to(self, frame: int) -> Cursor:
        return lower_cursor(
            self.store, Position(0, frame), 7, b"older", wal_dir=self.wal_dir, fs=self.fs
        )

    def oldest(self) -> int:
        return list_segments(self.fs, self.wal_dir)[0].first


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.writer.close()


def test_a_lowered_cursor_keeps_its_segments(bench: Bench) -> None:
    """What is to be read again is pinned from then on."""
    bench.write(30)
    bench.raise_to(9)
    bench.retention.run()
    bench.raise_to(29)
    lowered = bench.lower_to(bench.oldest() - 1)
    assert read_cursor(bench.chain_dir, bench.fs) == lowered
    assert bench.store.load()[1] == b"older"
    before = bench.oldest()
    bench.retention.run()
    assert bench.oldest() == before


def test_a_range_that_is_gone_is_refused_and_the_cursor_restored(bench: Bench) -> None:
    """The chain goes on where it was, with the state that belongs there."""
    bench.write(30)
    bench.raise_to(29)
    bench.retention.run()
    with pytest.raises(RangeGoneError, match="no longer holds"):
        bench.lower_to(3)
    cursor, state = bench.store.load()
    assert cursor is not None
    assert (cursor.position, state) == (Position(0, 29), b"state")


def test_a_cursor_is_not_raised_by_lowering_it(bench: Bench) -> None:
    """Skipping frames is no way of reading them again."""
    bench.write(3)
    bench.raise_to(1)
    with pytest.raises(ValueError, match="not below"):
        bench.lower_to(1)


def test_lowering_races_with_deletion_passes_and_never_reads_from_nothing(bench: Bench) -> None:
    """After every success the segment is there and stays; after every refusal nothing moved."""
    rng = random.Random(11)
    stop = threading.Event()
    errors: list[BaseException] = []

    def delete() -> None:
        while not stop.is_set():
            try:
                bench.retention.run()
            except BaseException as exc:
                errors.append(exc)
                return

    thread = threading.Thread(target=delete)
    thread.start()
    outcomes = {True: 0, False: 0}
    end = 0
    try:
        for _ in range(60):
            bench.write(4)
            end += 4
            bench.raise_to(end - 1)
            target = end - 1 - rng.randint(1, 6)
            try:
                bench.lower_to(target)
            except RangeGoneError:
                outcomes[False] += 1
                cursor = read_cursor(bench.chain_dir, bench.fs)
                assert cursor is not None
                assert cursor.position == Position(0, end - 1)
                continue
            outcomes[True] += 1
            passes = bench.retention.statistics().passes
            while bench.retention.statistics().passes < passes + 2:
                assert thread.is_alive(), errors
            assert bench.oldest() <= target + 1
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert all(outcomes.values()), outcomes
    assert bench.retention.statistics().deleted_segments > 20
