# SPDX-License-Identifier: Apache-2.0
"""The same records give the same rows however they are cut (spec 4.4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.config.schema import (
    DedupConfig,
    ExplodeConfig,
    FieldConfig,
    LimitsConfig,
    TimeConfig,
    TransformConfig,
)
from thadam_ros.dataset.pipeline import DatasetPipeline
from thadam_ros.testing.groups import START_NS, cut_group, make_group

from .support import KITCHEN, cdr, dataset, item, kitchen, plan_of, time, topic

SECOND = 1_000_000_000
TRANSFORMS = (
    TransformConfig("ordered", "order", "table", options={"key": ("text",)}),
    TransformConfig("fresh", "stale", "table", options={"after": 3 * SECOND}),
    TransformConfig("counted", "gap", "table", options={"by": "u8"}),
    TransformConfig("sent", "gap", "table", options={"by": "publisher_sequence"}),
    TransformConfig("keep", "filter", "table", options={"keep": "f64 < 8"}),
)


def config(exploded):
    """A dataset with every kind of state."""
    fields = {
        "f64": FieldConfig("f64", "/f64"),
        "u8": FieldConfig("u8", "/u8"),
        "text": FieldConfig("text", "/text"),
    }
    if exploded:
        fields["name"] = FieldConfig("name", "./name")
    return dataset(
        KITCHEN,
        fields=fields,
        identity={"level": "{topic.1}"},
        explode=ExplodeConfig("/items") if exploded else None,
        time=TimeConfig("/stamp", "utc", max_skew_ns=100 * SECOND),
        event_id_key=("/text", "/u64"),
        dedup=DedupConfig(4 * SECOND, on_duplicate="flag"),
        flag_unless={"OUT_OF_RANGE": "f64 < 5"},
        reject_unless={"small": "f64 > -2"},
        gap="/u64",
        stale_ns=2 * SECOND,
    )


RECORD = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["a", "b", "c"]),
        "u64": st.integers(0, 6),
        "u8": st.integers(0, 5),
        "f64": st.sampled_from([-3.0, 1.0, 6.0, 9.0, float("nan")]),
        "stamp": st.sampled_from([0, 1, 2, 3, 4, 5, 6, 90, 500]),
        "step": st.integers(0, 3),
        "frame": st.booleans(),
        "topic": st.integers(0, 2),
        "publisher": st.integers(-1, 1),
        "damage": st.sampled_from([None, None, None, "cut", "extra"]),
        "items": st.integers(0, 2),
    }
)


def group_from(records):
    """Messages that arrive ``step`` seconds apart; stamps repeat, run back, jump and are skewed."""
    payloads, positions, times, now, position = [], [], [], START_NS, 0
    for record in records:
        now += record["step"] * SECOND
        position += record["frame"]
        message = kitchen(
            stamp=time(START_NS + record["stamp"] * SECOND),
            items=[item("i")] * record["items"],
            **{name: record[name] for name in ("text", "u64", "u8", "f64")},
        )
        raw = cdr(message)
        raw = {"cut": raw[:50], "extra": raw + b"12345678", None: raw}[record["damage"]]
        payloads.append(raw)
        positions.append(position)
        times.append(now)
    return make_group(
        [topic(KITCHEN, f"/r/{name}") for name in "xyz"],
        payloads,
        topics=[record["topic"] for record in records],
        positions=positions,
        ingest_times_ns=times,
        sequences=[record["u8"] for record in records],
        publisher_indices=[record["publisher"] for record in records],
        publishers=[b"p", b"q"],
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(RECORD, min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
    st.booleans(),
    st.integers(1, 3),
)
def test_rows_do_not_depend_on_batching_or_restarts(records, cuts, exploded, keys_max):
    """Whole against cut at any record, with a fresh pipeline restored at every cut.

    Few keys are allowed, so that eviction happens at the same record in both runs.
    """
    plan = plan_of(config(exploded), transforms=TRANSFORMS)
    limits = LimitsConfig(max_dedup_keys=keys_max)
    plan_limited = plan_of(config(exploded), transforms=TRANSFORMS, limits=limits)
    group = group_from(records)

    def fresh():
        return DatasetPipeline(plan_limited, timestamp_unit="us", limits=limits)

    whole = fresh()
    expected = whole.process(group)
    pieces, state = [], fresh().snapshot()
    for part in cut_group(group, [cut for cut in cuts if cut < len(records)]):
        pipeline = fresh()
        pipeline.restore(state)
        pieces.append(pipeline.process(part))
        state = pipeline.snapshot()
    assert state == whole.snapshot()
    rows = pa.Table.from_batches([piece.rows for piece in pieces]).combine_chunks()
    # NaN is a value here, so rows are compared by what is printed.
    assert str(rows.to_pylist()) == str(pa.Table.from_batches([expected.rows]).to_pylist())
    assert tuple(r for piece in pieces for r in piece.rejects) == expected.rejects
    assert np.concatenate([p.outcome for p in pieces]).tolist() == expected.outcome.tolist()
    assert plan.fields == plan_limited.fields


def test_a_snapshot_of_equal_states_has_equal_bytes():
    """State files can be compared byte by byte."""
    plan = plan_of(config(False), transforms=TRANSFORMS)
    limits = LimitsConfig()
    first = DatasetPipeline(plan, timestamp_unit="us", limits=limits)
    second = DatasetPipeline(plan, timestamp_unit="us", limits=limits)
    assert first.snapshot() == second.snapshot()
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    assert second.discarded == ()
