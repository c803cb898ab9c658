# SPDX-License-Identifier: Apache-2.0
"""Rows on their way through a dataset: columns, flags, reasons and who is still alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.model.message import RecordGroup
from thadam_ros.model.quality import BAD_FLAGS, NEUTRAL_FLAGS, QualityFlag, QualityStatus

Mask = npt.NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

_REASON_CHARS_MAX = 120
#: Arrow's own mapping (``to_pandas_dtype``) needs pandas installed.
_NUMPY: dict[pa.DataType, npt.DTypeLike] = {
    pa.int8(): np.int8,
    pa.uint8(): np.uint8,
    pa.int16(): np.int16,
    pa.uint16(): np.uint16,
    pa.int32(): np.int32,
    pa.uint32(): np.uint32,
    pa.int64(): np.int64,
    pa.uint64(): np.uint64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


@dataclass(frozen=True, slots=True)
class Values:
    """A column as NumPy sees it.

    Attributes:
        data: n values; null rows hold anything.
        valid: bool[n], or None when no row is null.
    """

    data: npt.NDArray[Any]
    valid: Mask | None


@dataclass(frozen=True, slots=True)
class RowReject:
    """Rows rejected by one rule: ``index`` int64[k] into the rows, ``reasons`` one or k."""

    index: npt.NDArray[np.int64]
    domain: str
    code: str
    reasons: Sequence[str]

    def reason(self, position: int) -> str:
        """Return the reason of the ``position``-th rejected row."""
        return self.reasons[position if len(self.reasons) > 1 else 0]


class Rows:
    """n rows made from the records of one group.

    Attributes:
        group: The records.
        record: int64[n] index of each row's record; None when row i is record i.
        sample: int32[n] element index; None without explode.
        columns: Column or pointer -> array of n values.
        alive: bool[n]; False once a row is rejected, dropped or was never decoded.
        flags: int32[n] quality flags.
        record_values: Pointer -> values of the *records*, for steps that watch what arrived.
        rejects: In the order in which rules rejected.
        dropped: bool[n] rows dropped by a filter.
    """

    def __init__(
        self,
        group: RecordGroup,
        alive: Mask,
        record: npt.NDArray[np.int64] | None = None,
        sample: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self.n = len(alive)
        self.group = group
        self.record = record
        self.sample = sample
        self.columns: dict[str, pa.Array] = {}
        self.record_values: dict[str, Values] = {}
        self.alive = alive
        self.flags = np.zeros(self.n, np.int32)
        self.dropped = np.zeros(self.n, np.bool_)
        self.rejects: list[RowReject] = []
        self._reason = np.zeros(self.n, np.int32)
        self._reasons: dict[str, int] = {}
        self._values: dict[str, Values] = {}

    def __len__(self) -> int:
        return self.n

    def of_records(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        """Return a column of the group's records spread over the rows."""
        return values if self.record is None else values[self.record]

    def set(self, name: str, column: pa.Array | Values) -> None:
        """Put or replace a column."""
        self._values.pop(name, None)
        if isinstance(column, Values):
            self._values[name] = column
            self.columns.pop(name, None)
        else:
            self.columns[name] = column

    def values(self, name: str) -> Values:
        """Return a number, boolean or timestamp column as NumPy values (timestamps as ns)."""
        if name == "_quality_flags":
            return Values(self.flags, None)
        if name == "_quality_status":
            return Values(quality_status(self.flags), None)
        found = self._values.get(name)
        if found is None:
            found = to_values(self.columns[name])
            self._values[name] = found
        return found

    def flag(self, where: Mask, flag: QualityFlag, reason: str) -> None:
        """Set ``flag`` on the living rows of ``where``; the first reason of a row stays."""
        where = where & self.alive
        if not where.any():
            return
        self.flags[where] |= int(flag)
        code = self._reasons.setdefault(_shorten(reason), len(self._reasons) + 1)
        self._reason[where & (self._reason == 0)] = code

    def reject(self, where: Mask, domain: str, code: str, reasons: str | Sequence[str]) -> None:
        """Turn the living rows of ``where`` into rejects.

        Args:
            reasons: One sentence for all of them, or one for each living row of ``where``.
        """
        index = np.flatnonzero(where & self.alive)
        if len(index) == 0:
            return
        texts = (reasons,) if isinstance(reasons, str) else reasons
        self.rejects.append(RowReject(index, domain, code, texts))
        self.alive[index] = False

    def drop(self, where: Mask) -> None:
        """Drop the living rows of ``where`` (a filter)."""
        where = where & self.alive
        self.dropped |= where
        self.alive &= ~where

    def reasons(self) -> pa.Array:
        """Return ``_quality_reason``, string[n], null where no flag was set."""
        if not self._reasons:
            return pa.nulls(self.n, pa.string())
        texts = pa.array(["", *self._reasons], pa.string())
        return texts.take(pa.array(self._reason, mask=self._reason == 0))


def to_values(column: pa.Array) -> Values:
    """Return a fixed-width column as NumPy values without copying where Arrow allows it."""
    valid: Mask | None = None
    if column.null_count:
        valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_boolean(column.type):
        filled = column.fill_null(False) if column.null_count else column
        return Values(filled.to_numpy(zero_copy_only=False), valid)
    kind = column.type
    if pa.types.is_timestamp(kind):
        kind = pa.int64()
        column = column.view(kind)
    dtype = _NUMPY[kind]
    start = column.offset
    buffer = column.buffers()[1]
    if buffer is None:
        return Values(np.zeros(len(column), dtype), valid)
    return Values(np.frombuffer(buffer, dtype, start + len(column))[start:], valid)


def quality_status(flags: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
    """Return ``_quality_status`` of flags: bad, uncertain or good."""
    status = np.zeros(len(flags), np.int8)
    if flags.any():
        status[(flags & ~int(NEUTRAL_FLAGS)) != 0] = QualityStatus.UNCERTAIN
        status[(flags & int(BAD_FLAGS)) != 0] = QualityStatus.BAD
    return status


def _shorten(reason: str) -> str:
    return reason if len(reason) <= _REASON_CHARS_MAX else reason[: _REASON_CHARS_MAX - 3] + "..."
