# SPDX-License-Identifier: Apache-2.0
"""What the chain benches share: messages, a WAL of them, the chain run and the pandas baseline."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
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


def run_chain(document: str, wal: Sequence[BagMessage], repeats: int) -> tuple[float, int]:
    """Run a chain over a WAL of ``wal``, from a cold start to delivered Parquet files.

    Returns:
        (Median seconds over the repeats, rows delivered.)
    """
    seconds: list[float] = []
    rows = 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="thadam-bench-") as folder:
            write_wal(
                os.path.join(folder, "data", "wal"),
                wal,
                records_per_frame=2_000,
                config=WalConfig(commit_bytes=64 << 20),
            )
            loaded = load_text(document, {"BENCH_DIR": folder})
            edge = Edge(loaded)
            started = time.perf_counter()
            edge.start()
            if not edge.close(drain_timeout_s=600.0):
                raise RuntimeError(f"not drained: {edge.statistics()}")
            seconds.append(time.perf_counter() - started)
            rows = _rows(Path(folder) / "lake")
    return statistics.median(seconds), rows


def _rows(lake: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in lake.rglob("*.parquet"))


def run_pandas(
    wal: Sequence[BagMessage],
    type_name: str,
    to_rows: Callable[[Any], list[dict[str, object]]],
    repeats: int,
) -> float:
    """Decode with rosbags, build a DataFrame, write Parquet; return the median seconds."""
    import pandas as pd

    seconds: list[float] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="thadam-bench-") as folder:
            started = time.perf_counter()
            rows: list[dict[str, object]] = []
            for message in wal:
                for row in to_rows(STORE.deserialize_cdr(message.payload, type_name)):
                    row["ingest_time"] = message.time_ns
                    rows.append(row)
            pd.DataFrame(rows).to_parquet(os.path.join(folder, "out.parquet"), compression="zstd")
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def on_one_core(work: Callable[[], Any]) -> Any:
    """Run ``work`` with this process bound to one of its cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return work()
    finally:
        os.sched_setaffinity(0, allowed)
