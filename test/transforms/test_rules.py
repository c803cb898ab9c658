# SPDX-License-Identifier: Apache-2.0
"""flag_unless, reject_unless, filter, set and validate over rows."""

from __future__ import annotations

import numpy as np
import pytest

from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rules import Filter, FlagUnless, RejectUnless, SetColumns
from thadam_ros.transforms.validate import Validate

from .support import context, rows_with

NAN = float("nan")


def test_a_rule_acts_only_where_it_is_false():
    """NaN and null are unknown: neither flagged, rejected nor dropped."""
    values = {"v": ("double", [1.0, 9.0, NAN, None])}
    kinds = {"v": "double"}
    rows = rows_with(values)
    FlagUnless.plan("f", {"INVALID": "v < 5"}, context(kinds)).apply(rows)
    assert (rows.flags != 0).tolist() == [False, True, False, False]
    rows = rows_with(values)
    RejectUnless.plan("r", {"low": "v < 5"}, context(kinds)).apply(rows)
    assert rows.alive.tolist() == [True, False, True, True]
    rows = rows_with(values)
    Filter.plan("k", {"keep": "v < 5"}, context(kinds)).apply(rows)
    assert rows.alive.tolist() == [True, False, True, True]
    assert rows.dropped.tolist() == [False, True, False, False]
    assert rows.rejects == []


def test_a_dead_row_is_neither_flagged_nor_rejected_again():
    """One reject per row: the first rule that fails."""
    rows = rows_with({"v": ("double", [9.0])})
    rules = RejectUnless.plan("r", {"b": "v < 5", "a": "v < 6"}, context({"v": "double"}))
    rules.apply(rows)
    FlagUnless.plan("f", {"INVALID": "v < 5"}, context({"v": "double"})).apply(rows)
    assert [reject.code for reject in rows.rejects] == ["quality.a"]
    assert rows.flags.tolist() == [0]


def test_reasons_are_short_and_hold_no_values():
    """A long rule is cut; the text is the configuration's, never the payload's."""
    rows = rows_with({"v": ("double", [123456.75])})
    rule = " and ".join(["v < 5"] * 60)
    FlagUnless.plan("f", {"INVALID": rule}, context({"v": "double"})).apply(rows)
    (reason,) = rows.reasons().to_pylist()
    assert len(reason) <= 120
    assert "123456" not in reason


@pytest.mark.parametrize(
    ("options", "kind", "values", "flag", "failing"),
    [
        ({"range": [0, 5]}, "double", [0.0, 5.0, 5.1, -0.1, NAN, None], "OUT_OF_RANGE", [2, 3]),
        ({"range": [float("-inf"), 5]}, "long", [2**53 + 1, 5, -(2**63)], "OUT_OF_RANGE", [0]),
        ({"required": True}, "double", [1.0, None, NAN], "INVALID", [1]),
        ({"required": True}, "list<double>", [[], None], "INVALID", [1]),
        ({"finite": True}, "float", [1.0, NAN, float("inf"), None], "INVALID", [1, 2]),
        ({"enum": [1, 2]}, "int", [1, 2, 3, None], "INVALID", [2]),
        ({"enum": ["on", "it's"]}, "string", ["on", "it's", "off"], "INVALID", [2]),
        ({"enum": [True]}, "boolean", [True, False, None], "INVALID", [1]),
        ({"length": [1, 2]}, "string", ["", "ä", "äö", "äöü"], "INVALID", [0, 3]),
        ({"length": [0, 1]}, "list<double>", [[], [1.0], [1.0, 2.0], None], "INVALID", [2]),
        ({"finite": True, "flag": "STALE"}, "double", [NAN], "STALE", [0]),
    ],
)
def test_each_check_flags_exactly_the_failing_rows(options, kind, values, flag, failing):
    """Range, required, finite, enum, length, with bounds inside and nulls left to required."""
    planning = context({"v": kind})
    step = Validate.plan("check", {"columns": ["v"], **options}, planning)
    assert planning.problems == []
    rows = rows_with({"v": (kind, values)})
    step.apply(rows)
    assert np.flatnonzero(rows.flags).tolist() == failing
    assert {int(f) for f in rows.flags[failing]} == {int(QualityFlag[flag])}


@pytest.mark.parametrize(("options", "code"), [({}, "check"), ({"code": "odd"}, "odd")])
def test_a_check_may_reject_under_its_name_or_code(options, code):
    """on_fail: reject quarantines as quality.<code>."""
    rows = rows_with({"v": ("double", [NAN, 1.0])})
    options = {"columns": ["v"], "finite": True, "on_fail": "reject", **options}
    Validate.plan("check", options, context({"v": "double"})).apply(rows)
    (reject,) = rows.rejects
    assert (reject.domain, reject.code) == ("quality", f"quality.{code}")
    assert reject.index.tolist() == [0]
    assert reject.reason(0) == "v is not finite"


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "columns"),
        ({"columns": ["w"], "finite": True}, "columns"),
        ({"columns": ["v"]}, ""),
        ({"columns": ["v"], "range": [1]}, "range"),
        ({"columns": ["v"], "range": [5, 1]}, "range"),
        ({"columns": ["s"], "range": [1, 5]}, "range"),
        ({"columns": ["s"], "finite": True}, "finite"),
        ({"columns": ["v"], "length": [1, 5]}, "length"),
        ({"columns": ["v"], "enum": ["text"]}, "enum"),
        ({"columns": ["v"], "finite": True, "flag": "ODD"}, "flag"),
    ],
)
def test_a_check_that_cannot_work_is_a_problem(options, key):
    """The problem names the option."""
    planning = context({"v": "double", "s": "string"})
    assert Validate.plan("check", options, planning) is None
    paths = [problem.path for problem in planning.problems]
    assert paths == [f"transforms.step.{key}" if key else "transforms.step"]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (None, "values"),
        ({"w": "1"}, "values"),
        ({"_event_time": "1"}, "values"),
        ({"v": "s"}, "values.v"),
        ({"s": "v"}, "values.s"),
        ({"v": "v +"}, "values.v"),
    ],
)
def test_set_refuses_what_its_column_cannot_hold(values, key):
    """Envelope columns, unknown columns and other types are problems."""
    planning = context({"v": "double", "s": "string"})
    SetColumns.plan("set", {"values": values}, planning)
    assert [problem.path for problem in planning.problems] == [f"transforms.step.{key}"]


def test_set_covers_every_kind_of_column():
    """Numbers with nulls, truth, text constants and copies."""
    kinds = {"i": "int", "f": "float", "t": "boolean", "s": "string", "c": "string", "l": "long"}
    rows = rows_with(
        {
            "i": ("int", [1, None]),
            "f": ("float", [1.0, 2.0]),
            "t": ("boolean", [True, None]),
            "s": ("string", ["a", None]),
            "c": ("string", ["x", "y"]),
            "l": ("long", [2**53 + 1, 0]),
        }
    )
    values = {"i": "i * 2", "f": "1", "t": "not t", "s": "'k'", "c": "s", "l": "max(l, 1)"}
    SetColumns.plan("set", {"values": values}, context(kinds)).apply(rows)
    numbers = rows.values("i")
    assert (numbers.data[0], numbers.valid.tolist()) == (2, [True, False])
    assert rows.values("f").data.tolist() == [1.0, 1.0]
    truth = rows.values("t")
    assert (truth.data[0], truth.valid.tolist()) == (False, [True, False])
    assert rows.columns["s"].to_pylist() == ["k", "k"]
    assert rows.columns["c"].to_pylist() == ["a", None]
    assert rows.values("l").data.tolist() == [2**53 + 1, 1]
    assert rows.alive.all()
