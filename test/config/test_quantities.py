# SPDX-License-Identifier: Apache-2.0
"""Promises of quantities with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thadam_ros.config.quantities import (
    DURATION_UNITS,
    SIZE_UNITS,
    from_base_units,
    to_base_units,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("200ms", 200_000_000),
        ("0.2s", 200_000_000),
        ("5 min", 300_000_000_000),
        (" 1h ", 3_600_000_000_000),
        ("-37s", -37_000_000_000),
        ("1ns", 1),
    ],
)
def test_durations_are_exact(text: str, value: int) -> None:
    """Decimals, signs and spaces are fine; the result is whole nanoseconds."""
    assert to_base_units(text, DURATION_UNITS, "200ms") == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", "no unit"),
        ("5 sec", "unknown unit"),
        ("5MS", "unknown unit"),
        ("0.1ns", "finer than 1 ns"),
        ("", "not a number"),
        ("ms", "not a number"),
        ("1e3s", "unknown unit"),
        ("9" * 30 + "s", "64 bits"),
        ("1" * 100 + "s", "not a number"),
        ("٣s", "not a number"),
    ],
)
def test_what_is_no_quantity_is_refused_with_the_units(text: str, why: str) -> None:
    """Nobody has to guess what a number meant."""
    with pytest.raises(ValueError, match=why):
        to_base_units(text, DURATION_UNITS, "200ms")


@given(st.integers(-(2**62), 2**62), st.sampled_from([DURATION_UNITS, SIZE_UNITS]))
def test_every_value_can_be_written_and_read_back(value: int, units: dict[str, int]) -> None:
    """The shortest spelling loses nothing."""
    assert to_base_units(from_base_units(value, units), units, "") == value


@pytest.mark.parametrize("text", ["20GiB", "128MiB", "20MB", "1kB", "64KiB", "5TiB", "3B"])
def test_sizes_come_back_as_they_were_written(text: str) -> None:
    """Binary and decimal units both survive."""
    assert from_base_units(to_base_units(text, SIZE_UNITS, ""), SIZE_UNITS) == text
