# SPDX-License-Identifier: Apache-2.0
"""``gap``: SEQUENCE_GAP where numbers of a sequence are missing before a row (spec 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rows import Mask, Rows
from thadam_ros.transforms.state import Index, fold_keys, record_keys, row_keys
from thadam_ros.transforms.stateful import Stateful
from thadam_ros.transforms.step import Step, StepContext, stable_hash

PUBLISHER_SEQUENCE = "publisher_sequence"
_NUMBERS = ("int", "long")


@dataclass(frozen=True)
class Gap:
    """Plan of a gap step.

    ``publisher_sequence`` and pointers are watched per topic and publisher over all records that
    arrived, rejected and deduplicated ones included: a message that arrived is no gap. A column
    is watched per topic and ``key`` over the rows that are still alive.
    """

    name: str
    by: str
    key: tuple[str, ...]
    keys_max: int
    state_hash: str

    @classmethod
    def plan(cls, name: str, options: Mapping[str, object], context: StepContext) -> Gap | None:
        """Check ``by`` (``publisher_sequence``, a pointer or a column) and ``key``."""
        by = str(options.get("by") or PUBLISHER_SEQUENCE)
        key = column_names(options.get("key"))
        known = context.known("key", key)
        if by.startswith("/"):
            sentence = context.fetch(by)
            if sentence:
                context.problem("by", by, sentence)
                return None
        elif by != PUBLISHER_SEQUENCE:
            if not context.known("by", [by]):
                return None
            if context.columns[by].name not in _NUMBERS:
                context.problem("by", by, f"is {context.columns[by]}, no whole number.")
                return None
        if key and (by == PUBLISHER_SEQUENCE or by.startswith("/")):
            context.problem("key", list(key), "needs `by` to be a column.")
            return None
        state_hash = stable_hash("gap", by, key)
        return cls(name, by, key, context.limits.max_dedup_keys, state_hash) if known else None

    def build(self) -> Step:
        """Return a step with fresh state."""
        return GapStep(self)


class GapStep(Stateful):
    """State per key: the last number (the highest one of a publisher)."""

    def __init__(self, plan: Gap) -> None:
        super().__init__(plan.keys_max)
        self._plan = plan

    def apply(self, rows: Rows) -> None:
        """Flag every row of a record before which numbers are missing."""
        by = self._plan.by
        if by == PUBLISHER_SEQUENCE:
            numbers = rows.group.sequence.astype(np.int64, copy=False)
            missing = self._missing(rows, numbers, np.flatnonzero(numbers >= 0), highest=True)
            missing = rows.of_records(missing)
        elif by.startswith("/"):
            values = rows.record_values[by]
            valid = np.ones(len(values.data), np.bool_) if values.valid is None else values.valid
            numbers = values.data.astype(np.int64, copy=False)
            missing = self._missing(rows, numbers, np.flatnonzero(valid), highest=False)
            missing = rows.of_records(missing)
        else:
            column = rows.values(by)
            usable = rows.alive if column.valid is None else rows.alive & column.valid
            numbers = column.data.astype(np.int64, copy=False)
            missing = self._missing(rows, numbers, np.flatnonzero(usable), highest=False)
        rows.flag(missing, QualityFlag.SEQUENCE_GAP, f"SEQUENCE_GAP: {by} has a gap before this")

    def _missing(self, rows: Rows, numbers: Index, usable: Index, *, highest: bool) -> Mask:
        missing = np.zeros(len(numbers), np.bool_)

        def fold(old: tuple[int, ...] | None, part: Index) -> tuple[int, ...]:
            values = numbers[part]
            before = np.concatenate((values[:1] if old is None else old, values[:-1]))
            if highest:
                # Middleware numbers only grow; a lower one is a redelivery or a late datagram.
                before = np.maximum.accumulate(before)
            missing[part] = (values > before) & (values - 1 != before)
            return (int(max(before[-1], values[-1]) if highest else values[-1]),)

        by_column = self._plan.by != PUBLISHER_SEQUENCE and not self._plan.by.startswith("/")
        keys = row_keys(rows, self._plan.key) if by_column else record_keys(rows)
        fold_keys(keys, self._state, usable, fold)
        return missing


def column_names(value: object) -> tuple[str, ...]:
    """Return an option that lists columns."""
    if isinstance(value, str):
        return (value,)
    return tuple(str(name) for name in value) if isinstance(value, Sequence) else ()
