# SPDX-License-Identifier: Apache-2.0
"""The envelope: columns every dataset carries, with field ids that never change (spec 3.1)."""

from __future__ import annotations

import re

import pyarrow as pa

from thadam_ros.dataset.types import field_id_metadata

#: name -> Parquet field id. Identity levels and declared fields start at FIRST_FIELD_ID.
ENVELOPE_IDS = {
    "_event_id": 1,
    "_ingest_time": 2,
    "_source_time": 3,
    "_event_time": 4,
    "_time_domain": 5,
    "_quality_status": 6,
    "_quality_flags": 7,
    "_quality_reason": 8,
    "_clock_synced": 9,
    "_wal_epoch": 10,
    "_wal_pos": 11,
    "sample_idx": 12,
}
FIRST_FIELD_ID = 100
COLUMN_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
SAMPLE_INDEX = "sample_idx"

#: Low-cardinality strings: time domains and identity levels.
LABEL_TYPE = pa.dictionary(pa.int32(), pa.string())

#: Null means "unknown" in these; all other envelope columns always have a value.
NULLABLE = frozenset({"_source_time", "_event_time", "_quality_reason"})


def envelope_types(timestamp_unit: str) -> dict[str, pa.DataType]:
    """Return the Arrow type of each envelope column, in column order.

    Args:
        timestamp_unit: ``us`` or ``ns``.
    """
    time = pa.timestamp(timestamp_unit, "UTC")
    return {
        "_event_id": pa.binary(16),
        "_ingest_time": time,
        "_source_time": pa.int64(),
        "_event_time": time,
        "_time_domain": LABEL_TYPE,
        "_quality_status": pa.int8(),
        "_quality_flags": pa.int32(),
        "_quality_reason": pa.string(),
        "_clock_synced": pa.bool_(),
        "_wal_epoch": pa.int64(),
        "_wal_pos": pa.int64(),
        SAMPLE_INDEX: pa.int32(),
    }


def envelope_fields(timestamp_unit: str, exploded: bool) -> list[pa.Field]:
    """Return the Arrow fields of the envelope; ``sample_idx`` only when ``exploded``."""
    return [
        pa.field(name, kind, name in NULLABLE, field_id_metadata(ENVELOPE_IDS[name]))
        for name, kind in envelope_types(timestamp_unit).items()
        if exploded or name != SAMPLE_INDEX
    ]
