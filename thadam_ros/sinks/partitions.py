# SPDX-License-Identifier: Apache-2.0
"""Which partition a row belongs to: dataset, hour of ingest time, clock synced? (spec 1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from thadam_ros.sinks.contract import PartitionKey

if TYPE_CHECKING:
    from thadam_ros.model.event import EventBatch

#: Ticks of an hour by timestamp unit.
_TICKS_PER_HOUR = {
    "s": 3_600,
    "ms": 3_600_000,
    "us": 3_600_000_000,
    "ns": 3_600_000_000_000,
}


def split_partitions(batch: EventBatch) -> list[tuple[PartitionKey, pa.RecordBatch]]:
    """Split rows by partition; row order is kept inside each, partitions come by first row.

    A batch that lies in one partition, which is nearly every batch, is returned as it is; rows
    that lie together are sliced without copying; only interleaved ones are gathered.

    Raises:
        KeyError: An envelope column is missing.
        ValueError: ``_ingest_time`` or ``_clock_synced`` holds a null.
    """
    rows = batch.rows
    if rows.num_rows == 0:
        return []
    times = rows.column("_ingest_time")
    synced_column = rows.column("_clock_synced")
    if times.null_count or synced_column.null_count:
        raise ValueError(f"dataset {batch.dataset}: _ingest_time and _clock_synced are never null")
    ticks = _TICKS_PER_HOUR[times.type.unit]
    values = np.frombuffer(times.buffers()[1], dtype=np.int64)[
        times.offset : times.offset + len(times)
    ]
    first_hour = int(values.min()) // ticks
    synced_count = synced_column.true_count
    if int(values.max()) // ticks == first_hour and synced_count in (0, len(rows)):
        return [(PartitionKey(batch.dataset, first_hour, synced_count > 0), rows)]
    # One integer per partition: the hour, then the sync state in the lowest bit.
    codes = (values // ticks) * 2 + synced_column.to_numpy(zero_copy_only=False)
    distinct, first_rows, counts = np.unique(codes, return_index=True, return_counts=True)
    parts: list[tuple[PartitionKey, pa.RecordBatch]] = []
    for index in np.argsort(first_rows, kind="stable"):
        code, start, count = int(distinct[index]), int(first_rows[index]), int(counts[index])
        key = PartitionKey(batch.dataset, code // 2, bool(code % 2))
        if codes[start + count - 1] == code and bool((codes[start : start + count] == code).all()):
            parts.append((key, rows.slice(start, count)))
        else:
            parts.append((key, rows.take(pa.array(np.flatnonzero(codes == code)))))
    return parts
