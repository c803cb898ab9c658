# SPDX-License-Identifier: Apache-2.0
"""Units as affine maps."""

from __future__ import annotations

import numpy as np
import pint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.units import UnitError, check_unit, compile_conversion

PAIRS = [
    ("degF", "degC"),
    ("degC", "kelvin"),
    ("rad/s", "deg/s"),
    ("m", "ft"),
    ("bar", "Pa"),
    ("km/h", "m/s"),
    ("percent", "dimensionless"),
]


@settings(deadline=None)
@given(st.sampled_from(PAIRS), st.floats(-1e9, 1e9))
def test_a_compiled_conversion_equals_pints_own(pair, value):
    """The map agrees with pint's double arithmetic to rounding."""
    registry = pint.get_application_registry()
    expected = registry.Quantity(value, pair[0]).to(pair[1]).magnitude
    found = compile_conversion(*pair).apply(np.array([value]))[0]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_an_exact_map_is_exact():
    """212 degF is 100 degC, not 100.00000000000001."""
    assert compile_conversion("degF", "degC").apply(np.array([32.0]))[0] == pytest.approx(0, abs=0)


@pytest.mark.parametrize(
    ("unit", "convert_to"), [("m", "s"), ("dBm", "mW"), ("nonsense", "m"), ("m", "nonsense")]
)
def test_an_impossible_conversion_is_one_sentence(unit, convert_to):
    """Different dimensions, logarithms and unknown units are refused before any row."""
    with pytest.raises(UnitError):
        compile_conversion(unit, convert_to)


@pytest.mark.parametrize("unit", ["", " ", "9**9**9", "m**12345", "x" * 65, "1/0", "m^2^2", "("])
def test_texts_that_are_no_units_are_refused_cheaply(unit):
    """Nothing a person would measure in, nothing that costs time to find out."""
    with pytest.raises(UnitError):
        check_unit(unit)


def test_nan_and_infinities_pass_through():
    """A conversion changes numbers, not what is no number."""
    values = compile_conversion("degF", "degC").apply(np.array([np.nan, np.inf, -np.inf]))
    assert np.isnan(values[0])
    assert list(values[1:]) == [np.inf, -np.inf]
