# SPDX-License-Identifier: Apache-2.0
"""``stale``: STALE where a value is older than its freshness bound (spec 3.2, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.gap import column_names
from thadam_ros.transforms.rows import Mask, Rows
from thadam_ros.transforms.state import Index, fold_keys, row_keys
from thadam_ros.transforms.stateful import Stateful
from thadam_ros.transforms.step import Step, StepContext, stable_hash

_NO_TIME = -(2**63)


@dataclass(frozen=True)
class Stale:
    """Plan of a stale step: no value may be older than ``after`` ns, per topic and ``key``.

    A living row is STALE when

    * it arrives more than ``after`` past its own event time (domain ``utc`` or corrected),
    * it repeats a source time that first arrived more than ``after`` ago (any domain), or
    * it ends a pause: the row before it arrived more than ``after`` ago.
    """

    name: str
    after_ns: int
    key: tuple[str, ...]
    keys_max: int
    state_hash: str

    @classmethod
    def plan(cls, name: str, options: Mapping[str, object], context: StepContext) -> Stale | None:
        """Check ``after`` (ns) and ``key``."""
        after, key = options.get("after"), column_names(options.get("key"))
        if not isinstance(after, int) or after <= 0:
            context.problem("after", after, "must be a duration such as 2s.")
            return None
        if not context.known("key", key):
            return None
        state_hash = stable_hash("stale", after, key, context.time_hash)
        return cls(name, after, key, context.limits.max_dedup_keys, state_hash)

    def build(self) -> Step:
        """Return a step with fresh state."""
        return StaleStep(self)


class StaleStep(Stateful):
    """State per key: last ingest time, last source time, when that one arrived first (ns)."""

    def __init__(self, plan: Stale) -> None:
        super().__init__(plan.keys_max)
        self._plan = plan

    def apply(self, rows: Rows) -> None:
        """Flag."""
        after = self._plan.after_ns
        ingest = rows.values("_ingest_time").data.astype(np.int64, copy=False)
        old = self._too_old(rows, ingest)
        source = rows.values("_source_time")
        times = source.data.astype(np.int64, copy=False)
        if source.valid is not None:
            times = np.where(source.valid, times, _NO_TIME)

        def fold(state: tuple[int, ...] | None, part: Index) -> tuple[int, ...]:
            arrived, stamped = ingest[part], times[part]
            last, stamp, first = state or (int(arrived[0]), int(stamped[0]), int(arrived[0]))
            pause = arrived - np.concatenate(([last], arrived[:-1])) > after
            fresh = stamped != np.concatenate(([stamp], stamped[:-1]))
            # When each run of equal stamps began: the index of its first row, or the state's.
            begin = np.maximum.accumulate(np.where(fresh, np.arange(len(part)), -1))
            since = np.where(begin < 0, first, arrived[np.maximum(begin, 0)])
            repeated = (arrived - since > after) & (stamped != _NO_TIME)
            old[part] |= pause | repeated
            return (int(arrived[-1]), int(stamped[-1]), int(since[-1]))

        living = np.flatnonzero(rows.alive)
        fold_keys(row_keys(rows, self._plan.key), self._state, living, fold)
        rows.flag(old, QualityFlag.STALE, f"STALE: older than {after / 1e9:g} s")

    def _too_old(self, rows: Rows, ingest: Index) -> Mask:
        event = rows.values("_event_time")
        old = ingest - event.data.astype(np.int64, copy=False) > self._plan.after_ns
        return old if event.valid is None else old & event.valid
