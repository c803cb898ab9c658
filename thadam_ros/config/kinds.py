# SPDX-License-Identifier: Apache-2.0
"""Kinds of leaf values: what is valid, how it is spelled, how other schema languages see it.

A kind is a frozen object with five answers: ``check`` (document value to typed value), ``render``
(typed value to document value), ``schema`` (JSON Schema), ``ros_type`` (parameter type) and
``describe`` (one phrase naming what is valid). Everything else, the loader, the ROS parameter
descriptors, the shipped JSON Schema and the reference page, follows from these.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol, runtime_checkable

from thadam_ros.config import quantities

#: Names of sources, datasets, sinks, fields (spec 1.2).
NAME_PATTERN: Final = "^[a-z][a-z0-9_]{0,62}$"
_ENV_SCHEMA: Final[dict[str, object]] = {"type": "string", "pattern": r"\$\(env "}
_INT64_MAX: Final = (1 << 63) - 1


class Refused(ValueError):  # noqa: N818 - reads as what it is
    """A leaf value is not valid; the text says what would be."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


class Expanded(str):
    """Text that came out of ``$(env NAME)``: it may stand for a number or a boolean too."""

    __slots__ = ()


@runtime_checkable
class Kind(Protocol):
    """The contract of a leaf kind."""

    @property
    def ros_type(self) -> str:
        """``bool integer double string bool_array integer_array double_array string_array``."""

    def check(self, value: object) -> Any:
        """Return the typed value.

        Raises:
            Refused: With one sentence that names what is valid.
        """

    def render(self, value: Any) -> object:
        """Return the document spelling of a typed value."""

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of the document spelling."""

    def describe(self) -> str:
        """Return one phrase that names what is valid."""


def nearest(value: object, valid: Sequence[str]) -> str | None:
    """Return the valid name that ``value`` was probably meant to be."""
    matches = difflib.get_close_matches(str(value)[:200], valid, n=1, cutoff=0.6)
    if matches:
        return matches[0]
    folded = {name.lower().replace("-", "_"): name for name in valid}
    return folded.get(str(value)[:200].lower().replace("-", "_"))


def _type_name(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", dict: "a map", list: "a list"}
    if value is None:
        return "nothing"
    return names.get(type(value), "text")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text; ``pattern`` and ``what`` narrow it."""

    pattern: str = ""
    what: str = "text"
    empty: bool = False

    ros_type = "string"

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            hint = f"; quote it: '{value}'" if isinstance(value, (int, float)) else ""
            raise Refused(f"must be {self.describe()}, not {_type_name(value)}{hint}")
        if not value and not self.empty:
            raise Refused(f"must not be empty; valid is {self.describe()}")
        if self.pattern and re.fullmatch(self.pattern, value) is None:
            raise Refused(f"is not {self.describe()}")
        if any(0xD800 <= ord(c) <= 0xDFFF or ord(c) == 0 for c in value):
            raise Refused("contains characters that are not text")
        return str(value)

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        plain: dict[str, object] = {"type": "string"}
        if self.pattern:
            plain["pattern"] = _anchored(self.pattern)
            return {"anyOf": [plain, _ENV_SCHEMA]}
        if not self.empty:
            plain["minLength"] = 1
        return plain

    def describe(self) -> str:
        return self.what


def _anchored(pattern: str) -> str:
    return pattern if pattern.startswith("^") else f"^(?:{pattern})$"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a closed list."""

    values: tuple[str, ...]
    #: A pattern that is valid too, such as ``file:<path>``, and its name.
    other: str = ""
    other_name: str = ""

    ros_type = "string"

    def check(self, value: object) -> str:
        if isinstance(value, str):
            if value in self.values:
                return str(value)
            if self.other and re.fullmatch(self.other, value):
                return str(value)
        raise Refused(f"is not valid here; valid: {self.describe()}", nearest(value, self.values))

    def render(self, value: str) -> object:
        return value

    def schema(self) -> dict[str, object]:
        parts: list[object] = [{"enum": list(self.values)}, _ENV_SCHEMA]
        if self.other:
            parts.insert(1, {"type": "string", "pattern": _anchored(self.other)})
        return {"anyOf": parts}

    def describe(self) -> str:
        names = [*self.values, *([self.other_name] if self.other_name else [])]
        return ", ".join(names)


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``."""

    ros_type = "bool"

    def check(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, Expanded) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise Refused("must be true or false")

    def render(self, value: bool) -> object:
        return value

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "boolean"}, _ENV_SCHEMA]}

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number inside a range."""

    low: int = 0
    high: int = _INT64_MAX

    ros_type = "integer"

    def check(self, value: object) -> int:
        if isinstance(value, Expanded):
            try:
                value = int(value)
            except ValueError:
                raise Refused(f"must be {self.describe()}") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Refused(f"must be {self.describe()}, not {_type_name(value)}")
        if isinstance(value, float):
            if not value.is_integer() or abs(value) > 2**53:
                raise Refused(f"must be {self.describe()}")
            value = int(value)
        if not self.low <= value <= self.high:
            raise Refused(f"is out of range; valid is {self.describe()}")
        return value

    def render(self, value: int) -> object:
        return value

    def schema(self) -> dict[str, object]:
        plain: dict[str, object] = {"type": "integer", "minimum": self.low}
        if self.high != _INT64_MAX:
            plain["maximum"] = self.high
        return {"anyOf": [plain, _ENV_SCHEMA]}

    def describe(self) -> str:
        if self.high == _INT64_MAX:
            return f"a whole number from {self.low}"
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Number:
    """A real number inside a range; infinities only where the range has them."""

    low: float = -math.inf
    high: float = math.inf
    infinite: bool = False

    ros_type = "double"

    def check(self, value: object) -> float:
        if isinstance(value, Expanded):
            try:
                value = float(value)
            except ValueError:
                raise Refused(f"must be {self.describe()}") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Refused(f"must be {self.describe()}, not {_type_name(value)}")
        try:
            number = float(value)
        except OverflowError:
            raise Refused(f"is out of range; valid is {self.describe()}") from None
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            raise Refused(f"must be finite; valid is {self.describe()}")
        if not self.low <= number <= self.high:
            raise Refused(f"is out of range; valid is {self.describe()}")
        return number

    def render(self, value: float) -> object:
        return value

    def schema(self) -> dict[str, object]:
        plain: dict[str, object] = {"type": "number"}
        if not math.isinf(self.low):
            plain["minimum"] = self.low
        if not math.isinf(self.high):
            plain["maximum"] = self.high
        return {"anyOf": [plain, _ENV_SCHEMA]}

    def describe(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return "a number"
        if math.isinf(self.high):
            return f"a number from {self.low:g}"
        return f"a number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A string with a unit; typed as an integer count of the base unit."""

    units: Mapping[str, int]
    what: str
    example: str
    low: int = 1
    high: int = _INT64_MAX

    ros_type = "string"

    def check(self, value: object) -> int:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise Refused(
                f"has no unit; write it like {self.example} (units: {', '.join(self.units)})",
            )
        if not isinstance(value, str):
            raise Refused(f"must be {self.describe()}, not {_type_name(value)}")
        try:
            number = quantities.to_base_units(value, self.units, self.example)
        except ValueError as exc:
            parts = quantities.split_quantity(value)
            unit = nearest(parts[1], list(self.units)) if parts and parts[1] else None
            suggestion = f"{parts[0]}{unit}" if parts and unit else None
            raise Refused(str(exc), suggestion) from None
        if not self.low <= number <= self.high:
            raise Refused(f"is out of range; valid is {self.describe()}")
        return number

    def render(self, value: int) -> object:
        return quantities.from_base_units(value, self.units)

    def schema(self) -> dict[str, object]:
        units = "|".join(re.escape(u) for u in self.units)
        sign = "[+-]?" if self.low < 0 else r"\+?"
        pattern = rf"^\s*{sign}\d+(\.\d+)?\s*({units})\s*$"
        return {"anyOf": [{"type": "string", "pattern": pattern}, _ENV_SCHEMA]}

    def describe(self) -> str:
        text = f"{self.what} such as {self.example}"
        if self.low > 1:
            text += f", at least {quantities.from_base_units(self.low, self.units)}"
        if self.high != _INT64_MAX:
            text += f", at most {quantities.from_base_units(self.high, self.units)}"
        return text


def Duration(  # noqa: N802 - a kind like the classes above
    low: int = 1, high: int = _INT64_MAX, example: str = "200ms"
) -> Quantity:
    """Return the kind of a duration, typed in ns; ``low`` 0 allows "off"."""
    return Quantity(quantities.DURATION_UNITS, "a duration", example, low, high)


def Size(low: int = 1, high: int = _INT64_MAX, example: str = "128MiB") -> Quantity:  # noqa: N802
    """Return the kind of a size, typed in bytes."""
    return Quantity(quantities.SIZE_UNITS, "a size", example, low, high)


def ByteRate(example: str = "10MiB/s") -> Quantity:  # noqa: N802
    """Return the kind of a transfer rate, typed in bytes per second."""
    return Quantity(quantities.BYTE_RATE_UNITS, "a rate", example)


@dataclass(frozen=True, slots=True)
class Frequency:
    """Messages per second, spelled ``10Hz``; typed as a float."""

    ros_type = "string"

    def check(self, value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise Refused("has no unit; write it like 10Hz (units: Hz)")
        parts = quantities.split_quantity(value) if isinstance(value, str) else None
        if parts is None or parts[1] != "Hz" or parts[0] <= 0:
            raise Refused("must be a frequency such as 10Hz (units: Hz)")
        return float(parts[0])

    def render(self, value: float) -> object:
        text = f"{Decimal(repr(value)):f}"
        return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Hz"

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*Hz\s*$"}, _ENV_SCHEMA]}

    def describe(self) -> str:
        return "a frequency such as 10Hz"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of leaves; refused when empty if ``required_items``."""

    item: Kind
    required_items: bool = False
    unique: bool = True

    @property
    def ros_type(self) -> str:
        return f"{self.item.ros_type}_array"

    def check(self, value: object) -> tuple[Any, ...]:
        """Check a whole list; the loader checks items one by one to name each.

        Raises:
            Refused: For the first bad item.
        """
        if not isinstance(value, list):
            raise Refused(f"must be {self.describe()}, not {_type_name(value)}")
        return tuple(self.item.check(v) for v in value)

    def render(self, value: Sequence[Any]) -> object:
        return [self.item.render(v) for v in value]

    def schema(self) -> dict[str, object]:
        out: dict[str, object] = {"type": "array", "items": self.item.schema()}
        if self.required_items:
            out["minItems"] = 1
        if self.unique:
            out["uniqueItems"] = True
        return out

    def describe(self) -> str:
        return f"a list, each item {self.item.describe()}"


def Name(what: str = "a name") -> Text:  # noqa: N802
    """Return the kind of a name of spec 1.2."""
    return Text(NAME_PATTERN[1:-1], f"{what} (lower case letters, digits and _, at most 63)")
