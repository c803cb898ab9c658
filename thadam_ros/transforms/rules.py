# SPDX-License-Identifier: Apache-2.0
"""Steps without state: ``flag_unless``, ``reject_unless``, ``filter`` and ``set``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from thadam_ros.dataset.types import ColumnType
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.evaluate import Number, Other, Tri, spread
from thadam_ros.transforms.expression import Expression, ExpressionError, parse_expression
from thadam_ros.transforms.rows import Rows, Values
from thadam_ros.transforms.step import Step, StepContext, nearest

#: Flags a rule may set; TIME_CORRECTED belongs to time correction alone.
RULE_FLAGS = tuple(str(flag.name) for flag in QualityFlag if flag is not QualityFlag.TIME_CORRECTED)
_INT_RANGE = {"int": 2**31, "long": 2**63}


class Stateless:
    """A plan that is its own step."""

    state_hash = ""

    def build(self) -> Step:
        """Return the step; there is no state to own."""
        return self  # type: ignore[return-value]

    def snapshot(self) -> object:
        """There is none."""
        return None

    def restore(self, state: object) -> None:
        """There is none."""

    def commit(self) -> None:
        """There is nothing to keep."""

    def rollback(self) -> None:
        """There is nothing to undo."""


@dataclass(frozen=True)
class FlagUnless(Stateless):
    """Flags rows where an expression is false."""

    name: str
    rules: tuple[tuple[QualityFlag, Expression], ...]

    @classmethod
    def plan(cls, name: str, rules: Mapping[str, str], context: StepContext) -> FlagUnless:
        """Compile ``{FLAG: expression}``; flags are set in the order of their bits."""
        compiled = []
        for flag, text in rules.items():
            if flag not in RULE_FLAGS:
                message = f"is no flag a rule may set; valid: {', '.join(RULE_FLAGS)}."
                context.problem("", flag, message, nearest(flag, RULE_FLAGS))
                continue
            expression = compile_rule(text, context, flag)
            if expression:
                compiled.append((QualityFlag[flag], expression))
        return cls(name, tuple(sorted(compiled, key=lambda rule: int(rule[0]))))

    def apply(self, rows: Rows) -> None:
        """Flag; a row keeps the reason of the first rule it fails."""
        for flag, expression in self.rules:
            rows.flag(expression.fails(rows), flag, f"{flag.name}: {expression.text}")


@dataclass(frozen=True)
class RejectUnless(Stateless):
    """Rejects rows where an expression is false, as ``quality.<name>``."""

    name: str
    rules: tuple[tuple[str, Expression], ...]

    @classmethod
    def plan(cls, name: str, rules: Mapping[str, str], context: StepContext) -> RejectUnless:
        """Compile ``{code: expression}``; the first rule by name that a row fails rejects it."""
        compiled = []
        for code, text in sorted(rules.items()):
            expression = compile_rule(text, context, code)
            if expression:
                compiled.append((code, expression))
        return cls(name, tuple(compiled))

    def apply(self, rows: Rows) -> None:
        """Reject."""
        for code, expression in self.rules:
            reason = f"{code}: {expression.text}"[:200]
            rows.reject(expression.fails(rows), "quality", f"quality.{code}", reason)


@dataclass(frozen=True)
class Filter(Stateless):
    """Drops rows where ``keep`` is false; unknown keeps."""

    name: str
    keep: Expression

    @classmethod
    def plan(cls, name: str, options: Mapping[str, object], context: StepContext) -> Filter | None:
        """Compile ``keep``."""
        expression = compile_rule(str(options.get("keep", "")), context, "keep")
        return cls(name, expression) if expression else None

    def apply(self, rows: Rows) -> None:
        """Drop, counted as filtered."""
        rows.drop(self.keep.fails(rows))


@dataclass(frozen=True)
class SetColumns(Stateless):
    """Replaces columns by expressions over the values before this step."""

    name: str
    values: tuple[tuple[str, ColumnType, Expression], ...]

    @classmethod
    def plan(
        cls, name: str, options: Mapping[str, object], context: StepContext
    ) -> SetColumns | None:
        """Compile ``values: {column: expression}``."""
        values = options.get("values")
        if not isinstance(values, Mapping) or not values:
            context.problem("values", values, "must be a map from column to expression.")
            return None
        compiled = []
        for column, text in sorted(values.items()):
            if column not in context.settable:
                near = nearest(column, context.settable)
                context.problem("values", column, "is no declared column.", near)
                continue
            expression = _compile(str(text), context, f"values.{column}", None)
            kind = context.columns[column]
            if expression and not _fits(expression.kind, kind):
                context.problem(
                    f"values.{column}", text, f"is a {expression.kind}, the column is {kind}."
                )
            elif expression:
                compiled.append((column, kind, expression))
        return cls(name, tuple(compiled))

    def apply(self, rows: Rows) -> None:
        """Set; a value that its column cannot hold rejects the row (``transform.failed``)."""
        results = [(column, kind, e.evaluate(rows)) for column, kind, e in self.values]
        for column, kind, value in results:
            if isinstance(value, Number):
                self._set_number(rows, column, kind, value)
            elif isinstance(value, Tri):
                true, false = spread(value.true, len(rows)), spread(value.false, len(rows))
                rows.set(column, Values(true, true | false))
            else:
                rows.set(column, _texts(value, len(rows)))

    def _set_number(self, rows: Rows, column: str, kind: ColumnType, value: Number) -> None:
        data = np.broadcast_to(np.asarray(value.data), (len(rows),))
        valid = value.valid
        if kind.name in ("float", "double"):
            with np.errstate(over="ignore"):
                narrow = np.float32 if kind.name == "float" else np.float64
                rows.set(column, Values(data.astype(narrow), valid))
            return
        limit = _INT_RANGE.get(kind.name, 2**63)
        if data.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                bad = ~((data >= -float(limit)) & (data < float(limit)) & (data == np.trunc(data)))
        elif limit < 2**63:
            bad = (data < -limit) | (data >= limit)
        else:
            bad = np.zeros(len(rows), np.bool_)
        if valid is not None:
            bad &= valid
        rows.reject(bad, "transform", "transform.failed", f"{self.name}: {column} is no {kind}")
        whole = np.where(bad, 0, data).astype(np.int32 if kind.name == "int" else np.int64)
        rows.set(column, Values(whole, valid))


def compile_rule(text: str, context: StepContext, key: str) -> Expression | None:
    """Compile an expression that is true or false; None after noting why it is not."""
    return _compile(text, context, key, "boolean")


def _compile(text: str, context: StepContext, key: str, kind: str | None) -> Expression | None:
    try:
        return parse_expression(text, context.columns, context.limits.predicate_cost, kind=kind)
    except ExpressionError as exc:
        context.problem(key, text, exc.message, exc.suggestion)
        return None


def _fits(kind: str, column: ColumnType) -> bool:
    if column.element is not None:
        return False
    if kind in ("integer", "number"):
        return column.name in ("int", "long", "float", "double", "timestamp")
    return kind == column.name


def _texts(value: Other | Tri, n: int) -> pa.Array:
    assert isinstance(value, Other)
    if isinstance(value.data, str):
        return pa.repeat(pa.scalar(value.data), n)
    return value.data
