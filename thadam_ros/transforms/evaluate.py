# SPDX-License-Identifier: Apache-2.0
"""Evaluation of expressions over whole columns, three-valued (spec 3.5).

A truth value is a pair of masks, where it is true and where it is false; where neither holds it is
unknown. NaN then needs no care: every ordered comparison with it is False in NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thadam_ros.transforms.rows import Mask, Rows

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Tri:
    """True and false masks; bool[n] or one bool for all rows."""

    true: Mask | np.bool_ | bool
    false: Mask | np.bool_ | bool


@dataclass(frozen=True, slots=True)
class Number:
    """Int64 or double values, n of them or one for all rows; ``valid`` None means no nulls."""

    data: npt.NDArray[Any] | int | float
    valid: Mask | None


@dataclass(frozen=True, slots=True)
class Other:
    """Text, binary or lists: an Arrow array of n values, or one text for all rows."""

    data: pa.Array | str


Operand = Tri | Number | Other
Function = Callable[[Rows], Operand]


def spread(mask: Mask | np.bool_ | bool, n: int) -> Mask:
    """Return bool[n] of a mask that may stand for all rows."""
    return mask if isinstance(mask, np.ndarray) else np.full(n, bool(mask))


def column(name: str, kind: str) -> Function:
    """Read a column; ``kind`` is boolean, integer, number or something else."""

    def truth(rows: Rows) -> Operand:
        values = rows.values(name)
        data = values.data.astype(np.bool_, copy=False)
        if values.valid is None:
            return Tri(data, ~data)
        return Tri(data & values.valid, ~data & values.valid)

    def number(rows: Rows) -> Operand:
        values = rows.values(name)
        wide = np.int64 if kind == "integer" else np.float64
        return Number(values.data.astype(wide, copy=False), values.valid)

    def other(rows: Rows) -> Operand:
        array = rows.columns[name]
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        return Other(array)

    return {"boolean": truth, "integer": number, "number": number}.get(kind, other)


def constant_truth(value: bool) -> Function:
    """One truth value for all rows."""
    return lambda rows: Tri(value, not value)


def constant_number(value: int | float) -> Function:
    """One number for all rows."""
    return lambda rows: Number(value, None)


def constant_text(value: str) -> Function:
    """One text for all rows."""
    return lambda rows: Other(value)


def negation(inner: Function) -> Function:
    """``not``: unknown stays unknown."""

    def evaluate(rows: Rows) -> Operand:
        value = _tri(inner(rows))
        return Tri(value.false, value.true)

    return evaluate


def all_of(parts: tuple[Function, ...]) -> Function:
    """``and``: false where any is false, true where all are true."""

    def evaluate(rows: Rows) -> Operand:
        first, *others = (_tri(part(rows)) for part in parts)
        true, false = first.true, first.false
        for part in others:
            true, false = true & part.true, false | part.false
        return Tri(true, false)

    return evaluate


def any_of(parts: tuple[Function, ...]) -> Function:
    """``or``: true where any is true, false where all are false."""

    def evaluate(rows: Rows) -> Operand:
        first, *others = (_tri(part(rows)) for part in parts)
        true, false = first.true, first.false
        for part in others:
            true, false = true | part.true, false & part.false
        return Tri(true, false)

    return evaluate


def minus(inner: Function) -> Function:
    """Unary minus; integers stay integers (the one that has no negative becomes the largest)."""

    def evaluate(rows: Rows) -> Operand:
        value = _number(inner(rows))
        data = value.data
        if isinstance(data, np.ndarray) and data.dtype.kind == "i":
            return Number(-np.maximum(data, -_INT64_MAX), value.valid)
        return Number(-data, value.valid)

    return evaluate


def arithmetic(symbol: str, left: Function, right: Function) -> Function:
    """``+ - * /`` in double; dividing by zero gives infinities or NaN, as IEEE 754 says."""
    function = {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.divide,
    }[symbol]

    def evaluate(rows: Rows) -> Operand:
        a, b = _number(left(rows)), _number(right(rows))
        with np.errstate(all="ignore"):
            data = function(_double(a.data), _double(b.data))
        return Number(data, _both(a.valid, b.valid))

    return evaluate


_ORDERED: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "<": (operator.lt, operator.ge),
    "<=": (operator.le, operator.gt),
    ">": (operator.gt, operator.le),
    ">=": (operator.ge, operator.lt),
}


def compare_numbers(symbol: str, left: Function, right: Function) -> Function:
    """Compare numbers; unknown where either is null or NaN."""

    def evaluate(rows: Rows) -> Operand:
        a, b = _number(left(rows)), _number(right(rows))
        x, y = a.data, b.data
        if not (_is_integer(x) and _is_integer(y)):
            x, y = _double(x), _double(y)
        if symbol in _ORDERED:
            yes, no = _ORDERED[symbol]
            true, false = yes(x, y), no(x, y)
        else:
            true, false = x == y, (x < y) | (x > y)
            if symbol == "!=":
                true, false = false, true
        return _known(Tri(true, false), _both(a.valid, b.valid))

    return evaluate


def compare_truths(symbol: str, left: Function, right: Function) -> Function:
    """``==`` and ``!=`` of truth values."""

    def evaluate(rows: Rows) -> Operand:
        a, b = _tri(left(rows)), _tri(right(rows))
        same = (a.true & b.true) | (a.false & b.false)
        different = (a.true & b.false) | (a.false & b.true)
        return Tri(same, different) if symbol == "==" else Tri(different, same)

    return evaluate


def compare_texts(symbol: str, left: Function, right: Function) -> Function:
    """Compare texts by code point; unknown where either is null."""
    function = {
        "==": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[symbol]

    def evaluate(rows: Rows) -> Operand:
        a, b = left(rows), right(rows)
        assert isinstance(a, Other)
        assert isinstance(b, Other)
        if isinstance(a.data, str) and isinstance(b.data, str):
            value = bool(function(pa.scalar(a.data), pa.scalar(b.data)).as_py())
            return Tri(value, not value)
        result = function(_texts(a), _texts(b))
        true = result.fill_null(False).to_numpy(zero_copy_only=False)
        false = ~result.fill_null(True).to_numpy(zero_copy_only=False)
        return Tri(true, false)

    return evaluate


def _call_abs(arguments: tuple[Function, ...]) -> Function:
    def evaluate(rows: Rows) -> Operand:
        value = _number(arguments[0](rows))
        data: Any = value.data
        if isinstance(data, np.ndarray) and data.dtype.kind == "i":
            data = np.maximum(data, -_INT64_MAX)
        return Number(abs(data), value.valid)

    return evaluate


def _call_sqrt(arguments: tuple[Function, ...]) -> Function:
    def evaluate(rows: Rows) -> Operand:
        value = _number(arguments[0](rows))
        with np.errstate(all="ignore"):
            return Number(np.sqrt(_double(value.data)), value.valid)

    return evaluate


def _call_extreme(function: Callable[..., Any]) -> Callable[[tuple[Function, ...]], Function]:
    def call(arguments: tuple[Function, ...]) -> Function:
        def evaluate(rows: Rows) -> Operand:
            first, *others = (_number(argument(rows)) for argument in arguments)
            integer = all(_is_integer(part.data) for part in (first, *others))
            data: Any = first.data if integer else _double(first.data)
            valid = first.valid
            for part in others:
                data = function(data, part.data if integer else _double(part.data))
                valid = _both(valid, part.valid)
            return Number(data, valid)

        return evaluate

    return call


def _call_finite(arguments: tuple[Function, ...]) -> Function:
    """All arguments are numbers other than NaN and infinities; unknown where one is null."""

    def one(argument: Function) -> Function:
        def evaluate(rows: Rows) -> Operand:
            value = _number(argument(rows))
            if _is_integer(value.data):
                return _known(Tri(True, False), value.valid)
            true = np.isfinite(value.data)
            return _known(Tri(true, ~true), value.valid)

        return evaluate

    return all_of(tuple(one(argument) for argument in arguments))


def _call_is_null(arguments: tuple[Function, ...]) -> Function:
    def evaluate(rows: Rows) -> Operand:
        value = arguments[0](rows)
        if isinstance(value, Tri):
            known = value.true | value.false
        elif isinstance(value, Number):
            known = True if value.valid is None else value.valid
        elif isinstance(value.data, str) or not value.data.null_count:
            known = True
        else:
            known = value.data.is_valid().to_numpy(zero_copy_only=False)
        absent = ~known if isinstance(known, (np.ndarray, np.bool_)) else not known
        return Tri(absent, known)

    return evaluate


def _call_length(arguments: tuple[Function, ...]) -> Function:
    """Characters of text, bytes of binary, elements of lists."""

    def evaluate(rows: Rows) -> Operand:
        value = arguments[0](rows)
        assert isinstance(value, Other)
        if isinstance(value.data, str):
            return Number(len(value.data), None)
        kind = value.data.type
        if pa.types.is_string(kind):
            lengths = pc.utf8_length(value.data)
        elif pa.types.is_binary(kind):
            lengths = pc.binary_length(value.data)
        else:
            lengths = pc.list_value_length(value.data)
        valid = None
        if lengths.null_count:
            valid = lengths.is_valid().to_numpy(zero_copy_only=False)
            lengths = lengths.fill_null(0)
        return Number(lengths.to_numpy(zero_copy_only=False).astype(np.int64), valid)

    return evaluate


CALLS: Mapping[str, Callable[[tuple[Function, ...]], Function]] = {
    "abs": _call_abs,
    "sqrt": _call_sqrt,
    "min": _call_extreme(np.minimum),
    "max": _call_extreme(np.maximum),
    "finite": _call_finite,
    "is_null": _call_is_null,
    "length": _call_length,
}


def _tri(value: Operand) -> Tri:
    assert isinstance(value, Tri)
    return value


def _number(value: Operand) -> Number:
    assert isinstance(value, Number)
    return value


def _texts(value: Other) -> pa.Array | pa.Scalar:
    return pa.scalar(value.data) if isinstance(value.data, str) else value.data


def _is_integer(data: npt.NDArray[Any] | int | float) -> bool:
    return (
        data.dtype.kind == "i"
        if isinstance(data, np.ndarray | np.generic)
        else isinstance(data, int)
    )


def _double(data: npt.NDArray[Any] | int | float) -> Any:
    if isinstance(data, np.ndarray):
        return data.astype(np.float64, copy=False)
    return np.float64(data)


def _both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _known(value: Tri, valid: Mask | None) -> Tri:
    if valid is None:
        return value
    return Tri(value.true & valid, value.false & valid)
