# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of event id keys."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.identity import parse_template
from thadam_ros.dataset.keys import canonical_keys
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import KeyPart, Source

from .support import KITCHEN, group_of, topic


def part(pointer, type_name, shape=Shape.SCALAR):
    """A key part of a message field."""
    return KeyPart(pointer, source=Source(Leaf(pointer, shape, type_name)))


def keys_of(parts, columns, n, declarations=None, topics=None):
    """All keys as bytes."""
    group = group_of([b""] * n, type_name=KITCHEN, declarations=declarations, topics=topics)
    keys = canonical_keys(parts, group, columns)
    return list(keys.of(np.arange(n))), keys.missing.tolist()


def tlv(tag, value):
    """Tag, length, value as documented."""
    return tag + struct.pack(">I", len(value)) + value


def reference(tag, value):
    """The documented form, value by value."""
    if tag == b"s":
        return tlv(tag, value.encode())
    if tag == b"x":
        return tlv(tag, value)
    if tag == b"b":
        return tlv(tag, bytes([value]))
    if tag == b"f":
        return tlv(tag, struct.pack(">d", value + 0.0 if value == value else float("nan")))
    return (
        tlv(b"u", struct.pack(">Q", value))
        if value >= 2**63
        else tlv(tag, struct.pack(">q", value))
    )


COLUMNS = {
    "bool": (pa.bool_(), b"b", st.booleans()),
    "int8": (pa.int8(), b"i", st.integers(-128, 127)),
    "uint32": (pa.uint32(), b"i", st.integers(0, 2**32 - 1)),
    "int64": (pa.int64(), b"i", st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), b"i", st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), b"f", st.floats(width=32)),
    "float64": (pa.float64(), b"f", st.floats()),
    "string": (pa.string(), b"s", st.text(max_size=9)),
}


@settings(deadline=None)
@given(st.data())
def test_keys_are_the_documented_bytes_of_their_parts_in_order(data):
    """Columns of every type, with nulls, sliced as a decoder may give them."""
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    n = data.draw(st.integers(0, 6))
    parts, columns, expected, missing = [], {}, [b""] * n, [False] * n
    for i, name in enumerate(names):
        kind, tag, values = COLUMNS[name]
        column = data.draw(st.lists(st.none() | values, min_size=n + 1, max_size=n + 1))
        pointer = f"/f{i}"
        parts.append(part(pointer, name))
        columns[pointer] = pa.array(column, kind).slice(1)
        for row, value in enumerate(columns[pointer].to_pylist()):
            missing[row] |= value is None
            expected[row] += b"" if value is None else reference(tag, value)
    found, found_missing = keys_of(parts, columns, n)
    assert found_missing == missing
    for row in range(n):
        assert missing[row] or found[row] == expected[row]


def test_equal_numbers_of_different_width_are_equal_keys():
    """A message type may widen a field without changing ids."""
    narrow, _ = keys_of([part("/x", "int8")], {"/x": pa.array([7], pa.int8())}, 1)
    wide, _ = keys_of([part("/x", "int64")], {"/x": pa.array([7], pa.int64())}, 1)
    assert narrow == wide


def test_minus_zero_and_all_nans_are_one_key_each():
    """What compares equal, or is no number at all, is one key."""
    nan = np.frombuffer(struct.pack("<Q", 0x7FF8000000000001), np.float64)
    data = pa.array(np.concatenate([[0.0, -0.0, np.nan], nan]), from_pandas=False)
    found, _ = keys_of([part("/x", "float64")], {"/x": data}, 4)
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_a_time_is_its_nanoseconds_and_an_impossible_one_is_missing():
    """Both integers of a Time make one part."""
    columns = {
        "/t/sec": pa.array([1, 1], pa.int32()),
        "/t/nanosec": pa.array([5, 10**9], pa.uint32()),
    }
    found, missing = keys_of([part("/t", "builtin_interfaces/msg/Time", Shape.TIME)], columns, 2)
    assert found[0] == tlv(b"t", struct.pack(">q", 1_000_000_005))
    assert missing == [False, True]


@pytest.mark.parametrize(("name", "missing"), [("/a/b", False), ("/a", True)])
def test_a_topic_segment_is_text_and_may_be_missing(name, missing):
    """Identity levels take part as text."""
    level = KeyPart("level", template=parse_template("x-{topic.1}"))
    found, found_missing = keys_of([level], {}, 1, declarations=topic(KITCHEN, name))
    assert found_missing == [missing]
    if not missing:
        assert found == [tlv(b"s", b"x-b")]
