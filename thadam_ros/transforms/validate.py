# SPDX-License-Identifier: Apache-2.0
"""``validate``: range, required, finite, enum and length checks of columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thadam_ros.dataset.types import ColumnType
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.expression import Expression, ExpressionError, parse_expression
from thadam_ros.transforms.rows import Rows
from thadam_ros.transforms.rules import RULE_FLAGS, Stateless
from thadam_ros.transforms.step import StepContext, nearest

_NUMBERS = ("int", "long", "float", "double", "timestamp")


@dataclass(frozen=True)
class Check:
    """One check of one column."""

    flag: QualityFlag
    expression: Expression
    reason: str


@dataclass(frozen=True)
class Validate(Stateless):
    """Runs checks over columns; a failing row is flagged, or rejected with ``code``."""

    name: str
    checks: tuple[Check, ...]
    code: str | None

    @classmethod
    def plan(
        cls, name: str, options: Mapping[str, object], context: StepContext
    ) -> Validate | None:
        """Compile ``columns`` with the checks that are given.

        Options: ``columns``, ``range: [low, high]``, ``required``, ``finite``, ``enum: [...]``,
        ``length: [low, high]``, ``flag``, ``on_fail: flag | reject``, ``code``.
        """
        columns = _sequence(options.get("columns"))
        if not columns:
            context.problem("columns", options.get("columns"), "names no column.")
            return None
        if not context.known("columns", [str(column) for column in columns]):
            return None
        flag = options.get("flag")
        if flag is not None and flag not in RULE_FLAGS:
            message = f"is no flag a rule may set; valid: {', '.join(RULE_FLAGS)}."
            context.problem("flag", flag, message, nearest(str(flag), RULE_FLAGS))
            return None
        checks: list[Check] = []
        for column in map(str, columns):
            for key, default, text, reason in _texts(column, options, context):
                try:
                    expression = parse_expression(
                        text, context.columns, context.limits.predicate_cost, kind="boolean"
                    )
                except ExpressionError as exc:
                    context.problem(key, options.get(key), f"{column}: {exc.message}")
                    continue
                wanted = QualityFlag[str(flag)] if flag else default
                checks.append(Check(wanted, expression, reason))
        if not checks:
            if not context.problems:
                valid = "range, required, finite, enum, length"
                context.problem("", None, f"names no check; valid: {valid}.")
            return None
        reject = options.get("on_fail", "flag") == "reject"
        code = str(options.get("code") or name) if reject else None
        return cls(name, tuple(checks), code)

    def apply(self, rows: Rows) -> None:
        """Check columns in the order in which they are named."""
        for check in self.checks:
            failing = check.expression.fails(rows)
            if self.code is None:
                rows.flag(failing, check.flag, f"{check.flag.name}: {check.reason}")
            else:
                rows.reject(failing, "quality", f"quality.{self.code}", check.reason)


def _texts(
    column: str, options: Mapping[str, object], context: StepContext
) -> list[tuple[str, QualityFlag, str, str]]:
    """Return (option, default flag, expression, reason) of each check of a column."""
    kind = context.columns[column]
    found: list[tuple[str, QualityFlag, str, str]] = []

    def add(key: str, flag: QualityFlag, text: str, reason: str) -> None:
        found.append((key, flag, text, f"{column} {reason}"))

    if options.get("required"):
        add("required", QualityFlag.INVALID, f"not is_null({column})", "is required")
    if options.get("finite"):
        if kind.name in _NUMBERS:
            add("finite", QualityFlag.INVALID, f"finite({column})", "is not finite")
        else:
            context.problem("finite", True, f"{column} is {kind}, no number.")
    bounds = _pair(options, "range", context)
    if bounds:
        low, high = bounds
        if kind.name in _NUMBERS:
            text = " and ".join(
                f"{column} {sign} {_literal(bound)}"
                for sign, bound in ((">=", low), ("<=", high))
                if not math.isinf(bound)
            )
            # An open range has no bound to fail; it is refused as a check that checks nothing.
            if text:
                reason = f"outside [{low:g}, {high:g}]"
                add("range", QualityFlag.OUT_OF_RANGE, text, reason)
        else:
            context.problem("range", [low, high], f"{column} is {kind}, no number.")
    values = _sequence(options.get("enum"))
    if values:
        listed = ", ".join(_literal(value) for value in values)
        add("enum", QualityFlag.INVALID, _enum(column, kind, values, listed), "is not in enum")
    bounds = _pair(options, "length", context)
    if bounds:
        low, high = (int(bound) for bound in bounds)
        text = f"length({column}) >= {low} and length({column}) <= {high}"
        add("length", QualityFlag.INVALID, text, f"has a length outside [{low}, {high}]")
    return found


def _enum(column: str, kind: ColumnType, values: Sequence[object], listed: str) -> str:
    if kind.name == "boolean":
        return " or ".join(f"{column} == {_literal(value)}" for value in values)
    return f"{column} in ({listed},)"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return repr(int(value))  # integer columns are then compared exactly
    return repr(value)


def _sequence(value: object) -> Sequence[object]:
    if isinstance(value, (list, tuple)):
        return value
    return () if value is None else (value,)


def _pair(
    options: Mapping[str, object], key: str, context: StepContext
) -> tuple[float, float] | None:
    values = _sequence(options.get(key))
    if not values:
        return None
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(values) != 2 or len(numbers) != 2 or not numbers[0] <= numbers[1]:
        context.problem(key, list(values), "must be two numbers, lowest and highest.")
        return None
    return numbers[0], numbers[1]
