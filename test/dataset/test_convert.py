# SPDX-License-Identifier: Apache-2.0
"""Decoded arrays into columns, value by value."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.convert import convert
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import PlannedField, Source
from thadam_ros.dataset.types import parse_type
from thadam_ros.transforms.rows import Values


def run(kind, type_name, array, shape=Shape.SCALAR):
    """``(values, out of range)`` of a column of ``kind`` made from ``array``."""
    leaf = Leaf("/x", shape, type_name)
    converted = convert(
        PlannedField("x", parse_type(kind), 100, source=Source(leaf)), leaf, [array]
    )
    column = converted.column
    if isinstance(column, Values):
        valid = [True] * len(column.data) if column.valid is None else column.valid.tolist()
        values = [v if ok else None for v, ok in zip(column.data.tolist(), valid, strict=True)]
    else:
        values = column.to_pylist()
    bad = converted.out_of_range
    return values, [False] * len(array) if bad is None else bad.tolist()


INTEGERS = {
    "int8": (pa.int8(), -(2**7), 2**7 - 1),
    "uint8": (pa.uint8(), 0, 2**8 - 1),
    "int16": (pa.int16(), -(2**15), 2**15 - 1),
    "uint16": (pa.uint16(), 0, 2**16 - 1),
    "int32": (pa.int32(), -(2**31), 2**31 - 1),
    "uint32": (pa.uint32(), 0, 2**32 - 1),
    "int64": (pa.int64(), -(2**63), 2**63 - 1),
    "uint64": (pa.uint64(), 0, 2**64 - 1),
}


@settings(deadline=None)
@given(
    st.data(), st.sampled_from(sorted(INTEGERS)), st.sampled_from(["int", "long"]), st.booleans()
)
def test_an_integer_arrives_unchanged_or_is_out_of_range(data, name, kind, as_list):
    """Every width into both columns, alone and in lists, with nulls and sliced."""
    arrow, low, high = INTEGERS[name]
    limit = 2**31 if kind == "int" else 2**63
    number = st.integers(low, high) | st.sampled_from([low, high, max(low, min(high, limit))])
    value = st.lists(number, max_size=3) if as_list else number
    values = data.draw(st.lists(st.none() | value, min_size=1, max_size=6))
    if as_list:
        if name == "uint8":
            return  # bytes, below
        array = pa.array(values, pa.list_(arrow)).slice(1)
        found, bad = run(f"list<{kind}>", name, array, Shape.LIST)
    else:
        array = pa.array(values, arrow).slice(1)
        found, bad = run(kind, name, array)
    for original, stored, refused in zip(values[1:], found, bad, strict=True):
        parts = original if isinstance(original, list) else [original]
        fits = all(p is None or -limit <= p < limit for p in parts)
        assert refused is not fits
        assert refused or stored == original


@pytest.mark.parametrize("sliced", [0, 1])
def test_bytes_are_read_as_numbers_on_request(sliced):
    """uint8[] is binary by itself and a list of int when declared so."""
    array = pa.array([b"\x01", b"\x00\xff", b"", None], pa.binary()).slice(sliced)
    found, _ = run("list<int>", "uint8", array, Shape.LIST)
    assert found == [[1], [0, 255], [], None][sliced:]
    assert run("binary", "uint8", array, Shape.LIST)[0] == array.to_pylist()
