# SPDX-License-Identifier: Apache-2.0
"""gap, order and stale against plain models, cut anywhere, restored at every cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.config.schema import LimitsConfig
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.model.quality import QualityFlag
from thadam_ros.testing.groups import START_NS
from thadam_ros.transforms.gap import Gap
from thadam_ros.transforms.order import RESTART_NS, Order
from thadam_ros.transforms.stale import Stale

from .support import context, rows_with, set_times

TOPICS = [TopicDeclaration("/a"), TopicDeclaration("/b")]
SECOND = 1_000_000_000
#: Often a list of no cuts, often one before every record, and everything between.
CUTS = st.sets(st.integers(0, 12), max_size=8)
SELDOM = st.sampled_from([False, False, False, False, True])
KEYS = st.sampled_from(["x", "x", "x", "y", None])


def run_cut(plan, records, cuts, make_rows):
    """Flags of all records, each piece by a fresh step that continues from the last state."""
    edges = [0, *sorted(c for c in cuts if c < len(records)), len(records)]
    flags, state = [], None
    for start, end in pairwise(edges):
        step = plan.build()
        step.restore(state)
        rows = make_rows(records[start:end])
        step.apply(rows)
        step.commit()
        state = step.snapshot()
        flags.extend(rows.flags.tolist())
    return flags


GAPS = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 1), st.integers(-1, 9)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(GAPS, CUTS)
def test_a_publisher_sequence_is_watched_per_topic_and_publisher(records, cuts):
    """Only numbers above the highest one plus one are gaps; -1 is unknown; the first never is."""

    def make_rows(part):
        return rows_with(
            {},
            n=len(part),
            declarations=TOPICS,
            topics=[r[0] for r in part],
            publisher_indices=[r[1] for r in part],
            publishers=[b"p", b"q"],
            sequences=[r[2] for r in part],
        )

    highest, expected = {}, []
    for topic, publisher, number in records:
        last = highest.get((topic, publisher))
        expected.append(number >= 0 and last is not None and number > last + 1)
        if number >= 0:
            highest[topic, publisher] = number if last is None else max(last, number)
    plan = Gap.plan("gap", {}, context())
    flags = run_cut(plan, records, cuts, make_rows)
    assert flags == [int(QualityFlag.SEQUENCE_GAP) * e for e in expected]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.none() | st.integers(-3, 6)), max_size=12), CUTS)
def test_a_counter_column_restarts_where_it_goes_back(records, cuts):
    """A device that rebooted starts a new sequence; a missing number is skipped."""

    def make_rows(part):
        topics = [r[0] for r in part]
        return rows_with(
            {"seq": ("long", [r[1] for r in part])}, len(part), declarations=TOPICS, topics=topics
        )

    last, expected = {}, []
    for topic, number in records:
        before = last.get(topic)
        expected.append(number is not None and before is not None and number > before + 1)
        if number is not None:
            last[topic] = number
    plan = Gap.plan("gap", {"by": "seq"}, context({"seq": "long"}))
    flags = run_cut(plan, records, cuts, make_rows)
    assert flags == [int(QualityFlag.SEQUENCE_GAP) * e for e in expected]


def test_a_gap_at_the_end_of_64_bits_does_not_overflow():
    """The largest number has no successor."""
    rows = rows_with({"seq": ("long", [2**63 - 1, -(2**63), 2**63 - 1])})
    plan = Gap.plan("gap", {"by": "seq"}, context({"seq": "long"}))
    plan.build().apply(rows)
    assert (rows.flags != 0).tolist() == [False, False, True]


ORDERS = st.lists(
    st.tuples(
        KEYS,
        st.sampled_from([None, 0, 1, 2, 2, 3, 59, 60, 61, 62, 200]),
        SELDOM,
        SELDOM,
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(ORDERS, CUTS)
def test_times_are_late_against_the_latest_credible_one(records, cuts):
    """Skewed, missing and dead rows are not judged; a jump far back is flagged once."""

    def make_rows(part):
        rows = rows_with({"key": ("string", [r[0] for r in part])}, len(part))
        set_times(rows, [None if r[1] is None else START_NS + r[1] * SECOND for r in part])
        rows.flags[[i for i, r in enumerate(part) if r[2]]] = int(QualityFlag.CLOCK_SKEW)
        rows.alive[[i for i, r in enumerate(part) if r[3]]] = False
        return rows

    latest, expected = {}, []
    for key, stamp, skewed, dead in records:
        if stamp is None or skewed or dead:
            expected.append(False)
            continue
        before = latest.get(key, stamp)
        expected.append(stamp < before)
        restarted = (before - stamp) * SECOND > RESTART_NS
        latest[key] = stamp if restarted else max(before, stamp)
    plan = Order.plan("order", {"key": ["key"]}, context({"key": "string"}))
    flags = run_cut(plan, records, cuts, make_rows)
    late = [bool(f & QualityFlag.OUT_OF_ORDER) for f in flags]
    assert late == expected


def test_many_restarts_stay_linear_and_right():
    """A clock that jumps back at every second row is judged piece by piece."""
    n = 5_000
    stamps = [START_NS + (i % 2) * 100 * SECOND for i in range(n)]
    rows = rows_with({}, n)
    set_times(rows, stamps)
    Order.plan("order", {}, context()).build().apply(rows)
    assert (rows.flags != 0).tolist() == [False] + [i % 2 == 0 for i in range(1, n)]


STALES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1]),
        st.integers(0, 4),
        st.sampled_from([None, -2, 5, 5, 5, 5, 5, 10]),
        SELDOM,
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(STALES, CUTS, st.booleans())
def test_stale_is_age_repetition_or_the_end_of_a_pause(records, cuts, utc):
    """All three, per topic over living rows, each bound exclusive."""
    after, now, timed = 3, 0, []
    for topic, step, stamp, dead in records:
        now += step
        timed.append((topic, now, stamp, dead))

    def make_rows(part):
        rows = rows_with(
            {},
            len(part),
            declarations=TOPICS,
            topics=[r[0] for r in part],
            ingest_times_ns=[START_NS + r[1] * SECOND for r in part],
        )
        set_times(rows, [None if r[2] is None else START_NS + r[2] * SECOND for r in part], utc=utc)
        rows.alive[[i for i, r in enumerate(part) if r[3]]] = False
        return rows

    memory, expected = {}, []
    for topic, ingest, stamp, dead in timed:
        if dead:
            expected.append(False)
            continue
        last, known, since = memory.get(topic, (ingest, stamp, ingest))
        since = since if known == stamp else ingest
        old = utc and stamp is not None and ingest - stamp > after
        repeated = stamp is not None and ingest - since > after
        expected.append(old or repeated or ingest - last > after)
        memory[topic] = (ingest, stamp, since)
    plan = Stale.plan("stale", {"after": after * SECOND}, context())
    flags = run_cut(plan, timed, cuts, make_rows)
    assert [bool(f) for f in flags] == expected


def test_state_is_bounded_and_the_first_key_leaves_first():
    """Beyond the limit the oldest key is forgotten, whatever the batch size."""
    limits = LimitsConfig(max_dedup_keys=2)
    planning = context({"seq": "long", "key": "string"}, limits)
    plan = Gap.plan("gap", {"by": "seq", "key": ["key"]}, planning)
    records = [("a", 1), ("b", 1), ("c", 1), ("a", 9), ("c", 9)]

    def make_rows(part):
        keys, numbers = ([r[i] for r in part] for i in (0, 1))
        return rows_with({"key": ("string", keys), "seq": ("long", numbers)})

    for cuts in ([], [1, 2, 3, 4], [3]):
        flags = run_cut(plan, records, cuts, make_rows)
        assert np.flatnonzero(flags).tolist() == [4], cuts


def test_a_topic_declared_twice_is_one_topic():
    """A second declaration of the same name continues the first one's sequence."""
    declarations = [TopicDeclaration("/a", type_hash="x"), TopicDeclaration("/a", type_hash="y")]
    rows = rows_with({"seq": ("long", [1, 2, 5])}, declarations=declarations, topics=[0, 1, 0])
    plan = Gap.plan("gap", {"by": "seq"}, context({"seq": "long"}))
    plan.build().apply(rows)
    assert (rows.flags != 0).tolist() == [False, False, True]
