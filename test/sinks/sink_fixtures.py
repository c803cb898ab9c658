# SPDX-License-Identifier: Apache-2.0
"""What the sink tests share: rows, a fake clock, disks that fail or die at a chosen call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from thadam_ros.config.schema import DeliveryConfig, RotationConfig, SinkConfig
from thadam_ros.sinks.contract import PartitionKey, PublishUnit
from thadam_ros.sinks.parquet.driver import ParquetDriver
from thadam_ros.storage.atomic import read_whole, replace_durably
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem

EPOCH = 6_611_234_567_890_123_456
HOUR = 490_100  # 2025-11-28T20, hours since the Unix epoch
_TICKS = {"us": 1_000_000, "ns": 1_000_000_000}


def imu_schema(unit: str = "us") -> pa.Schema:
    """Envelope and a few columns of every kind, with field ids."""
    fields = [
        pa.field("_event_id", pa.binary(16), nullable=False),
        pa.field("_ingest_time", pa.timestamp(unit, "UTC"), nullable=False),
        pa.field("_time_domain", pa.dictionary(pa.int32(), pa.string())),
        pa.field("_quality_flags", pa.int32()),
        pa.field("_clock_synced", pa.bool_(), nullable=False),
        pa.field("_wal_epoch", pa.int64()),
        pa.field("_wal_pos", pa.int64()),
        pa.field("robot", pa.dictionary(pa.int32(), pa.string())),
        pa.field("temperature", pa.float64()),
        pa.field("covariance", pa.list_(pa.float64())),
        pa.field("frame_id", pa.string()),
    ]
    return pa.schema(
        [f.with_metadata({"PARQUET:field_id": str(i + 1)}) for i, f in enumerate(fields)]
    )


def imu_rows(
    first_pos: int,
    count: int,
    *,
    hour: int = HOUR,
    synced: bool = True,
    unit: str = "us",
    robots: Sequence[str] = ("r1",),
    width: int = 4,
) -> pa.RecordBatch:
    """Rows with positions ``first_pos`` onwards; equal arguments give equal rows."""
    positions = np.arange(first_pos, first_pos + count, dtype=np.int64)
    ids = b"".join(int(p).to_bytes(16, "big") for p in positions)
    times = (hour * 3600 * 1000 + positions % 1000) * (_TICKS[unit] // 1000)
    noise = np.random.default_rng(first_pos)
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids)]),
        pa.array(times, pa.timestamp(unit, "UTC")),
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["utc"])),
        pa.array(np.zeros(count, np.int32)),
        pa.array(np.full(count, synced)),
        pa.array(np.full(count, EPOCH, np.int64)),
        pa.array(positions),
        pa.DictionaryArray.from_arrays(
            pa.array((positions % len(robots)).astype(np.int32)), pa.array(list(robots))
        ),
        pa.array(noise.normal(size=count)),
        pa.FixedSizeListArray.from_arrays(pa.array(noise.normal(size=count * width)), width).cast(
            pa.list_(pa.float64())
        ),
        pa.array(["imu_link"] * count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=imu_schema(unit))


def unit_of(
    cut_no: int, *rows: pa.RecordBatch, hour: int = HOUR, synced: bool = True, dataset: str = "imu"
) -> PublishUnit:
    """A unit of one partition with a little lineage."""
    lineage = {"positions": [[str(EPOCH), int(r["_wal_pos"][0].as_py())] for r in rows if len(r)]}
    return PublishUnit(PartitionKey(dataset, hour, synced), cut_no, rows, lineage)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def time_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def boottime_ns(self) -> int:
        return self.now_ns

    def boot_id(self) -> bytes:
        return bytes(16)


class HookedFs:
    """The real filesystem; ``hook(call number from 1, name, arguments)`` runs before each call.

    Syncs are hooked and recorded but not done: a process that ends loses no page cache, and what a
    power cut loses is the business of ``thadam_ros.testing.power_cut``.
    """

    def __init__(self, hook: Callable[[int, str, tuple[object, ...]], None]) -> None:
        self._real = OsFileSystem()
        self._hook = hook
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        real = getattr(self._real, name)

        def call(*arguments: object) -> object:
            self.calls.append((name, arguments))
            self._hook(len(self.calls), name, arguments)
            return None if name in ("fsync", "fsync_dir") else real(*arguments)

        return call


def plain_fs() -> HookedFs:
    """A disk on which nothing happens."""
    return HookedFs(lambda number, name, arguments: None)


class Killed(BaseException):
    """The process ended here."""


def dying_fs(at_call: int, *, torn: bool = False) -> HookedFs:
    """A disk that dies at a call and stays dead: no cleanup code can touch it any more.

    Args:
        torn: When the call is a write, half of its first buffer still reaches the disk.
    """
    real = OsFileSystem()

    def hook(number: int, name: str, arguments: tuple[object, ...]) -> None:
        if number == at_call and torn and name == "pwrite_all":
            fd, buffers, offset = arguments
            first = memoryview(buffers[0]).cast("B")  # type: ignore[index]
            real.pwrite_all(fd, [first[: len(first) // 2]], offset)  # type: ignore[arg-type]
        if number >= at_call:
            raise Killed(f"{name} {arguments[:1]}")

    return HookedFs(hook)


def failing_fs(
    name: str, error: Callable[[], OSError], *, when: Callable[[tuple[object, ...]], bool] = bool
) -> HookedFs:
    """A disk on which one kind of call fails while ``fs.failing`` is True."""

    def hook(number: int, called: str, arguments: tuple[object, ...]) -> None:
        if called == name and getattr(fs, "failing", False) and when(arguments):
            raise error()

    fs = HookedFs(hook)
    fs.failing = True  # type: ignore[attr-defined]
    return fs


def sink_config(
    url: str,
    *,
    max_rows: int = 1_000_000,
    max_bytes: int = 128 << 20,
    budget_bytes: int = 10 << 30,
    order: str = "live_first",
    rate_limit: int | None = None,
) -> SinkConfig:
    """A ``parquet`` sink named lake."""
    return SinkConfig(
        name="lake",
        type="parquet",
        url=url,
        rotation=RotationConfig(max_bytes=max_bytes, max_rows=max_rows),
        delivery=DeliveryConfig(budget_bytes, rate_limit, order),
    )


def make_driver(
    chain_dir: Path,
    url: Path | str,
    *,
    fs: FileSystem | HookedFs | None = None,
    clock: ManualClock | None = None,
    unit: str = "us",
    **settings: object,
) -> ParquetDriver:
    """A driver for the datasets imu and odometry; not opened."""
    schema = imu_schema(unit)
    return ParquetDriver(
        sink_config(str(url), **settings),  # type: ignore[arg-type]
        str(chain_dir),
        EPOCH,
        {"imu": schema, "odometry": schema},
        fs=fs or OsFileSystem(),  # type: ignore[arg-type]
        clock=clock or ManualClock(),
    )


def deliver_all(driver: ParquetDriver) -> None:
    """Work until nothing waits."""
    for _ in range(100_000):
        if not driver.work():
            return
    raise AssertionError("delivery does not come to an end")


def visible_files(url: Path | str) -> list[Path]:
    """Every file that a reader of ``**/*.parquet`` finds."""
    return sorted(p for p in Path(url).rglob("*.parquet") if p.is_file())


def visible_positions(url: Path | str) -> list[int]:
    """``_wal_pos`` of every visible row, sorted, with duplicates."""
    found: list[int] = []
    for path in visible_files(url):
        found += pq.ParquetFile(path).read(["_wal_pos"])["_wal_pos"].to_pylist()
    return sorted(found)


def sealed_names(chain_dir: Path | str) -> list[str]:
    """Names in ``sealed/``."""
    return sorted(os.listdir(os.path.join(chain_dir, "sealed")))


# A little lane: two cuts over several partitions, one of them size split, a unit published by
# size before its cut, and a cursor that is replaced durably when a cut is complete.

CUTS = 2
CUT_ROWS = 70


def cut_units(cut_no: int) -> list[PublishUnit]:
    """Positions 1000*cut .. 1000*cut + 69 in four units."""
    base = 1000 * cut_no
    return [
        unit_of(cut_no, imu_rows(base, 10)),
        unit_of(cut_no, imu_rows(base + 10, 5), imu_rows(base + 15, 25)),
        unit_of(cut_no, imu_rows(base + 40, 10, synced=False), synced=False),
        unit_of(cut_no, imu_rows(base + 50, 20, hour=HOUR + 1), hour=HOUR + 1, dataset="odometry"),
    ]


def stamped_cut(chain_dir: str, fs: object = None) -> int:
    """The cut the cursor names, 0 without a cursor."""
    disk = fs or OsFileSystem()
    try:
        return int(orjson.loads(read_whole(disk, os.path.join(chain_dir, "cursor"))))  # type: ignore[arg-type]
    except FileNotFoundError:
        return 0


def run_lane(chain_dir: str, url: str, fs: FileSystem | HookedFs) -> None:
    """Go on after the cursor until every cut is stamped and delivered."""
    driver = make_driver(Path(chain_dir), url, fs=fs, max_rows=16)
    fs.makedirs(chain_dir)
    fs.fsync_dir(os.path.dirname(chain_dir))
    stamped = stamped_cut(chain_dir, fs)
    driver.open(stamped)
    for cut_no in range(stamped + 1, CUTS + 1):
        for unit in cut_units(cut_no):
            driver.publish(unit)
            driver.work()
        replace_durably(fs, os.path.join(chain_dir, "cursor"), orjson.dumps(cut_no))  # type: ignore[arg-type]
        driver.stamped(cut_no)
        driver.work()
    deliver_all(driver)
    driver.close()
