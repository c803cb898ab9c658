# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: durations, sizes, rates (spec 3.7).

A quantity is a string such as ``200ms`` or ``20GiB``; a bare number is refused because nobody can
see its unit. Arithmetic is exact: a duration finer than its base unit is refused, never rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

#: Unit -> nanoseconds.
DURATION_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}

#: Unit -> bytes.
SIZE_UNITS: Final[dict[str, int]] = {
    "B": 1,
    "kB": 1_000,
    "KiB": 1 << 10,
    "MB": 1_000_000,
    "MiB": 1 << 20,
    "GB": 1_000_000_000,
    "GiB": 1 << 30,
    "TB": 1_000_000_000_000,
    "TiB": 1 << 40,
}

#: Unit -> bytes per second.
BYTE_RATE_UNITS: Final[dict[str, int]] = {f"{u}/s": n for u, n in SIZE_UNITS.items()}

_INT64_MAX: Final = (1 << 63) - 1
_TEXT_MAX: Final = 40
_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(\S.*?)?\s*")


def split_quantity(text: str) -> tuple[Decimal, str] | None:
    """Split ``"1.5 s"`` into its number and its unit (empty when there is none).

    Returns:
        None when the text does not start with a plain decimal number or is absurdly long.
    """
    if len(text) > _TEXT_MAX:
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return Decimal(match.group(1)), match.group(2) or ""


def to_base_units(text: str, units: Mapping[str, int], example: str) -> int:
    """Return ``text`` as an integer count of the base unit (the one with factor 1).

    Raises:
        ValueError: One sentence that names the valid units.
    """
    valid = ", ".join(units)
    parts = split_quantity(text)
    if parts is None:
        raise ValueError(f"is not a number with a unit; write it like {example} (units: {valid})")
    number, unit = parts
    if not unit:
        raise ValueError(f"has no unit; write it like {example} (units: {valid})")
    if unit not in units:
        raise ValueError(f"has the unknown unit {unit!r}; units: {valid}")
    value = number * units[unit]
    if value != int(value):
        base = next(u for u, n in units.items() if n == 1)
        raise ValueError(f"is finer than 1 {base}; use a whole number of {base}")
    if abs(value) > _INT64_MAX:
        raise ValueError("is larger than 64 bits can count")
    return int(value)


def from_base_units(value: int, units: Mapping[str, int]) -> str:
    """Return the shortest exact spelling: the largest unit that divides ``value``.

    Decimal byte units are written only when no binary unit divides, so that
    ``20GiB`` and ``20MB`` come back as they were written.
    """
    base = next(u for u, n in units.items() if n == 1)
    if value == 0:
        return f"0{base}"
    best, best_count = base, abs(value)
    for unit, factor in units.items():
        if value % factor == 0 and abs(value) // factor < best_count:
            best, best_count = unit, abs(value) // factor
    return f"{value // units[best]}{best}"
