# SPDX-License-Identifier: Apache-2.0
"""Units as pint knows them; pint is imported only when a configuration names a unit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_MISSING = "cannot be checked: the library pint is missing; pip install pint"


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        return None
    registry: Any = pint
    return registry.get_application_registry()


def unit_problem(unit: str) -> str | None:
    """Return why ``unit`` is no unit, or None."""
    registry = _registry()
    if registry is None:
        return _MISSING
    try:
        registry.Unit(unit)
    except Exception as exc:  # noqa: BLE001 - pint raises what its tokenizer raises
        return f"is not a unit that pint knows ({type(exc).__name__}); valid: m/s, degC, rad, bar"
    return None


def conversion_problem(unit: str, convert_to: str) -> str | None:
    """Return why values in ``unit`` cannot become ``convert_to``, or None.

    A conversion is compiled to a * x + b once, so it must be affine.
    """
    registry = _registry()
    if registry is None:
        return _MISSING
    try:
        zero, one, two = (
            float(registry.Quantity(x, unit).to(convert_to).magnitude) for x in (0.0, 1.0, 2.0)
        )
    except Exception as exc:  # noqa: BLE001 - any refusal of pint means the same here
        return f"cannot be made of {unit} ({type(exc).__name__}); both must measure the same thing"
    step = one - zero
    if abs((two - one) - step) > 1e-9 * max(abs(step), abs(two)):
        return f"cannot be made of {unit} by a * x + b"
    return None
