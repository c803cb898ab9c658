# SPDX-License-Identifier: Apache-2.0
"""``order``: OUT_OF_ORDER where a time runs backwards (spec 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.gap import column_names
from thadam_ros.transforms.rows import Rows
from thadam_ros.transforms.state import Index, fold_keys, row_keys
from thadam_ros.transforms.stateful import Stateful
from thadam_ros.transforms.step import Step, StepContext, stable_hash

#: A time that lies further back than this is a restarted clock, not a late message.
RESTART_NS = 60_000_000_000
#: Rows looked at together once a restart was seen, so that many restarts stay linear.
RESTART_WINDOW = 256
_NUMBERS = ("int", "long", "timestamp")


@dataclass(frozen=True)
class Order:
    """Plan of an order step: ``by`` must not run backwards per topic and ``key``.

    Rows whose time is skewed or missing are neither judged nor remembered: one stamp an hour
    ahead must not make an hour of good rows late. A time more than 60 s back is flagged once and
    becomes the new reference (a simulation that was reset, a device that rebooted).
    """

    name: str
    by: str
    key: tuple[str, ...]
    keys_max: int
    state_hash: str

    @classmethod
    def plan(cls, name: str, options: Mapping[str, object], context: StepContext) -> Order | None:
        """Check ``by`` (a time or whole number, default ``_source_time``) and ``key``."""
        by = str(options.get("by") or "_source_time")
        key = column_names(options.get("key"))
        if not (context.known("by", [by]) and context.known("key", key)):
            return None
        if context.columns[by].name not in _NUMBERS:
            context.problem("by", by, f"is {context.columns[by]}, no time or whole number.")
            return None
        if by in ("_source_time", "_event_time") and not context.has_time:
            context.problem("by", by, "is always null: the dataset declares no `time:`.")
            return None
        state_hash = stable_hash("order", by, key, context.time_hash)
        return cls(name, by, key, context.limits.max_dedup_keys, state_hash)

    def build(self) -> Step:
        """Return a step with fresh state."""
        return OrderStep(self)


class OrderStep(Stateful):
    """State per key: the latest time, ns."""

    def __init__(self, plan: Order) -> None:
        super().__init__(plan.keys_max)
        self._plan = plan

    def apply(self, rows: Rows) -> None:
        """Flag living rows that are earlier than one before them."""
        values = rows.values(self._plan.by)
        times = values.data.astype(np.int64, copy=False)
        usable = rows.alive & ((rows.flags & int(QualityFlag.CLOCK_SKEW)) == 0)
        if values.valid is not None:
            usable &= values.valid
        late = np.zeros(len(rows), np.bool_)

        def fold(old: tuple[int, ...] | None, part: Index) -> tuple[int, ...]:
            latest = int(times[part[0]]) if old is None else old[0]
            start, width = 0, len(part)
            while start < len(part):
                piece = times[part[start : start + width]]
                before = np.maximum.accumulate(np.concatenate(([latest], piece[:-1])))
                restarts = np.flatnonzero(before - piece > RESTART_NS)
                stop = int(restarts[0]) if len(restarts) else len(piece)
                late[part[start : start + stop]] = piece[:stop] < before[:stop]
                if stop == len(piece):
                    latest = int(max(before[-1], piece[-1]))
                    start += stop
                    continue
                late[part[start + stop]] = True
                latest = int(piece[stop])
                start, width = start + stop + 1, RESTART_WINDOW
            return (latest,)

        fold_keys(row_keys(rows, self._plan.key), self._state, np.flatnonzero(usable), fold)
        reason = f"OUT_OF_ORDER: {self._plan.by} is earlier than before"
        rows.flag(late, QualityFlag.OUT_OF_ORDER, reason)
