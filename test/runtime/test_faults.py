# SPDX-License-Identifier: Apache-2.0
"""A fault at any call that changes the chain's disk: readers still see each row exactly once."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.quarantine.staging import read_staging
from thadam_ros.runtime.chain_runner import ChainRunner
from thadam_ros.runtime.loading import load_text
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.bags import BagMessage, write_wal
from thadam_ros.testing.edge_child import TYPE_NAME, encode

DEADLINE_S = 60.0
#: More than a whole run of the chain makes below; a run that ends before is the last.
CALLS_MAX = 200
DOCUMENT = """
schema: 1
edge: {data_dir: $(env TEST_DIR)/data, clock: always_synced}
sources: {robot: {type: ros2}}
datasets:
  numbers:
    match: {source: robot, topics: [/numbers]}
    type: std_msgs/msg/UInt64
    fields: {data: /data}
sinks:
  lake: {type: parquet, url: $(env TEST_DIR)/lake, rotation: {max_age: 10ms, max_rows: 12}}
"""


class Fails(OsFileSystem):
    """Raises at the n-th call that changes something and at some after it, and never again."""

    def __init__(self, at: int, times: int, error: BaseException) -> None:
        self.calls = 0
        self.at = at
        self.times = times
        self.error = error

    def _tick(self) -> None:
        self.calls += 1
        if self.at <= self.calls < self.at + self.times:
            raise self.error

    def fsync(self, fd: int) -> None:
        self._tick()

    def fsync_dir(self, path: str) -> None:
        self._tick()

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        self._tick()
        return super().pwrite_all(fd, buffers, offset)

    def rename(self, source: str, target: str) -> None:
        self._tick()
        super().rename(source, target)
        self._tick()

    def link(self, source: str, target: str) -> None:
        self._tick()
        super().link(source, target)
        self._tick()

    def unlink(self, path: str) -> None:
        self._tick()
        super().unlink(path)

    def ftruncate(self, fd: int, size: int) -> None:
        self._tick()
        super().ftruncate(fd, size)


def _numbers(folder: Path) -> list[int]:
    found: list[int] = []
    for path in (folder / "lake").rglob("*.parquet"):
        found.extend(pq.ParquetFile(path).read(["data"]).column("data").to_pylist())
    return sorted(found)


def _run(folder: Path, fs: Fails) -> None:
    """Run the chain, with new ones when one cannot be opened or ends, until it has drained."""
    loaded = load_text(DOCUMENT, {"TEST_DIR": str(folder)})
    deadline = time.monotonic() + DEADLINE_S
    drained = False
    while not drained:
        assert time.monotonic() < deadline
        runner = ChainRunner(
            loaded.config.sinks["lake"],
            loaded,
            fs=fs,
            clock=SystemClock(),
            on_fatal=lambda exc: None,
            draw=lambda: 0.0,
        )
        try:
            runner.open(lambda: None)
        except BaseException as exc:
            if fs.error not in (exc, exc.__cause__):
                raise
            continue
        # Some turns of ordinary work, so that cuts come by age as well.
        for _ in range(5):
            runner.step()
            threading.Event().wait(0.004)
        drained = runner.close(DEADLINE_S / 4)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EIO, os.strerror(errno.EIO)),
        OSError(errno.EACCES, os.strerror(errno.EACCES)),
        SystemExit(3),
    ],
    ids=["full", "I/O error", "no access", "SystemExit"],
)
def test_a_fault_at_any_call_loses_and_repeats_nothing_that_readers_see(
    tmp_path: Path, error: BaseException, times: int, request: pytest.FixtureRequest
) -> None:
    """Every third call of a run fails once, in a run of its own; the long form tries each."""
    topic = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition="uint64 data")
    stride = 1 if request.config.getoption("--long", default=False) else 3
    for at in range(1, CALLS_MAX, stride):
        folder = tmp_path / str(at)
        messages = [
            # Two hours, a bad payload in each: partitions, rejects and cuts of several files.
            BagMessage(
                topic,
                1_700_000_000_000_000_000 + n * 150_000_000_000,
                b"bad" if n % 20 == 7 else encode(n),
            )
            for n in range(40)
        ]
        write_wal(str(folder / "data" / "wal"), messages, records_per_frame=5)
        fs = Fails(at, times, error)
        _run(folder, fs)
        assert _numbers(folder) == [n for n in range(40) if n % 20 != 7], (at, fs.calls)
        staging = str(folder / "data" / "chains" / "lake" / "staging")
        rejects = [(r.wal_pos, r.record_index) for r in read_staging(staging, OsFileSystem())]
        assert sorted(rejects) == [(1, 2), (5, 2)], at
        if fs.calls < at:
            return
    pytest.fail(f"a run makes more than {CALLS_MAX} calls: raise the limit")
