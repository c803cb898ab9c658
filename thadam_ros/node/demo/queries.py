# SPDX-License-Identifier: Apache-2.0
"""SQL to paste after a run; DuckDB reads both trees, ``date=`` and ``unsynced/``, by one glob."""

from __future__ import annotations

from pathlib import Path

from thadam_ros.model.quality import QualityFlag

#: Seconds shown on either side of the kill.
_AROUND_S = 5


def make_queries(lake: Path, kill_ns: int | None) -> list[tuple[str, str]]:
    """Return (title, SQL) pairs over a sink's folder.

    Args:
        kill_ns: Wall clock of the SIGKILL, None when nothing was killed.
    """
    queries = [
        ("rows per dataset", rows_per_dataset(lake)),
        ("rows per flag", rows_per_flag(lake)),
    ]
    if any(lake.glob("joint_state/**/*.parquet")):
        queries.append(("rows per joint", rows_per_joint(lake)))
    if kill_ns is not None:
        queries.append(("rows around the kill", rows_around(lake, kill_ns)))
    return queries


def rows_per_dataset(lake: Path) -> str:
    """Rows and rows without a synchronised clock."""
    return f"""SELECT {_dataset(lake)} AS dataset, count(*) AS rows,
       count(*) FILTER (NOT _clock_synced) AS unsynced
FROM {_everything(lake)}
GROUP BY ALL ORDER BY ALL;"""


def rows_per_flag(lake: Path) -> str:
    """Rows that carry each flag, per dataset."""
    flags = ", ".join(f"('{flag.name}', {int(flag)})" for flag in QualityFlag)
    return f"""SELECT {_dataset(lake)} AS dataset, flag, count(*) AS rows
FROM {_everything(lake)},
     (VALUES {flags}) AS flags(flag, bit)
WHERE _quality_flags & bit <> 0
GROUP BY ALL ORDER BY ALL;"""


def rows_per_joint(lake: Path) -> str:
    """Rows of each joint."""
    return f"""SELECT joint, count(*) AS rows, count(velocity) AS velocities
FROM read_parquet({_quote(lake / "joint_state/**/*.parquet")}, hive_partitioning = false)
GROUP BY ALL ORDER BY ALL;"""


def rows_around(lake: Path, kill_ns: int) -> str:
    """Rows per second around a moment: the outage is the hole."""
    kill_us = kill_ns // 1000
    return f"""SELECT time_bucket(INTERVAL 1 second, _ingest_time) AS second, count(*) AS rows
FROM {_everything(lake)}
WHERE epoch_us(_ingest_time) BETWEEN {kill_us - _AROUND_S * 10**6} AND {kill_us + _AROUND_S * 10**6}
GROUP BY ALL ORDER BY ALL;"""


def _everything(lake: Path) -> str:
    return (
        f"read_parquet({_quote(lake / '*/**/*.parquet')}, union_by_name = true, filename = true,"
        " hive_partitioning = false)"
    )


def _dataset(lake: Path) -> str:
    return f"split_part(substr(filename, {len(str(lake)) + 2}), '/', 1)"


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
