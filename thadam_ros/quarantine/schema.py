# SPDX-License-Identifier: Apache-2.0
"""Columns of the ``_quarantine`` dataset, in the order of spec 4.3."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from thadam_ros.model.event import Reject

#: Name of the dataset; no configured one can have it.
QUARANTINE_DATASET = "_quarantine"

_NAME = pa.dictionary(pa.int32(), pa.string())

_COLUMNS = (
    ("_wal_epoch", pa.int64(), False),
    ("_wal_pos", pa.int64(), False),
    ("_ingest_time", pa.timestamp("us", "UTC"), False),
    ("source_id", _NAME, False),
    ("topic", _NAME, False),
    ("error_domain", _NAME, False),
    ("error_code", _NAME, False),
    ("reason", pa.string(), False),
    ("raw", pa.binary(), False),
    ("raw_truncated", pa.bool_(), False),
    ("dataset", _NAME, False),
    ("record_index", pa.int32(), False),
    ("sample_idx", pa.int32(), True),
    ("encoding", _NAME, False),
    ("type_name", _NAME, False),
    ("type_hash", _NAME, False),
    ("clock_synced", pa.bool_(), False),
    ("row_hash", _NAME, False),
)

#: Field ids count from 1 in this order and are never reused. ``sample_idx`` is null for a reject
#: of a whole message.
QUARANTINE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind, nullable) in enumerate(_COLUMNS, 1)
    ]
)


def rejects_to_batch(rejects: Sequence[Reject]) -> pa.RecordBatch:
    """Return rejects as rows of :data:`QUARANTINE_SCHEMA`, in order."""
    values: dict[str, list[object]] = {name: [] for name, _, _ in _COLUMNS}
    for reject in rejects:
        for name, column in values.items():
            if name == "_ingest_time":
                column.append(reject.ingest_time_ns // 1000)
            elif name == "sample_idx":
                column.append(reject.sample_idx if reject.sample_idx >= 0 else None)
            else:
                column.append(getattr(reject, name.removeprefix("_")))
    arrays = [pa.array(values[name], type=kind) for name, kind, _ in _COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=QUARANTINE_SCHEMA)
