# SPDX-License-Identifier: Apache-2.0
"""One field: its type from the message and the declaration, its unit, its conversion (spec 3.2)."""

from __future__ import annotations

from thadam_ros.config.schema import FieldConfig
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import PlannedField, Source
from thadam_ros.dataset.types import RESERVED_TYPES, SCALAR_TYPES, ColumnType, parse_type
from thadam_ros.dataset.units import AffineMap, UnitError, check_unit, compile_conversion
from thadam_ros.transforms.step import nearest

TICKS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NUMBERS = ("int", "long", "float", "double")


class FieldError(ValueError):
    """A field cannot be planned; ``key`` is the part of it at fault, such as ``.unit``."""

    def __init__(
        self, key: str, value: object, message: str, suggestion: str | None = None
    ) -> None:
        super().__init__(message)
        self.key = f".{key}" if key else ""
        self.value = value
        self.suggestion = suggestion


def plan_field(name: str, config: FieldConfig, source: Source) -> PlannedField:
    """Plan a field of a typed message; its field id is given later.

    Raises:
        FieldError: With the part at fault.
    """
    natural = source.leaf.natural
    if natural is None:
        what = "use explode" if source.leaf.shape is Shape.STRUCTS else "name one of its fields"
        raise FieldError("from", source.pointer, f"is a {source.leaf.shape.value}; {what}.")
    declared = declared_type(config)
    if declared == ColumnType("timestamp") and natural.name in _NUMBERS:
        return PlannedField(
            name,
            declared,
            0,
            source=source,
            required=config.required,
            tick_ns=plan_number(source.leaf, config.unit),
        )
    conversion, unit = _plan_unit(config, natural)
    kind = declared or natural
    if conversion is not None:
        kind = declared or _as_double(natural)
        if (kind.element or kind.name) not in ("float", "double") or (kind.element is None) != (
            natural.element is None
        ):
            raise FieldError("type", config.type, "must be float or double with `convert_to`.")
        if (natural.element or natural.name) == "double" and kind.name == "float":
            raise FieldError("type", config.type, "would lose precision; use double.")
    elif not kind.accepts(natural):
        hint = _as_double(natural) if natural.name in _NUMBERS else natural
        raise FieldError(
            "type", config.type, f"cannot hold {source.pointer}, which is {natural}.", str(hint)
        )
    return PlannedField(
        name,
        kind,
        0,
        source=source,
        required=config.required,
        conversion=conversion,
        unit=unit,
    )


def plan_untyped(name: str, config: FieldConfig) -> PlannedField:
    """Plan a field of a message without a definition (JSON, Sparkplug) from its declaration.

    Raises:
        FieldError: With the part at fault.
    """
    declared = declared_type(config)
    if declared is None:
        raise FieldError(
            "type", None, "is required: the message has no definition to take it from."
        )
    if not (config.pointer or config.metric):
        raise FieldError("", None, "needs `from` or `metric`: where its value is.")
    leaf = Leaf(config.pointer or f"/{config.metric}", Shape.SCALAR, str(declared))
    conversion, unit = _plan_unit(config, declared)
    if conversion is not None and declared.name not in ("float", "double"):
        raise FieldError("type", config.type, "must be float or double with `convert_to`.")
    return PlannedField(
        name,
        declared,
        0,
        source=Source(leaf),
        required=config.required,
        conversion=conversion,
        unit=unit,
    )


def declared_type(config: FieldConfig) -> ColumnType | None:
    """Return the declared column type, None when none is declared.

    Raises:
        FieldError: If it is no column type, or one of a later version.
    """
    if config.type is None:
        return None
    if config.type in RESERVED_TYPES:
        raise FieldError("type", config.type, "is not built yet in this version.")
    kind = parse_type(config.type)
    if kind is None:
        valid = (*SCALAR_TYPES, "list<T>")
        raise FieldError(
            "type",
            config.type,
            f"is no column type; valid: {', '.join(valid)}.",
            nearest(config.type, SCALAR_TYPES),
        )
    return kind


def plan_number(leaf: Leaf, unit: str | None) -> int:
    """Return ns per unit of a number that is a time.

    Raises:
        FieldError: If it is no number or has no unit.
    """
    natural = leaf.natural
    if natural is None or natural.name not in _NUMBERS:
        raise FieldError("from", leaf.pointer, f"is {leaf}, no Time and no number.")
    if unit not in TICKS_NS:
        raise FieldError("unit", unit, f"must be one of {', '.join(TICKS_NS)} for a number.")
    return TICKS_NS[unit]


def _plan_unit(config: FieldConfig, natural: ColumnType) -> tuple[AffineMap | None, str | None]:
    if config.unit is None and config.convert_to is None:
        return None, None
    if (natural.element or natural.name) not in _NUMBERS:
        raise FieldError("unit", config.unit, f"is for numbers, this is {natural}.")
    if config.unit is None:
        raise FieldError("convert_to", config.convert_to, "needs `unit`: what the values are in.")
    try:
        if config.convert_to is None:
            check_unit(config.unit)
            return None, config.unit
        return compile_conversion(config.unit, config.convert_to), config.convert_to
    except UnitError as exc:
        key, value = (
            ("convert_to", config.convert_to) if config.convert_to else ("unit", config.unit)
        )
        raise FieldError(key, value, f"{exc}.") from exc


def _as_double(natural: ColumnType) -> ColumnType:
    """Return the floating type that conversions of ``natural`` give; float32 stays float32."""
    inner = natural.element or natural.name
    wide = inner if inner in ("float", "double") else "double"
    return ColumnType("list", wide) if natural.element else ColumnType(wide)
