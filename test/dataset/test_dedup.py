# SPDX-License-Identifier: Apache-2.0
"""The dedup window against a plain model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.config.schema import DedupConfig
from thadam_ros.dataset.dedup import Dedup


def key(number):
    """A 16 byte key."""
    return bytes([number]) * 16


def apply(dedup, records):
    """Run ``(key, ingest, epoch, pos, index)`` records; return duplicate and refused indices."""
    seen = np.array([record[1:] for record in records], np.int64).reshape(-1, 4)
    index = np.arange(len(records))
    duplicates, refused = dedup.apply([key(r[0]) for r in records], index, seen)
    dedup.commit()
    return duplicates.tolist(), refused.tolist()


class Model:
    """The documented rules, one record at a time, without any bookkeeping tricks."""

    def __init__(self, window, room, evict):
        self.window, self.room, self.evict = window, room, evict
        self.entries = []  # (key, seen), oldest first

    def step(self, record):
        name, *seen = record
        while self.entries and seen[0] - self.entries[0][1][0] > self.window:
            self.entries.pop(0)
        for i, (known, first) in enumerate(self.entries):
            if known == name:
                if seen[0] - first[0] > self.window:
                    self.entries[i] = (name, seen)
                    return "new"
                earlier = first[1] != seen[1] or first[2:] < seen[2:]
                return "duplicate" if earlier else "same"
        if len(self.entries) >= self.room:
            if not self.evict:
                return "refused"
            self.entries.pop(0)
        self.entries.append((name, seen))
        return "new"


RECORDS = st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 6)), max_size=40)


@settings(deadline=None)
@given(RECORDS, st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 40), max_size=4))
def test_decisions_equal_the_model_for_any_batching(steps, room, evict, cuts):
    """Windows, clock steps backwards, eviction, refusal; snapshots at every cut."""
    now, records = 0, []
    for position, (name, step) in enumerate(steps):
        now += step
        records.append((name, now, 1, position // 3, position % 3))
    config = DedupConfig(window_ns=5, on_overflow="evict" if evict else "reject")
    model = Model(5, room, evict)
    outcomes = [model.step(record) for record in records]
    dedup, found = Dedup(config, room), {}
    edges = [0, *sorted(c for c in cuts if c < len(records)), len(records)]
    for start, end in pairwise(edges):
        duplicates, refused = apply(dedup, records[start:end])
        found.update({start + i: "duplicate" for i in duplicates})
        found.update({start + i: "refused" for i in refused})
        fresh = Dedup(config, room)
        fresh.restore(dedup.snapshot())
        assert fresh.snapshot() == dedup.snapshot()
        dedup = fresh
    expected = {i: o for i, o in enumerate(outcomes) if o in ("duplicate", "refused")}
    assert found == expected


def test_a_record_is_no_duplicate_of_itself():
    """Read again after a restart with its own state, a record passes."""
    dedup = Dedup(DedupConfig(window_ns=100), 10)
    record = (1, 0, 7, 3, 2)
    assert apply(dedup, [record]) == ([], [])
    assert apply(dedup, [record]) == ([], [])
    assert apply(dedup, [(1, 1, 7, 3, 3)]) == ([0], [])
    assert apply(dedup, [(1, 1, 8, 0, 0)]) == ([0], [])


def test_evictions_are_counted():
    """A forgotten key may let a duplicate through; somebody can see that."""
    dedup = Dedup(DedupConfig(window_ns=100), 2)
    apply(dedup, [(name, 0, 1, name, 0) for name in range(5)])
    assert dedup.evicted == 3


def test_rollback_restores_window_order_and_count():
    """A run that failed leaves nothing behind, evictions included."""
    dedup = Dedup(DedupConfig(window_ns=10), 2)
    apply(dedup, [(1, 0, 1, 0, 0), (2, 5, 1, 1, 0)])
    before = dedup.snapshot()
    seen = np.array([[6, 1, 2, 0], [50, 1, 3, 0]], np.int64)
    dedup.apply([key(3), key(4)], np.arange(2), seen)
    assert dedup.snapshot() != before
    dedup.rollback()
    assert dedup.snapshot() == before
    assert dedup.evicted == 0
