# SPDX-License-Identifier: Apache-2.0
"""Source time, event time, domains, skew and correction."""

from __future__ import annotations

import pytest

from thadam_ros.config.schema import FieldConfig, TimeConfig
from thadam_ros.model.quality import QualityFlag
from thadam_ros.testing.groups import START_NS

from .support import KITCHEN, dataset, group_of, kitchen, pipeline_of, rows_of, time

X = {"x": FieldConfig("x", "/u8")}


def stamped(sec, nanosec):
    """A message with these two integers as its stamp."""
    stamp = time(0)
    stamp.sec, stamp.nanosec = sec, nanosec
    return kitchen(stamp=stamp)


def run(config, messages, ingest_ns=START_NS):
    """Rows of messages that arrive at ``ingest_ns``."""
    times = [ingest_ns] * len(messages)
    pipeline = pipeline_of(dataset(KITCHEN, fields=X, time=config))
    return rows_of(pipeline.process(group_of(messages, ingest_times_ns=times)).rows)


@pytest.mark.parametrize(
    ("sec", "nanosec"),
    [(0, 0), (-1, 0), (5, 1_000_000_000), (5, 4_294_967_295), (-(2**31), 999_999_999)],
)
def test_a_stamp_that_names_no_instant_is_missing_time(sec, nanosec):
    """Zero, negative and impossible stamps: null times, the flag, and the row stays."""
    (row,) = run(TimeConfig("/stamp", "utc"), [stamped(sec, nanosec)])
    assert row["_quality_flags"] == QualityFlag.MISSING_TIME
    assert row["_quality_status"] == 1
    assert row["_source_time"] is None
    assert row["_event_time"] is None
    assert row["_time_domain"] == "utc"


def test_zero_seconds_with_nanoseconds_is_a_time():
    """A clock that starts at zero may well say half a second."""
    (row,) = run(TimeConfig("/stamp", "monotonic"), [stamped(0, 500_000_000)])
    assert row["_source_time"] == 500_000_000
    assert row["_quality_flags"] == 0


@pytest.mark.parametrize(("away_ns", "skewed"), [(5_000, False), (5_001, True), (-5_001, True)])
def test_utc_time_further_than_max_skew_from_ingest_is_skewed(away_ns, skewed):
    """The bound itself is fine, in both directions; the time is kept as reported."""
    config = TimeConfig("/stamp", "utc", max_skew_ns=5_000)
    (row,) = run(config, [kitchen(stamp=time(START_NS + away_ns))])
    assert row["_quality_flags"] == (QualityFlag.CLOCK_SKEW if skewed else 0)
    assert row["_event_time"] == START_NS + away_ns


@pytest.mark.parametrize("domain", ["tai", "monotonic", "sim", "unknown"])
def test_other_domains_never_become_event_time(domain):
    """Mapping to UTC is always explicit, and skew is only judged in UTC."""
    (row,) = run(TimeConfig("/stamp", domain), [stamped(1, 0)])
    assert row["_source_time"] == 1_000_000_000
    assert row["_event_time"] is None
    assert row["_time_domain"] == domain
    assert row["_quality_flags"] == 0


def test_a_correction_is_flagged_and_leaves_source_time_alone():
    """TIME_CORRECTED documents the correction; the row stays good; skew is judged afterwards."""
    config = TimeConfig("/stamp", "tai", correct_offset_ns=-37_000_000_000)
    stamp = START_NS + 37_000_000_000
    first, second = run(config, [kitchen(stamp=time(stamp)), stamped(0, 0)])
    assert first["_quality_flags"] == QualityFlag.TIME_CORRECTED
    assert first["_quality_status"] == 0
    assert first["_source_time"] == stamp
    assert first["_event_time"] == START_NS
    assert second["_quality_flags"] == QualityFlag.MISSING_TIME
    (late,) = run(config, [kitchen(stamp=time(START_NS))])
    assert late["_quality_flags"] == QualityFlag.TIME_CORRECTED | QualityFlag.CLOCK_SKEW


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1_500_000),
        (0.0, None),
        (-1.0, None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
    ],
)
def test_numbers_are_times_with_a_unit_and_unusable_ones_are_missing(value, expected):
    """A float in milliseconds; what is no instant after 1970 is MISSING_TIME."""
    (row,) = run(TimeConfig("/f64", "monotonic", unit="ms"), [kitchen(f64=value)])
    assert row["_source_time"] == expected
    missing = 0 if expected else QualityFlag.MISSING_TIME
    assert row["_quality_flags"] == missing


def test_integers_beyond_64_bits_of_nanoseconds_are_missing_times():
    """A whole number of seconds that would overflow never wraps."""
    config = TimeConfig("/i64", "unknown", unit="s")
    rows = run(config, [kitchen(i64=9_223_372_036), kitchen(i64=9_223_372_037)])
    assert [row["_source_time"] for row in rows] == [9_223_372_036 * 10**9, None]


def test_times_at_both_ends_of_64_bits_are_skewed_not_wrapped():
    """The distance of two int64 may not fit an int64."""
    config = TimeConfig("/i64", "utc", unit="ns")
    (row,) = run(config, [kitchen(i64=2**63 - 1)], ingest_ns=-(2**62))
    assert row["_quality_flags"] == QualityFlag.CLOCK_SKEW


def test_a_dataset_without_time_has_null_times_and_no_flag():
    """No time: declared is a choice, not a defect."""
    (row,) = run(None, [kitchen()])
    assert (row["_source_time"], row["_event_time"], row["_time_domain"]) == (None, None, "unknown")
    assert row["_quality_flags"] == 0
