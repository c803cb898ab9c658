# SPDX-License-Identifier: Apache-2.0
"""Promises of the buffers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thadam_ros.model.event import EventBatch, Reject, Submission
from thadam_ros.model.position import Position
from thadam_ros.publish.buffers import Buffers
from thadam_ros.sinks.contract import PartitionKey


def _split(batch: EventBatch) -> list[tuple[PartitionKey, pa.RecordBatch]]:
    return [(PartitionKey(batch.dataset, 0, True), batch.rows)]


def _submission(position: int, rows: int, *, state: bytes | None = b"s") -> Submission:
    batch = pa.RecordBatch.from_pydict({"x": pa.array(range(rows), pa.int64())})
    return Submission(Position(0, position), 7, 1, (EventBatch("d", batch),), (), state)


def test_a_submission_is_admitted_by_what_is_already_held_whatever_its_own_size() -> None:
    """One may overshoot the ceiling, the next waits."""
    buffers = Buffers(100, _split)
    assert buffers.admits()
    buffers.submit(_submission(0, 1000), now_ns=1)
    assert not buffers.admits()
    view = buffers.partitions(buffers.boundary())[0]
    buffers.settle(view.key, view.rows)
    assert buffers.admits()
    assert buffers.size_bytes() == 0


def test_only_submissions_with_a_state_can_bound_a_cut() -> None:
    """Rows above the newest state stay out of the views."""
    buffers = Buffers(1 << 20, _split)
    buffers.submit(_submission(0, 1), now_ns=1)
    buffers.submit(_submission(1, 2, state=None), now_ns=2)
    boundary = buffers.boundary()
    assert boundary is not None
    assert boundary.last == Position(0, 0)
    assert [view.row_count for view in buffers.partitions(boundary)] == [1]


def test_settling_the_same_rows_twice_changes_nothing() -> None:
    """Settlement is by identity and idempotent."""
    buffers = Buffers(1 << 20, _split)
    buffers.submit(_submission(0, 3), now_ns=1)
    view = buffers.partitions(buffers.boundary())[0]
    buffers.submit(_submission(1, 4), now_ns=2)
    for _ in range(2):
        buffers.settle(view.key, view.rows)
    assert [v.row_count for v in buffers.partitions(buffers.boundary())] == [4]


def test_a_split_that_raises_leaves_the_buffers_as_they_were() -> None:
    """A submission is taken whole or not at all."""

    def failing(batch: EventBatch) -> list[tuple[PartitionKey, pa.RecordBatch]]:
        if batch.rows.num_rows == 2:
            raise ValueError("no")
        return _split(batch)

    buffers = Buffers(1 << 20, failing)
    both = (*_submission(0, 1).batches, *_submission(0, 2).batches)
    bad = Submission(Position(0, 0), 7, 1, both, (), b"s")
    with pytest.raises(ValueError, match="no"):
        buffers.submit(bad, now_ns=1)
    assert buffers.size_bytes() == 0
    assert buffers.boundary() is None
    assert buffers.oldest_ns() is None


def test_the_age_of_a_cut_starts_with_its_oldest_submission() -> None:
    """Also a submission without rows starts it; a stamp ends it."""
    buffers = Buffers(1 << 20, _split)
    buffers.submit(Submission(Position(0, 0), 7, 1, (), (), b"s"), now_ns=5)
    buffers.submit(_submission(1, 1), now_ns=9)
    assert buffers.oldest_ns() == 5
    buffers.stamped(buffers.boundary(), now_ns=10)
    assert buffers.oldest_ns() is None


def test_rejects_without_bytes_fill_the_buffers_too() -> None:
    """A flood of empty messages is held back like any other."""
    reject = Reject(
        7, 0, 0, "robot", "/a", "decode", "decode.truncated", "short", b"", False, "d",
        0, -1, "cdr", "p/msg/T", "", True, "hash",
    )  # fmt: skip
    buffers = Buffers(100_000, _split)
    buffers.submit(Submission(Position(0, 0), 7, 1, (), (reject,) * 1000, b"s"), now_ns=1)
    assert not buffers.admits()
    buffers.rejects_staged(buffers.boundary())
    assert buffers.admits()


def _values(rows: tuple[pa.RecordBatch, ...]) -> list[int]:
    return [x for batch in rows for x in batch.column("x").to_pylist()]


def test_a_batch_counts_what_its_columns_take_whatever_its_rows() -> None:
    """A slow topic hands over single rows; each is far larger in memory than its values."""
    buffers = Buffers(100_000, _split)
    for position in range(1000):
        buffers.submit(_submission(position, 1), now_ns=1)
    assert not buffers.admits()


def test_small_batches_are_laid_together_up_to_the_boundary_and_stay_in_order() -> None:
    """Single rows of a slow topic do not pile up as batches; later ones stay out of the cut."""
    buffers = Buffers(1 << 30, _split)
    for position in range(300):
        rows = pa.RecordBatch.from_pydict({"x": pa.array([position])})
        state = b"s" if position <= 200 else None
        buffers.submit(
            Submission(Position(0, position), 7, 1, (EventBatch("d", rows),), (), state), now_ns=1
        )
    boundary = buffers.boundary()
    assert boundary is not None
    before = buffers.size_bytes()
    buffers.compact(boundary)
    assert buffers.size_bytes() < before
    (view,) = buffers.partitions(boundary)
    assert len(view.rows) == 1
    assert _values(view.rows) == list(range(201))
    buffers.settle(view.key, view.rows)
    buffers.submit(_submission(300, 0), now_ns=2)
    (rest,) = buffers.partitions(buffers.boundary())
    assert _values(rest.rows) == list(range(201, 300))


def test_large_batches_are_not_copied_together() -> None:
    """What is large enough stays as it is."""
    buffers = Buffers(1 << 30, _split)
    for position in range(100):
        buffers.submit(_submission(position, 1 << 15), now_ns=1)
    boundary = buffers.boundary()
    assert boundary is not None
    before = buffers.partitions(boundary)[0].rows
    buffers.compact(boundary)
    after = buffers.partitions(boundary)[0].rows
    assert len(after) == 100
    assert all(a is b for a, b in zip(after, before, strict=True))
