# SPDX-License-Identifier: Apache-2.0
"""The expression language of rules, filters and ``set`` (spec 3.5).

Grammar (Python's own, strictly narrowed)::

    expression = or-expression
    operators  = or, and, not, in, not in, == != < <= > >= (chains allowed), + - * /, unary -
    operands   = column names, numbers, 'strings', true, false, calls
    calls      = abs(x) sqrt(x) min(x, ...) max(x, ...) finite(x, ...) is_null(x) length(x)
    in         = x in (constant, ...)

Logic is three-valued: a comparison with null or NaN is neither true nor false. ``finite(NaN)`` is
false, ``is_null`` always has an answer. Arithmetic is done in double; comparisons between integers
are exact. Timestamps are integers, ns since the Unix epoch. A rule acts only where its expression
is *false*. Everything is evaluated over whole columns; what one evaluation may cost is limited
when the configuration is checked.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from thadam_ros.dataset.types import ColumnType
from thadam_ros.transforms import evaluate as ev
from thadam_ros.transforms.evaluate import Operand, Tri
from thadam_ros.transforms.rows import Mask, Rows
from thadam_ros.transforms.step import nearest

TEXT_CHARS_MAX = 4_096
DEPTH_MAX = 64
_TEXT_COST = 5  # string work per row against one double operation, measured

_KINDS = {
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "timestamp": "integer",
    "float": "number",
    "double": "number",
    "string": "string",
    "binary": "binary",
    "list": "list",
}
_NUMERIC = ("integer", "number")
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_WORDS = {"true": True, "false": False, "True": True, "False": False}

Evaluate = Callable[[Rows], Operand]


class ExpressionError(ValueError):
    """An expression cannot be used; one sentence, and the nearest valid name if there is one."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression.

    Attributes:
        kind: ``boolean integer number string``.
        cost: Work per row, in double operations.
        columns: Columns it reads.
    """

    text: str
    kind: str
    cost: int
    columns: frozenset[str]
    _evaluate: Evaluate

    def evaluate(self, rows: Rows) -> Operand:
        """Return the value per row."""
        return self._evaluate(rows)

    def fails(self, rows: Rows) -> Mask:
        """Return bool[n], True where a boolean expression is false (not where it is unknown)."""
        return ev.spread(self._tri(rows).false, len(rows))

    def holds(self, rows: Rows) -> Mask:
        """Return bool[n], True where a boolean expression is true."""
        return ev.spread(self._tri(rows).true, len(rows))

    def _tri(self, rows: Rows) -> Tri:
        value = self._evaluate(rows)
        assert isinstance(value, Tri)
        return value


@dataclass(frozen=True, slots=True)
class _Node:
    kind: str
    evaluate: Evaluate
    cost: int = 1
    constant: bool = False


def parse_expression(
    text: str, columns: Mapping[str, ColumnType], cost_max: int, *, kind: str | None = None
) -> Expression:
    """Parse, type-check and compile an expression.

    Args:
        columns: Names it may use.
        cost_max: Limit of the cost (``limits.predicate_cost``).
        kind: ``boolean`` when a rule needs one; None accepts any value.

    Raises:
        ExpressionError: With one sentence that says what would be valid.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ExpressionError(f"is longer than {TEXT_CHARS_MAX} characters.")
    try:
        with warnings.catch_warnings():
            # Python warns about odd escapes in strings; here they are just characters.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        detail = exc.msg if isinstance(exc, SyntaxError) else "it is not readable"
        raise ExpressionError(f"is not an expression: {detail}.") from exc
    checker = _Checker(columns)
    node = checker.check(tree.body)
    if node.cost > cost_max:
        raise ExpressionError(
            f"costs {node.cost} per row, limits.predicate_cost allows {cost_max}."
        )
    if kind == "boolean" and node.kind != "boolean":
        raise ExpressionError(f"must be true or false, it is a {node.kind}.")
    if node.kind in ("list", "binary"):
        raise ExpressionError(f"must be a number, text or true/false, it is a {node.kind}.")
    return Expression(text.strip(), node.kind, node.cost, frozenset(checker.used), node.evaluate)


class _Checker:
    """Walks the tree once; every kind of node it does not name is refused."""

    def __init__(self, columns: Mapping[str, ColumnType]) -> None:
        self._columns = columns
        self._depth = 0
        self.used: set[str] = set()

    def check(self, node: ast.expr) -> _Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"is nested deeper than {DEPTH_MAX}.")
        try:
            return self._check(node)
        finally:
            self._depth -= 1

    def _check(self, node: ast.expr) -> _Node:
        if isinstance(node, ast.Constant):
            return _constant(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BoolOp):
            return self._logic(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise ExpressionError(f"uses {_text(node)!r}, which expressions do not have.")

    def _name(self, name: str) -> _Node:
        if name in self._columns:
            kind = _KINDS[self._columns[name].name]
            self.used.add(name)
            cost = _TEXT_COST if kind in ("string", "list", "binary") else 1
            return _Node(kind, ev.column(name, kind), cost)
        if name in _WORDS:
            return _constant(_WORDS[name])
        raise ExpressionError(f"names {name!r}, which is no column.", nearest(name, self._columns))

    def _logic(self, node: ast.BoolOp) -> _Node:
        parts = [self._boolean(value) for value in node.values]
        combine = ev.all_of if isinstance(node.op, ast.And) else ev.any_of
        functions = tuple(part.evaluate for part in parts)
        return _Node("boolean", combine(functions), 1 + sum(part.cost for part in parts))

    def _boolean(self, node: ast.expr) -> _Node:
        checked = self.check(node)
        if checked.kind != "boolean":
            raise ExpressionError(
                f"needs true or false in {_text(node)!r}, it is a {checked.kind}."
            )
        return checked

    def _number(self, node: ast.expr) -> _Node:
        checked = self.check(node)
        if checked.kind not in _NUMERIC:
            raise ExpressionError(f"needs a number in {_text(node)!r}, it is a {checked.kind}.")
        return checked

    def _unary(self, node: ast.UnaryOp) -> _Node:
        if isinstance(node.op, ast.Not):
            inner = self._boolean(node.operand)
            return _Node("boolean", ev.negation(inner.evaluate), 1 + inner.cost)
        if isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self._number(node.operand)
            if isinstance(node.op, ast.UAdd):
                return inner
            return _Node(inner.kind, ev.minus(inner.evaluate), 1 + inner.cost, inner.constant)
        raise ExpressionError("uses ~, which expressions do not have.")

    def _arithmetic(self, node: ast.BinOp) -> _Node:
        operator = _ARITHMETIC.get(type(node.op))
        if operator is None:
            raise ExpressionError(f"uses an operator in {_text(node)!r} that is not + - * /.")
        left, right = self._number(node.left), self._number(node.right)
        function = ev.arithmetic(operator, left.evaluate, right.evaluate)
        return _Node("number", function, 1 + left.cost + right.cost)

    def _comparison(self, node: ast.Compare) -> _Node:
        parts: list[_Node] = []
        left_node, left = node.left, self.check(node.left)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                if len(node.ops) > 1:
                    raise ExpressionError("cannot chain 'in' with other comparisons.")
                return self._membership(left, right_node, isinstance(operator, ast.NotIn))
            symbol = _COMPARE.get(type(operator))
            if symbol is None:
                raise ExpressionError("uses 'is'; use == or is_null().")
            right = self.check(right_node)
            parts.append(_compare(symbol, left_node, left, right_node, right))
            left_node, left = right_node, right
        if len(parts) == 1:
            return parts[0]
        functions = tuple(part.evaluate for part in parts)
        return _Node("boolean", ev.all_of(functions), sum(part.cost for part in parts))

    def _membership(self, left: _Node, right: ast.expr, negate: bool) -> _Node:
        if not isinstance(right, (ast.Tuple, ast.List)) or not right.elts:
            raise ExpressionError("needs a list of constants after 'in', such as (1, 2).")
        if left.kind not in (*_NUMERIC, "string"):
            raise ExpressionError(f"cannot look for a {left.kind} with 'in'.")
        parts = []
        for element in right.elts:
            constant = self.check(element)
            if not constant.constant:
                raise ExpressionError("needs constants only after 'in'.")
            parts.append(_compare("==", element, left, element, constant).evaluate)
        function = ev.any_of(tuple(parts))
        cost = left.cost + 2 * len(parts) * (_TEXT_COST if left.kind == "string" else 1)
        return _Node("boolean", ev.negation(function) if negate else function, cost)

    def _call(self, node: ast.Call) -> _Node:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise ExpressionError(f"calls {_text(node.func)!r}, which is no function.")
        name, arguments = node.func.id, node.args
        if name not in _ARITY:
            raise ExpressionError(f"calls {name!r}, which is no function.", nearest(name, _ARITY))
        many = _ARITY[name]
        if not arguments or (not many and len(arguments) != 1):
            raise ExpressionError(f"needs {'at least ' if many else ''}one argument for {name}.")
        if name == "is_null":
            checked = [self.check(arguments[0])]
        elif name == "length":
            checked = [self.check(arguments[0])]
            if checked[0].kind not in ("string", "list", "binary"):
                raise ExpressionError(
                    f"takes the length of a {checked[0].kind}; text, binary and lists have one."
                )
        else:
            checked = [self._number(argument) for argument in arguments]
        functions = tuple(part.evaluate for part in checked)
        kind = _result_kind(name, checked)
        return _Node(kind, ev.CALLS[name](functions), 1 + sum(part.cost for part in checked))


#: Function -> whether it takes several arguments.
_ARITY = {
    "abs": False,
    "sqrt": False,
    "min": True,
    "max": True,
    "finite": True,
    "is_null": False,
    "length": False,
}


def _result_kind(name: str, arguments: list[_Node]) -> str:
    if name in ("finite", "is_null"):
        return "boolean"
    if name == "length":
        return "integer"
    if name == "sqrt":
        return "number"
    return "integer" if all(part.kind == "integer" for part in arguments) else "number"


def _constant(value: object) -> _Node:
    if isinstance(value, bool):
        return _Node("boolean", ev.constant_truth(value), 0, True)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ExpressionError(f"has the integer {value}, which is larger than 64 bits.")
        return _Node("integer", ev.constant_number(value), 0, True)
    if isinstance(value, float):
        return _Node("number", ev.constant_number(value), 0, True)
    if isinstance(value, str):
        return _Node("string", ev.constant_text(value), 0, True)
    raise ExpressionError(f"has the constant {value!r}, which is no number, text or true/false.")


def _compare(
    symbol: str, left_node: ast.expr, left: _Node, right_node: ast.expr, right: _Node
) -> _Node:
    cost = 1 + left.cost + right.cost
    if left.kind in _NUMERIC and right.kind in _NUMERIC:
        return _Node("boolean", ev.compare_numbers(symbol, left.evaluate, right.evaluate), cost)
    if left.kind == right.kind == "string":
        return _Node("boolean", ev.compare_texts(symbol, left.evaluate, right.evaluate), cost)
    if left.kind == right.kind == "boolean" and symbol in ("==", "!="):
        return _Node("boolean", ev.compare_truths(symbol, left.evaluate, right.evaluate), cost)
    raise ExpressionError(
        f"compares {_text(left_node)!r} ({left.kind}) with "
        f"{_text(right_node)!r} ({right.kind}) by {symbol}."
    )


def _text(node: ast.expr) -> str:
    """Return the source of a part, for messages."""
    try:
        return ast.unparse(node)[:60]
    except (ValueError, RecursionError):
        return type(node).__name__
