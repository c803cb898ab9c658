# SPDX-License-Identifier: Apache-2.0
"""Column types, what they hold and what they may become."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thadam_ros.dataset.types import ColumnType, natural_list, natural_type, parse_type


@pytest.mark.parametrize("text", ["double", "list<double>", "timestamp", "boolean"])
def test_a_type_prints_as_it_is_written(text):
    """Parsing and printing are inverse."""
    assert str(parse_type(text)) == text


@pytest.mark.parametrize("text", ["", "Double", "list<list<int>>", "list<>", "uint32", "list"])
def test_other_texts_are_no_types(text):
    """Nothing unsigned, nothing nested, no other spelling."""
    assert parse_type(text) is None


def test_no_arrow_type_is_unsigned():
    """Iceberg, Delta and BigQuery have no unsigned types."""
    primitives = ("uint8", "uint16", "uint32", "uint64", "byte", "char")
    kinds = [natural_type(name) for name in primitives]
    kinds += [natural_list(name) for name in primitives]
    for kind in kinds:
        arrow = kind.arrow("us")
        inner = arrow.value_type if pa.types.is_list(arrow) else arrow
        assert not pa.types.is_unsigned_integer(inner)


def test_natural_types_hold_every_value_of_the_primitive():
    """uint32 needs a long, uint64 is a long with a checked range, bytes are binary."""
    assert natural_type("uint16") == ColumnType("int")
    assert natural_type("uint32") == ColumnType("long")
    assert natural_type("uint64") == ColumnType("long")
    assert natural_list("uint8") == natural_list("byte") == ColumnType("binary")
    assert natural_list("int8") == ColumnType("list", "int")


@pytest.mark.parametrize(
    ("column", "natural", "accepted"),
    [
        ("long", "int", True),
        ("int", "long", True),
        ("double", "float", True),
        ("float", "double", False),
        ("float", "long", False),
        ("long", "timestamp", True),
        ("timestamp", "long", False),
        ("list<int>", "binary", True),
        ("list<double>", "list<float>", True),
        ("list<float>", "list<double>", False),
        ("double", "list<double>", False),
        ("string", "int", False),
    ],
)
def test_a_column_accepts_what_it_can_hold_without_losing_precision(column, natural, accepted):
    """Range is checked per value; precision never gets lost silently."""
    assert parse_type(column).accepts(parse_type(natural)) is accepted
