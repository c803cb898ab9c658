# SPDX-License-Identifier: Apache-2.0
"""The clocks of a row: source time, event time, domain, skew (spec 3.1, seed *three clocks*)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from thadam_ros.dataset.convert import SECOND_NS, number_as_time, time_structure
from thadam_ros.dataset.message import Shape
from thadam_ros.dataset.plan import PlannedTime
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rows import Rows, Values, to_values

_INT64_LIMIT = float(2**63 - 1024)


def source_time(plan: PlannedTime, parts: Sequence[pa.Array]) -> Values:
    """Return what the device reported, int64 ns; not valid where it reported no usable time.

    Zero means "never set" in ROS. A negative time, ``nanosec >= 1e9``, NaN, infinities and numbers
    beyond 64 bits of ns name no instant either.
    """
    if plan.source.leaf.shape is Shape.TIME:
        converted = time_structure(parts)
        seconds = to_values(parts[0]).data
        assert isinstance(converted.column, Values)
        ns, valid = converted.column.data, converted.column.valid
        usable = (ns != 0) & (seconds >= 0)
    else:
        assert plan.tick_ns is not None
        converted = number_as_time(to_values(parts[0]), plan.tick_ns)
        assert isinstance(converted.column, Values)
        ns, valid = converted.column.data, converted.column.valid
        usable = ns > 0
        if converted.out_of_range is not None:
            usable &= ~converted.out_of_range
    return Values(ns, usable if valid is None else usable & valid)


def apply_time(rows: Rows, plan: PlannedTime | None, source: Values | None) -> None:
    """Set ``_source_time`` and ``_event_time`` (int64 ns) and flag what is wrong with them."""
    n = len(rows)
    nothing = Values(np.zeros(n, np.int64), np.zeros(n, np.bool_))
    rows.set("_source_time", nothing if source is None else source)
    rows.set("_event_time", nothing)
    if plan is None or source is None or source.valid is None:
        return
    pointer = plan.source.pointer
    missing = ~source.valid
    if missing.any():
        rows.flag(missing, QualityFlag.MISSING_TIME, f"MISSING_TIME: {pointer} holds no time")
    else:
        source = Values(source.data, None)
        rows.set("_source_time", source)
    event = _event_time(rows, plan, source)
    if event is None:
        return
    rows.set("_event_time", event)
    ingest = rows.values("_ingest_time").data.astype(np.int64, copy=False)
    with np.errstate(over="ignore"):
        apart = np.abs(event.data.astype(np.int64, copy=False) - ingest)
    # Times near both ends of 64 bits lie further apart than 64 bits can say.
    skewed = (apart > plan.max_skew_ns) | (apart < 0)
    if event.valid is not None:
        skewed &= event.valid
    text = f"CLOCK_SKEW: {pointer} is more than {plan.max_skew_ns / SECOND_NS:g} s from ingest"
    rows.flag(skewed, QualityFlag.CLOCK_SKEW, text)


def _event_time(rows: Rows, plan: PlannedTime, source: Values) -> Values | None:
    offset = plan.correct_offset_ns
    if offset is None:
        return source if plan.domain == "utc" else None
    data = source.data.astype(np.int64, copy=False)
    fits = np.abs(data.astype(np.float64) + offset) < _INT64_LIMIT
    valid = fits if source.valid is None else fits & source.valid
    # The correction is documented in the flags; a reason is kept for what is wrong.
    rows.flags[valid & rows.alive] |= int(QualityFlag.TIME_CORRECTED)
    return Values(np.where(fits, data, 0) + (offset if fits.any() else 0), valid)
