# SPDX-License-Identifier: Apache-2.0
"""The ``_quarantine`` dataset has fixed columns in a fixed order."""

from __future__ import annotations

import pyarrow as pa

from thadam_ros.quarantine.schema import QUARANTINE_SCHEMA, rejects_to_batch
from thadam_ros.sinks.parquet.encoder import ParquetEncoder

from .reject_fixtures import reject


def test_columns_stand_in_the_order_of_the_specification_with_stable_ids() -> None:
    """Readers may rely on names, order and ids."""
    assert QUARANTINE_SCHEMA.names == [
        "_wal_epoch",
        "_wal_pos",
        "_ingest_time",
        "source_id",
        "topic",
        "error_domain",
        "error_code",
        "reason",
        "raw",
        "raw_truncated",
        "dataset",
        "record_index",
        "sample_idx",
        "encoding",
        "type_name",
        "type_hash",
        "clock_synced",
        "row_hash",
    ]
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in QUARANTINE_SCHEMA]
    assert ids == list(range(1, 19))
    assert not any(pa.types.is_unsigned_integer(field.type) for field in QUARANTINE_SCHEMA)


def test_rejects_become_rows() -> None:
    """Times in microseconds, no sample means null, raw bytes as they are."""
    batch = rejects_to_batch([reject(1), reject(2, sample_idx=0, raw=b"\0\xff", topic="/b")])
    assert batch.schema.equals(QUARANTINE_SCHEMA, check_metadata=True)
    assert batch["_wal_pos"].to_pylist() == [1, 2]
    assert batch["sample_idx"].to_pylist() == [None, 0]
    assert batch["raw"].to_pylist()[1] == b"\0\xff"
    assert batch["topic"].to_pylist() == ["/r1/imu/data", "/b"]
    assert batch["_ingest_time"].cast(pa.int64()).to_pylist()[0] == 1_764_360_000_123_456
    assert rejects_to_batch([]).num_rows == 0


def test_the_parquet_encoder_takes_them() -> None:
    """Sealing needs nothing else."""
    encoder = ParquetEncoder(QUARANTINE_SCHEMA, rows_max=1000, bytes_max=1 << 20)
    [file] = encoder.encode([rejects_to_batch([reject(i) for i in range(50)])], {})
    assert file.row_count == 50
