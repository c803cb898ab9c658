# SPDX-License-Identifier: Apache-2.0
"""Units: checked with pint, compiled once to an affine map (spec 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from thadam_ros.config.units import HUGE_POWER, UNIT_CHARS_MAX
from thadam_ros.config.units import registry as _registry


class UnitError(ValueError):
    """A unit is unknown, or a conversion is impossible or not affine; one sentence."""


@dataclass(frozen=True, slots=True)
class AffineMap:
    """``y = x * factor + offset``, the doubles nearest to the exact rationals."""

    factor: float
    offset: float

    def apply(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the converted values, float64[n]; NaN and infinities stay what they are."""
        scaled = values * self.factor
        return scaled + self.offset if self.offset else scaled


def check_unit(unit: str) -> None:
    """Raise unless ``unit`` is one.

    Raises:
        UnitError: If it is unknown or no unit expression.
    """
    _parse(unit)


def compile_conversion(unit: str, convert_to: str) -> AffineMap:
    """Return the map from ``unit`` to ``convert_to``.

    Raises:
        UnitError: If a unit is unknown, the dimensions differ, or the map is not affine.
    """
    registry = _registry()
    source, target = _parse(unit), _parse(convert_to)
    try:
        zero, one, two = (
            Fraction(registry.Quantity(Fraction(x), source).to(target).magnitude) for x in (0, 1, 2)
        )
    except Exception as exc:  # pint raises many kinds
        raise UnitError(f"{unit!r} cannot be converted to {convert_to!r}") from exc
    if two - one != one - zero:
        raise UnitError(f"converting {unit!r} to {convert_to!r} is not an affine map")
    return AffineMap(float(one - zero), float(zero))


def _parse(unit: str) -> Any:
    if not unit.strip() or len(unit) > UNIT_CHARS_MAX or HUGE_POWER.search(unit):
        raise UnitError(f"{unit!r} is not a unit")
    try:
        return _registry().Unit(unit)
    except Exception as exc:  # pint raises many kinds
        raise UnitError(f"{unit!r} is not a unit pint knows") from exc
