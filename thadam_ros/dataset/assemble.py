# SPDX-License-Identifier: Apache-2.0
"""Finished rows into a record batch: envelope, identity and columns in their Arrow types."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.dataset.event_id import Digests
from thadam_ros.dataset.plan import DatasetPlan
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rows import Mask, Rows, Values, quality_status

T = TypeVar("T", bound=np.generic)
_TICK_NS = {"ns": 1, "us": 1_000}


def assemble(
    rows: Rows, plan: DatasetPlan, schema: pa.Schema, ids: Digests, timestamp_unit: str
) -> pa.RecordBatch:
    """Return the living rows as a batch of ``schema``, in WAL order.

    Args:
        ids: uint8[n, 16] of all rows.
    """
    index = None if rows.alive.all() else np.flatnonzero(rows.alive)
    n = len(rows) if index is None else len(index)
    tick = _TICK_NS[timestamp_unit]
    group = rows.group

    def pick(values: npt.NDArray[T]) -> npt.NDArray[T]:
        return values if index is None else values[index]

    def record(values: npt.NDArray[T]) -> npt.NDArray[T]:
        return np.array(pick(rows.of_records(values)))  # a copy, never a view of the log

    def number(values: Values, kind: pa.DataType) -> pa.Array:
        valid = None if values.valid is None else pick(values.valid)
        return as_arrow(pick(values.data), valid, kind, tick)

    taken = None if index is None else pa.array(index)
    reasons = rows.reasons()
    flags = pick(rows.flags)
    domain = plan.time.domain if plan.time else "unknown"
    columns: dict[str, pa.Array] = {
        "_event_id": _binary16(pick(ids)),
        "_ingest_time": number(rows.values("_ingest_time"), schema.field("_ingest_time").type),
        "_source_time": number(rows.values("_source_time"), pa.int64()),
        "_event_time": number(rows.values("_event_time"), schema.field("_event_time").type),
        "_time_domain": _label(np.zeros(n, np.int32), [domain]),
        "_quality_status": pa.array(quality_status(flags)),
        "_quality_flags": pa.array(flags),
        "_quality_reason": reasons if taken is None else reasons.take(taken),
        "_clock_synced": pa.array(record(group.clock_synced)),
        "_wal_epoch": pa.array(record(group.wal_epoch)),
        "_wal_pos": pa.array(record(group.wal_pos)),
    }
    if rows.sample is not None:
        columns["sample_idx"] = pa.array(pick(rows.sample))
    for field in plan.fields:
        kind = schema.field(field.name).type
        column = rows.columns.get(field.name)
        if column is None:
            columns[field.name] = number(rows.values(field.name), kind)
        else:
            columns[field.name] = _typed(column if taken is None else column.take(taken), kind)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def count_flags(flags: npt.NDArray[np.int32]) -> dict[str, int]:
    """Return flag name -> number of rows that carry it, absent when none does."""
    if not flags.any():
        return {}
    counts = {str(f.name): int(np.count_nonzero(flags & int(f))) for f in QualityFlag}
    return {name: count for name, count in counts.items() if count}


def topic_labels(rows: Rows, texts: list[str | None]) -> pa.DictionaryArray:
    """Return a label column from one text per declaration of the group."""
    distinct = list(dict.fromkeys(text for text in texts if text is not None))
    codes = np.array([-1 if t is None else distinct.index(t) for t in texts], np.int32)
    return _label(codes[rows.of_records(rows.group.topic)], distinct)


def as_label(column: pa.Array) -> pa.DictionaryArray:
    """Return a column of texts or numbers as labels."""
    texts = column.cast(pa.string()) if not pa.types.is_string(column.type) else column
    return texts.dictionary_encode()


def as_arrow(
    data: npt.NDArray[np.generic], valid: Mask | None, kind: pa.DataType, tick_ns: int = 1
) -> pa.Array:
    """Return numbers as an Arrow array of ``kind``; times come as ns and leave floored."""
    mask = None if valid is None or valid.all() else ~valid
    if pa.types.is_timestamp(kind):
        ticks = data if tick_ns == 1 else data // np.int64(tick_ns)
        return pa.array(ticks, pa.int64(), mask=mask).view(kind)
    return pa.array(data, kind, mask=mask)


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give lists the element field (name, id) of the schema; values are the same."""
    if not pa.types.is_list(kind):
        return column
    elements = column.values
    inner = kind.value_type
    if pa.types.is_timestamp(inner):
        elements = elements.cast(inner)
    return pa.ListArray.from_buffers(
        kind, len(column), column.buffers()[:2], column.null_count, column.offset, [elements]
    )


def _binary16(ids: npt.NDArray[np.generic]) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(ids))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), [None, buffer])


def _label(codes: npt.NDArray[np.int32], texts: list[str]) -> pa.DictionaryArray:
    absent = codes < 0
    indices = pa.array(codes, mask=absent if absent.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
