# SPDX-License-Identifier: Apache-2.0
"""What the chain benches share: messages, a WAL of them, the chain run and the pandas baseline."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_typestore

from thadam_ros.config.schema import WalConfig
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import load_text
from thadam_ros.testing.bags import BagMessage, write_wal

STORE = get_typestore(Stores.LATEST)
FIRST_TIME_NS = 1_700_000_000_000_000_000


def header(index: int) -> Any:
    """Return a std_msgs/Header with a running stamp."""
    stamp_ns = FIRST_TIME_NS + index * 5_000_000
    time_type = STORE.types["builtin_interfaces/msg/Time"]
    stamp = time_type(stamp_ns // 10**9, stamp_ns % 10**9)
    return STORE.types["std_msgs/msg/Header"](stamp, "imu_link")


def vector(rng: np.random.Generator) -> Any:
    """Return a geometry_msgs/Vector3."""
    return STORE.types["geometry_msgs/msg/Vector3"](*rng.normal(size=3).tolist())


def quaternion(rng: np.random.Generator) -> Any:
    """Return a unit geometry_msgs/Quaternion."""
    q = rng.normal(size=4)
    return STORE.types["geometry_msgs/msg/Quaternion"](*(q / np.linalg.norm(q)).tolist())


def imu(index: int, rng: np.random.Generator) -> Any:
    """Return a sensor_msgs/Imu."""
    nine = np.zeros(9)
    return STORE.types["sensor_msgs/msg/Imu"](
        header(index), quaternion(rng), nine, vector(rng), nine, vector(rng), nine
    )


def bag_messages(
    topic: str, type_name: str, messages: Sequence[Any], *, apart_ns: int = 5_000_000
) -> list[BagMessage]:
    """Serialise messages as CDR with stamps ``apart_ns`` apart."""
    definition = TypeCatalog().definition(type_name) or ""
    declaration = TopicDeclaration(topic, type_name=type_name, definition=definition)
    return [
        BagMessage(
            declaration,
            FIRST_TIME_NS + index * apart_ns,
            bytes(STORE.serialize_cdr(message, type_name)),
        )
        for index, message in enumerate(messages)
    ]


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that one run took: on the wall and of this process's processors."""

    wall_s: float
    cpu_s: float


class _Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def run_chain(document: str, wal: Sequence[BagMessage]) -> tuple[Spent, int]:
    """Run a chain over a WAL of ``wal``, from a cold start to delivered Parquet files.

    Returns:
        (What it took, rows delivered.)
    """
    with tempfile.TemporaryDirectory(prefix="thadam-bench-") as folder:
        write_wal(
            os.path.join(folder, "data", "wal"),
            wal,
            records_per_frame=2_000,
            config=WalConfig(commit_bytes=64 << 20),
        )
        loaded = load_text(document, {"BENCH_DIR": folder})
        edge = Edge(loaded)
        watch = _Stopwatch()
        edge.start()
        if not edge.close(drain_timeout_s=600.0):
            raise RuntimeError(f"not drained: {edge.statistics()}")
        return watch.spent(), _rows(Path(folder) / "lake")


def _rows(lake: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in lake.rglob("*.parquet"))


def run_pandas(
    wal: Sequence[BagMessage], type_name: str, to_rows: Callable[[Any], list[dict[str, object]]]
) -> Spent:
    """Decode with rosbags, build a DataFrame, write Parquet."""
    import pandas as pd

    with tempfile.TemporaryDirectory(prefix="thadam-bench-") as folder:
        watch = _Stopwatch()
        rows: list[dict[str, object]] = []
        for message in wal:
            for row in to_rows(STORE.deserialize_cdr(message.payload, type_name)):
                row["ingest_time"] = message.time_ns
                rows.append(row)
        pd.DataFrame(rows).to_parquet(os.path.join(folder, "out.parquet"), compression="zstd")
        return watch.spent()


def compare(
    document: str,
    wal: Sequence[BagMessage],
    type_name: str,
    to_rows: Callable[[Any], list[dict[str, object]]],
    repeats: int = 5,
) -> dict[str, float]:
    """Run chain and baseline in turn on one core, after a small warm-up of both.

    Returns:
        Median of the pairwise ratios baseline / chain (``ratio`` on the wall, ``ratio_cpu`` of
        processor time), median microseconds per message of both, rows delivered.
    """

    def pairs() -> list[tuple[Spent, int, Spent]]:
        run_chain(document, wal[:100])
        run_pandas(wal[:100], type_name, to_rows)
        return [
            (*run_chain(document, wal), run_pandas(wal, type_name, to_rows)) for _ in range(repeats)
        ]

    runs = on_one_core(pairs)
    per_message = 1e6 / len(wal)
    return {
        "ratio": statistics.median(pandas.wall_s / chain.wall_s for chain, _, pandas in runs),
        "ratio_cpu": statistics.median(pandas.cpu_s / chain.cpu_s for chain, _, pandas in runs),
        "chain_us_per_message": statistics.median(c.wall_s for c, _, _ in runs) * per_message,
        "pandas_us_per_message": statistics.median(p.wall_s for _, _, p in runs) * per_message,
        "rows": runs[-1][1],
    }


def on_one_core(work: Callable[[], Any]) -> Any:
    """Run ``work`` with this process bound to one of its cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return work()
    finally:
        os.sched_setaffinity(0, allowed)
