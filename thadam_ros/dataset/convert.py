# SPDX-License-Identifier: Apache-2.0
"""Decoded arrays into column values: widening, ranges, units, times (spec 3.2).

Times and durations are int64 ns everywhere inside a pipeline, whatever unit the output has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import PlannedField
from thadam_ros.transforms.rows import Mask, Values, to_values

SECOND_NS = 1_000_000_000
_INT32_LIMIT = 2**31
_INT64_MAX = np.uint64(2**63 - 1)
_NUMPY: dict[str, npt.DTypeLike] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
}


@dataclass(frozen=True, slots=True)
class Converted:
    """A column in its own type.

    Attributes:
        column: An Arrow array, or numbers (times: ns).
        out_of_range: Rows whose value does not fit: a reject, or None when there are none.
        unusable: Rows whose value means nothing (``nanosec >= 1e9``): null and INVALID.
    """

    column: pa.Array | Values
    out_of_range: Mask | None = None
    unusable: Mask | None = None


def convert(field: PlannedField, leaf: Leaf, parts: Sequence[pa.Array]) -> Converted:
    """Convert what the decoder gave for ``leaf`` into the column of ``field``.

    Args:
        parts: One array, or seconds and nanoseconds of a time or duration.
    """
    if leaf.shape in (Shape.TIME, Shape.DURATION):
        return time_structure(parts)
    if field.tick_ns is not None:
        return number_as_time(to_values(parts[0]), field.tick_ns)
    if field.type.element is not None:
        return _list(field, parts[0])
    if field.type.name not in _NUMPY:
        return Converted(parts[0])
    values = to_values(parts[0])
    data, bad = _numbers(field, values.data, field.type.name)
    if bad is not None and values.valid is not None:
        bad &= values.valid
    return Converted(Values(data, values.valid), bad)


def time_structure(parts: Sequence[pa.Array]) -> Converted:
    """Return ns of ``sec`` and ``nanosec``; nanoseconds of a second and more mean nothing."""
    seconds, nanos = to_values(parts[0]), to_values(parts[1])
    total = seconds.data.astype(np.int64) * SECOND_NS
    total += nanos.data
    unusable = nanos.data >= SECOND_NS
    if not unusable.any():
        return Converted(Values(total, seconds.valid))
    valid = ~unusable if seconds.valid is None else ~unusable & seconds.valid
    if seconds.valid is not None:
        unusable &= seconds.valid
    return Converted(Values(total, valid), unusable=unusable)


def number_as_time(values: Values, tick_ns: int) -> Converted:
    """Return ns of a number of ``tick_ns`` each; what 64 bits cannot hold is out of range."""
    data = values.data
    limit = float(2**63) / tick_ns
    if data.dtype.kind == "f":
        wide = data.astype(np.float64)
        # The largest double below 2^63 still fits; NaN fails both comparisons.
        bad = ~((wide > -limit) & (wide < limit))
        ns = np.rint(np.where(bad, 0.0, wide) * tick_ns).astype(np.int64)
    else:
        most = (2**63 - 1) // tick_ns
        bad = data > np.uint64(most) if data.dtype == np.uint64 else (data > most) | (data < -most)
        ns = np.where(bad, 0, data).astype(np.int64) * tick_ns
    if values.valid is not None:
        bad &= values.valid
    return Converted(Values(ns, values.valid), bad if bad.any() else None)


def _numbers(
    field: PlannedField, data: npt.NDArray[Any], kind: str
) -> tuple[npt.NDArray[Any], Mask | None]:
    if field.conversion is not None:
        with np.errstate(over="ignore"):
            converted = field.conversion.apply(data.astype(np.float64, copy=False))
            return converted.astype(_NUMPY[kind], copy=False), None
    bad: Mask | None = None
    if data.dtype == np.uint64 and kind in ("int", "long"):
        bad = data > (_INT64_MAX if kind == "long" else np.uint64(_INT32_LIMIT - 1))
    elif kind == "int" and data.dtype in (np.uint32, np.int64):
        bad = (data >= _INT32_LIMIT) | (data < -_INT32_LIMIT)
    if bad is not None and not bad.any():
        bad = None
    return data.astype(_NUMPY[kind], copy=False), bad


def _list(field: PlannedField, array: pa.Array) -> Converted:
    """Convert a list's elements in one go and keep its offsets and nulls."""
    if pa.types.is_binary(array.type):
        array = _bytes_as_list(array)
    elements = array.values
    kind = field.type.element
    assert kind is not None
    bad_rows: Mask | None = None
    if kind in _NUMPY:
        values = to_values(elements)
        data, bad = _numbers(field, values.data, kind)
        if bad is not None:
            bad_rows = _rows_of(array, np.flatnonzero(bad))
        elements = pa.array(data, mask=None if values.valid is None else ~values.valid)
    return Converted(_with_elements(array, elements), bad_rows)


def _rows_of(array: pa.ListArray, positions: npt.NDArray[np.intp]) -> Mask:
    """Return which lists hold the elements at ``positions`` of the child array."""
    offsets = array.offsets.to_numpy()
    rows = np.searchsorted(offsets, positions, side="right") - 1
    mask = np.zeros(len(array), np.bool_)
    mask[rows[(rows >= 0) & (rows < len(array))]] = True
    return mask


def _with_elements(array: pa.ListArray, elements: pa.Array) -> pa.ListArray:
    buffers = array.buffers()[:2]
    kind = pa.list_(pa.field("element", elements.type))
    return pa.ListArray.from_buffers(
        kind, len(array), buffers, array.null_count, array.offset, [elements]
    )


def _bytes_as_list(array: pa.Array) -> pa.ListArray:
    validity, offsets, data = array.buffers()
    count = 0 if data is None else data.size
    values = np.frombuffer(data, np.uint8, count) if count else np.zeros(0, np.uint8)
    return pa.ListArray.from_buffers(
        pa.list_(pa.uint8()),
        len(array),
        [validity, offsets],
        array.null_count,
        array.offset,
        [pa.array(values)],
    )
