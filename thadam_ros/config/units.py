# SPDX-License-Identifier: Apache-2.0
"""The one pint registry of the process, and what of pint's language is a unit here.

pint is imported late: building its registry costs 0.3 s and most configurations name no unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

UNIT_CHARS_MAX: Final = 64
#: Powers beyond one digit, or of powers, are no units anyone measures in but cost pint dearly.
HUGE_POWER: Final = re.compile(r"[0-9]{2,}|(\*\*|\^)\s*[-+(]*\s*[0-9]\s*\)*\s*(\*\*|\^)")


@lru_cache(maxsize=1)
def registry() -> Any:
    """Return the registry; its numbers are exact fractions.

    Raises:
        ImportError: If pint is not installed.
    """
    import pint

    return pint.UnitRegistry(non_int_type=Fraction)


def unit_problem(unit: str) -> str | None:
    """Return why ``unit`` is no unit, or None."""
    try:
        found = registry()
    except ImportError:
        return "cannot be checked: the library pint is missing; install it with: pip install pint"
    valid = "valid: m/s, degC, rad, bar"
    if not unit.strip() or len(unit) > UNIT_CHARS_MAX or HUGE_POWER.search(unit):
        return f"is not a unit; {valid}"
    try:
        found.Unit(unit)
    except Exception:  # noqa: BLE001 - pint raises whatever its tokenizer raises
        return f"is not a unit that pint knows; {valid}"
    return None


def conversion_problem(unit: str, convert_to: str) -> str | None:
    """Return why values in ``unit`` cannot become ``convert_to``, or None.

    Both must be units. A conversion is compiled to ``a * x + b`` once, so it must be affine.
    """
    found = registry()
    try:
        zero, one, two = (
            Fraction(found.Quantity(Fraction(x), unit).to(convert_to).magnitude) for x in (0, 1, 2)
        )
    except Exception:  # noqa: BLE001 - any refusal of pint means the same here
        return f"cannot be made of {unit}; both must measure the same thing"
    if two - one != one - zero:
        return f"cannot be made of {unit} by a * x + b"
    return None
