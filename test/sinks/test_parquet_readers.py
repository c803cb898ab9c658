# SPDX-License-Identifier: Apache-2.0
"""What data engineers see: duckdb and polars open every file and find the partitions."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from thadam_ros.sinks.parquet.delivery import INCOMING_FOLDER

from .sink_fixtures import HOUR, deliver_all, imu_rows, make_driver, unit_of

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

EXPECTED = [
    # date, hour, rows, lowest and highest position, robots
    (dt.date(2025, 11, 28), 20, 300, 0, 299, 3),
    (dt.date(2025, 11, 28), 23, 10, 300, 309, 1),
    (dt.date(2025, 11, 29), 0, 5, 310, 314, 1),
]


@pytest.fixture(scope="module", params=["us", "ns"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of synced rows over midnight, one of unsynced rows, split files."""
    root = tmp_path_factory.mktemp(f"lake {request.param}")
    driver = make_driver(root / "chain", root / "lake", max_rows=128, unit=request.param)
    driver.open(0)

    def publish(first: int, count: int, hours: int, *, synced: bool = True) -> None:
        rows = imu_rows(
            first,
            count,
            hour=HOUR + hours,
            synced=synced,
            unit=request.param,
            robots=("a", "b", "c") if count > 10 else ("a",),
        )
        driver.publish(unit_of(1, rows, hour=HOUR + hours, synced=synced))

    publish(0, 200, 0)
    publish(200, 100, 0)
    publish(300, 10, 3)
    publish(310, 5, 4)
    publish(900, 20, 0, synced=False)
    driver.stamped(1)
    deliver_all(driver)
    return root / "lake"


SQL = """
    select date, hour, count(*), min(_wal_pos), max(_wal_pos), count(distinct robot)
    from read_parquet('{glob}', hive_partitioning = true)
    group by date, hour order by date, hour
"""


def _query(sql: str) -> list[tuple]:
    return duckdb.sql(sql).fetchall()


def test_duckdb_finds_hive_partitions_of_synced_rows(lake: Path) -> None:
    """One glob reads the dataset; date and hour come from the folders."""
    rows = _query(SQL.format(glob=f"{lake}/imu/date=*/hour=*/*.parquet"))
    assert [(r[0], int(r[1]), *r[2:]) for r in rows] == EXPECTED


def test_duckdb_reads_synced_and_unsynced_together(lake: Path) -> None:
    """Both trees have the same partition columns, so one recursive glob serves both."""
    glob = f"{lake}/imu/**/*.parquet"
    counts = _query(
        "select _clock_synced, count(*), count(distinct _event_id), sum(len(covariance)) "
        f"from read_parquet('{glob}', hive_partitioning = true) group by all order by all"
    )
    assert counts == [(False, 20, 20, 80), (True, 315, 315, 1260)]


def test_duckdb_prunes_by_partition_and_understands_the_times(lake: Path) -> None:
    """Ingest times lie in the hour that the folder says, in UTC."""
    outside = _query(
        "select count(*) from read_parquet("
        f"'{lake}/imu/**/*.parquet', hive_partitioning = true) "
        "where epoch_ns(_ingest_time) // 3600000000000 "
        "<> date_diff('hour', timestamp '1970-01-01', date + to_hours(hour::int))"
    )
    assert outside == [(0,)]


def test_polars_finds_hive_partitions_of_synced_rows(lake: Path) -> None:
    """scan_parquet over a folder or a glob with the same result as duckdb."""
    frame = (
        polars.scan_parquet(f"{lake}/imu/date=*/hour=*/*.parquet", hive_partitioning=True)
        .group_by("date", "hour")
        .agg(
            polars.len(),
            polars.col("_wal_pos").min().alias("low"),
            polars.col("_wal_pos").max().alias("high"),
            polars.col("robot").cast(polars.String).n_unique().alias("robots"),
        )
        .sort("date", "hour")
        .collect()
    )
    assert [(r[0], int(r[1]), *r[2:]) for r in frame.rows()] == EXPECTED


def test_polars_reads_a_whole_dataset_folder(lake: Path) -> None:
    """Synced and unsynced files through one recursive glob, lists and dictionaries included."""
    frame = polars.scan_parquet(f"{lake}/imu/**/*.parquet", hive_partitioning=True).collect()
    assert len(frame) == 335
    assert frame["_event_id"].n_unique() == 335
    assert frame["covariance"].list.len().sum() == 4 * 335
    assert set(frame["frame_id"].unique()) == {"imu_link"}


def test_every_file_opens_alone_in_both_readers(lake: Path) -> None:
    """No file depends on another, on a catalog or on its folder."""
    files = sorted(lake.rglob("*.parquet"))
    assert len(files) == 6
    total = 0
    for path in files:
        [(count,)] = _query(f"select count(*) from read_parquet('{path}')")
        assert polars.read_parquet(path, hive_partitioning=False).height == count
        total += count
    assert total == 335


def test_a_copy_under_way_disturbs_no_reader(lake: Path) -> None:
    """Its temp lies outside the dataset: polars refuses a folder with files of two endings."""
    temp = lake / INCOMING_FOLDER / "part-1-1-0-0123456789abcdef.parquet.tmp"
    temp.parent.mkdir()
    temp.write_bytes(b"PAR1 half a file")
    glob = f"{lake}/imu/**/*.parquet"
    assert _query(f"select count(*) from read_parquet('{glob}')") == [(335,)]
    assert _query(f"select count(*) from read_parquet('{lake}/**/*.parquet')") == [(335,)]
    assert polars.scan_parquet(glob).collect().height == 335
    assert polars.scan_parquet(lake / "imu", hive_partitioning=True).collect().height == 335
