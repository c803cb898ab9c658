# SPDX-License-Identifier: Apache-2.0
"""Rows without messages, for steps on their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from thadam_ros.config.schema import LimitsConfig
from thadam_ros.dataset.types import ColumnType, parse_type
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.testing.groups import START_NS, make_group
from thadam_ros.transforms.rows import Rows, Values
from thadam_ros.transforms.step import StepContext

ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "list<double>": pa.list_(pa.float64()),
}
TIMES = {
    "_ingest_time": ColumnType("timestamp"),
    "_source_time": ColumnType("long"),
    "_event_time": ColumnType("timestamp"),
    "_quality_flags": ColumnType("int"),
}


def rows_with(
    columns: Mapping[str, tuple[str, Sequence[Any]]], n: int | None = None, **group: Any
) -> Rows:
    """Return rows with ``name -> (type, values)``; ``group`` goes to ``make_group``."""
    count = n if n is not None else len(next(iter(columns.values()))[1])
    declarations = group.pop("declarations", TopicDeclaration("/t", type_name="t/msg/T"))
    records = make_group(declarations, [b""] * count, **group)
    rows = Rows(records, np.ones(count, np.bool_))
    rows.set("_ingest_time", Values(records.ingest_time_ns, None))
    for name, (kind, values) in columns.items():
        rows.set(name, pa.array(values, ARROW[kind]))
    return rows


def set_times(rows: Rows, stamps: Sequence[int | None], *, utc: bool = True) -> None:
    """Set source and event time, ns; None is missing."""
    data = np.array([START_NS if s is None else s for s in stamps], np.int64)
    valid = np.array([s is not None for s in stamps], np.bool_)
    rows.set("_source_time", Values(data, valid))
    rows.set("_event_time", Values(data, valid if utc else np.zeros(len(data), np.bool_)))


def context(
    columns: Mapping[str, str] | None = None, limits: LimitsConfig | None = None
) -> StepContext:
    """Return a planning context for these columns and the times."""
    declared = {name: parse_type(kind) for name, kind in (columns or {}).items()}
    known = {name: kind for name, kind in declared.items() if kind is not None}
    return StepContext(
        path="transforms.step",
        columns={**TIMES, **known},
        settable=frozenset(known),
        limits=limits or LimitsConfig(),
        fetch=lambda pointer: None,
        has_time=True,
    )
