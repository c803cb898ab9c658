# SPDX-License-Identifier: Apache-2.0
"""The expression language: what it accepts, what it means, what it refuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.types import parse_type
from thadam_ros.transforms.expression import ExpressionError, parse_expression

from .support import rows_with

TYPES = {
    "a": "double",
    "b": "double",
    "i": "long",
    "k": "int",
    "t": "boolean",
    "s": "string",
    "l": "list<double>",
    "x": "binary",
    "f": "float",
}
COLUMNS = {name: parse_type(kind) for name, kind in TYPES.items()}
NAN, INF = float("nan"), float("inf")


def truth(text, **values):
    """``True``, ``False`` or ``None`` (unknown) of one row."""
    rows = rows_with({name: (TYPES[name], [value]) for name, value in values.items()}, n=1)
    expression = parse_expression(text, COLUMNS, 1_000, kind="boolean")
    holds, fails = bool(expression.holds(rows)[0]), bool(expression.fails(rows)[0])
    assert not (holds and fails)
    return True if holds else False if fails else None


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a < b", {"a": 1.0, "b": 2.0}, True),
        ("a < b", {"a": 2.0, "b": 2.0}, False),
        ("a < b", {"a": NAN, "b": 2.0}, None),
        ("a == b", {"a": NAN, "b": NAN}, None),
        ("a != b", {"a": NAN, "b": 1.0}, None),
        ("a < b", {"a": None, "b": 2.0}, None),
        ("1 < a < 3", {"a": 2.0}, True),
        ("1 < a < 3", {"a": 3.0}, False),
        ("1 < a < b", {"a": 0.0, "b": NAN}, False),
        ("not a < 1", {"a": NAN}, None),
        ("not t", {"t": False}, True),
        ("t and a > 0", {"t": False, "a": NAN}, False),
        ("t and a > 0", {"t": True, "a": NAN}, None),
        ("t or a > 0", {"t": True, "a": NAN}, True),
        ("t or a > 0", {"t": False, "a": NAN}, None),
        ("t == true", {"t": None}, None),
        ("t != false", {"t": True}, True),
        ("finite(a)", {"a": NAN}, False),
        ("finite(a)", {"a": -INF}, False),
        ("finite(a)", {"a": None}, None),
        ("finite(a, b)", {"a": None, "b": NAN}, False),
        ("finite(a, b, i)", {"a": 1.0, "b": 2.0, "i": 3}, True),
        ("is_null(a)", {"a": None}, True),
        ("is_null(a)", {"a": NAN}, False),
        ("is_null(s)", {"s": None}, True),
        ("is_null(t)", {"t": None}, True),
        ("not is_null(l)", {"l": []}, True),
        ("abs(i) == 9223372036854775807", {"i": -(2**63) + 1}, True),
        ("abs(a) <= 1.5", {"a": -1.5}, True),
        ("sqrt(a) == 3", {"a": 9.0}, True),
        ("sqrt(a) >= 0", {"a": -1.0}, None),
        ("min(a, b, 5) == 2", {"a": 2.0, "b": 7.0}, True),
        ("max(i, k) == 7", {"i": 3, "k": 7}, True),
        ("max(a, b) > 0", {"a": NAN, "b": 1.0}, None),
        ("length(s) == 3", {"s": "äöü"}, True),
        ("length(x) == 6", {"x": "äöü".encode()}, True),
        ("length(l) == 2", {"l": [1.0, 2.0]}, True),
        ("length(s) > 0", {"s": None}, None),
        ("s == 'on'", {"s": "on"}, True),
        ("s != 'on'", {"s": None}, None),
        ("s < 'b'", {"s": "a"}, True),
        ("s in ('a', 'b')", {"s": "b"}, True),
        ("s not in ('a', 'b')", {"s": "b"}, False),
        ("i in (1, 2)", {"i": 3}, False),
        ("i not in (1, 2)", {"i": None}, None),
        ("a in (1,)", {"a": NAN}, None),
        ("i == 9007199254740993", {"i": 9007199254740992}, False),
        ("i > 9007199254740992", {"i": 9007199254740993}, True),
        ("a / b > 1e300", {"a": 1.0, "b": 0.0}, True),
        ("a / b > 0", {"a": 0.0, "b": 0.0}, None),
        ("a - b * 2 + -1 == -4", {"a": 1.0, "b": 2.0}, True),
        ("f == 0.1", {"f": 0.5}, False),
        ("k * 2 == 6", {"k": 3}, True),
        ("1 < 2", {}, True),
        ("'a' == 'b'", {}, False),
        ("true", {}, True),
        ("finite(1, 2.5)", {}, True),
    ],
)
def test_expressions_mean_what_their_reference_says(text, values, expected):
    """True, false or unknown, with NaN and null in every place."""
    assert truth(text, **values) is expected


@pytest.mark.parametrize(
    ("text", "part", "suggestion"),
    [
        ("", "not an expression", None),
        ("a <", "not an expression", None),
        ("a; b", "not an expression", None),
        ("aa > 0", "no column", "a"),
        ("a", "must be true or false", None),
        ("s", "must be true or false", None),
        ("a > s", "compares", None),
        ("t < t", "compares", None),
        ("s + 1 > 0", "needs a number", None),
        ("a and t", "needs true or false", None),
        ("not a", "needs true or false", None),
        ("finit(a)", "no function", "finite"),
        ("abs(a, b) > 0", "one argument", None),
        ("min() > 0", "at least one argument", None),
        ("length(a) > 0", "text, binary and lists", None),
        ("finite(s)", "needs a number", None),
        ("a in b", "list of constants", None),
        ("a in (b, 1)", "constants only", None),
        ("a in ()", "list of constants", None),
        ("t in (true, false)", "cannot look for", None),
        ("0 < a in (1, 2)", "cannot chain", None),
        ("a is b", "uses 'is'", None),
        ("a % 2 == 0", "not + - * /", None),
        ("a ** b > 0", "not + - * /", None),
        ("~i > 0", "uses ~", None),
        ("a if t else b", "do not have", None),
        ("(lambda: a)() > 0", "no function", None),
        ("a.real > 0", "do not have", None),
        ("l[0] > 0", "do not have", None),
        ("__import__('os')", "no function", None),
        ("[a for a in b]", "do not have", None),
        ("(a := 1) > 0", "do not have", None),
        ("f'{a}' == s", "do not have", None),
        ("b'x' == s", "no number", None),
        ("1j > 0", "no number", None),
        ("None", "no number", None),
        ("i > 9223372036854775808", "larger than 64 bits", None),
        ("max(a, *b) > 0", "do not have", None),
        ("max(a, key=b) > 0", "no function", None),
    ],
)
def test_everything_else_is_refused_with_a_sentence(text, part, suggestion):
    """Python around the language stays outside; typos get a suggestion."""
    with pytest.raises(ExpressionError) as refused:
        parse_expression(text, COLUMNS, 1_000, kind="boolean")
    assert part in refused.value.message
    assert suggestion is None or refused.value.suggestion == suggestion


@pytest.mark.parametrize(
    "text",
    [
        "(" * 3_000 + "a" + ")" * 3_000,
        "not " * 1_000 + "t",
        "-" * 4_000 + "a > 0",
        "s < 'x'" + " and s < 'x'" * 250,
        "a + " * 90 + "a > 0",
        "x" * 5_000,
        "2 % " + "-" * 3_000 + "a",
    ],
    ids=["parentheses", "not", "minus", "cost", "depth", "length", "operand"],
)
def test_deep_long_and_costly_texts_are_refused_without_harm(text):
    """Length, nesting and cost are bounded before any row is seen."""
    with pytest.raises(ExpressionError):
        parse_expression(text, COLUMNS, 1_000, kind="boolean")


def test_text_work_costs_more_than_numbers():
    """The limit is in double operations."""
    numbers = parse_expression("a < b", COLUMNS, 1_000).cost
    texts = parse_expression("s < 'x'", COLUMNS, 1_000).cost
    assert numbers < texts


FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.0, -2.5, NAN, INF, -INF])


def reference(op, left, right):
    """Three-valued comparison, written plainly."""
    if left is None or right is None or math.isnan(left) or math.isnan(right):
        return None
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }[op]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=8),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(["and", "or"]),
)
def test_columns_evaluate_like_single_values(pairs, op, joint):
    """Whole columns with nulls and NaN against Kleene logic row by row."""
    rows = rows_with({n: ("double", [p[i] for p in pairs]) for i, n in enumerate("ab")})
    text = f"a {op} b {joint} not b {op} a"
    expression = parse_expression(text, COLUMNS, 1_000, kind="boolean")
    holds, fails = expression.holds(rows), expression.fails(rows)
    for i, (a, b) in enumerate(pairs):
        left, right = reference(op, a, b), reference(op, b, a)
        right = None if right is None else not right
        if joint == "and":
            expected = False if False in (left, right) else None if None in (left, right) else True
        else:
            expected = True if True in (left, right) else None if None in (left, right) else False
        assert (bool(holds[i]), bool(fails[i])) == (expected is True, expected is False)
