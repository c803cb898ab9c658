# SPDX-License-Identifier: Apache-2.0
"""Every row goes to the partition of its own ingest hour and clock state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thadam_ros.model.event import EventBatch
from thadam_ros.sinks.contract import PartitionKey
from thadam_ros.sinks.partitions import split_partitions

from .sink_fixtures import HOUR, imu_rows


def _batch(times: list[int], synced: list[bool], unit: str = "us") -> EventBatch:
    rows = pa.record_batch(
        {
            "_ingest_time": pa.array(times, pa.int64()).cast(pa.timestamp(unit, "UTC")),
            "_clock_synced": pa.array(synced, pa.bool_()),
            "row": pa.array(range(len(times))),
        }
    )
    return EventBatch("imu", rows)


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("synced", [True, False])
def test_a_batch_of_one_partition_is_returned_as_it_is(unit: str, synced: bool) -> None:
    """The usual case copies nothing."""
    rows = imu_rows(0, 100, unit=unit, synced=synced)
    parts = split_partitions(EventBatch("imu", rows))
    assert [key for key, _ in parts] == [PartitionKey("imu", HOUR, synced)]
    assert parts[0][1] is rows


def test_a_slice_is_split_by_its_own_rows() -> None:
    """An offset into a larger batch does not shift the columns."""
    times = [3_600_000_000 * (i // 10) for i in range(40)]
    batch = _batch(times, [i % 20 < 10 for i in range(40)])
    sliced = EventBatch("imu", batch.rows.slice(5, 10))
    assert [(key.hour, key.synced, part["row"].to_pylist()) for key, part in
            split_partitions(sliced)] == [
        (0, True, [5, 6, 7, 8, 9]),
        (1, False, [10, 11, 12, 13, 14]),
    ]  # fmt: skip


def test_rows_around_the_full_hour_are_sliced_without_copying() -> None:
    """23:59:59.999999 and 00:00:00 belong to different hours; buffers are shared."""
    hour = 3_600_000_000
    batch = _batch([hour - 1, hour, hour + 1], [True, True, True])
    parts = split_partitions(batch)
    assert [(key.hour, len(part)) for key, part in parts] == [(0, 1), (1, 2)]
    base = batch.rows["row"].buffers()[1].address
    assert all(part["row"].buffers()[1].address == base for _, part in parts)


def test_no_rows_give_no_partition() -> None:
    """An empty batch is nothing to publish."""
    assert split_partitions(_batch([], [])) == []


def test_a_null_in_a_deciding_column_is_refused() -> None:
    """The envelope promises both; a guess would put the row anywhere."""
    rows = pa.record_batch(
        {
            "_ingest_time": pa.array([None], pa.timestamp("us", "UTC")),
            "_clock_synced": pa.array([True]),
        }
    )
    with pytest.raises(ValueError, match="never null"):
        split_partitions(EventBatch("imu", rows))


@given(
    st.lists(st.tuples(st.integers(-(10**16), 10**16), st.booleans()), max_size=50),
    st.sampled_from(["us", "ns"]),
)
def test_splitting_keeps_every_row_once_and_in_order(
    rows: list[tuple[int, bool]], unit: str
) -> None:
    """Also when a stepping clock mixes hours, and before 1970."""
    times = np.array([t for t, _ in rows], np.int64)
    parts = split_partitions(_batch(times.tolist(), [s for _, s in rows], unit))
    ticks = 3_600_000_000 if unit == "us" else 3_600_000_000_000
    seen: list[int] = []
    for key, part in parts:
        indices = part["row"].to_pylist()
        assert indices == sorted(indices)
        assert {(rows[i][0] // ticks, rows[i][1]) for i in indices} == {(key.hour, key.synced)}
        seen += indices
    assert sorted(seen) == list(range(len(rows)))
    assert len({key for key, _ in parts}) == len(parts)
