# SPDX-License-Identifier: Apache-2.0
"""What stands in a file: rows, field ids, encodings, statistics, lineage."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thadam_ros.sinks.parquet import encoder as encoder_module
from thadam_ros.sinks.parquet.encoder import LINEAGE_KEY, EncodedFile, ParquetEncoder

from .sink_fixtures import imu_rows, imu_schema


def _encode(
    batches: list[pa.RecordBatch],
    schema: pa.Schema | None = None,
    *,
    rows_max: int = 1_000_000,
    bytes_max: int = 128 << 20,
) -> list[EncodedFile]:
    chosen = schema if schema is not None else batches[0].schema
    encoder = ParquetEncoder(chosen, rows_max=rows_max, bytes_max=bytes_max)
    return list(encoder.encode(batches, {"software": "test"}))


def _read(file: EncodedFile) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(file.content)).read()


def _column(file: EncodedFile, path: str) -> pq.ColumnChunkMetaData:
    group = pq.ParquetFile(pa.BufferReader(file.content)).metadata.row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    return chunks[path]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_rows_read_back_equal_in_order(unit: str) -> None:
    """Values, order and types survive, timestamps in both units."""
    batches = [imu_rows(0, 100, unit=unit), imu_rows(100, 1, unit=unit)]
    [file] = _encode(batches, imu_schema(unit))
    read = _read(file)
    expected = pa.Table.from_batches(batches)
    assert read.schema.equals(expected.schema)
    assert read.to_pylist() == expected.to_pylist()
    assert file.row_count == 101


def test_equal_rows_give_equal_bytes() -> None:
    """However the rows are cut into batches of the same boundaries, and twice in a row."""
    first = _encode([imu_rows(0, 50), imu_rows(50, 60)])
    second = _encode([imu_rows(0, 50), imu_rows(50, 60)])
    assert first[0].content.equals(second[0].content)


def test_field_ids_come_from_the_declared_schema_not_from_the_batches() -> None:
    """Batches may have lost their metadata on the way."""
    rows = imu_rows(0, 10)
    bare = pa.RecordBatch.from_arrays(rows.columns, names=rows.schema.names)
    nullable = pa.schema([f.with_nullable(True) for f in imu_schema()])
    [file] = _encode([bare], nullable)
    schema = pq.ParquetFile(pa.BufferReader(file.content)).schema_arrow
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in schema] == list(range(1, len(schema) + 1))


def test_no_column_is_stored_unsigned() -> None:
    """Iceberg, Delta and BigQuery have no unsigned types."""
    [file] = _encode([imu_rows(0, 10)])
    schema = pq.ParquetFile(pa.BufferReader(file.content)).schema
    for index in range(len(schema)):
        assert "isSigned=false" not in str(schema.column(index).logical_type)


def test_dictionaries_of_different_batches_are_unified() -> None:
    """Different entries in different order still give one dictionary-encoded column chunk."""
    batches = [
        imu_rows(0, 20_000, robots=("r1", "r2")),
        imu_rows(20_000, 20_000, robots=("r3", "r2", "r1")),
        imu_rows(40_000, 20_000, robots=("only",)),
    ]
    [file] = _encode(batches)
    robots = _read(file)["robot"].to_pylist()
    assert robots == [value for batch in batches for value in batch["robot"].to_pylist()]
    # Two bits a value; had the writer fallen back to plain pages it would be six bytes.
    assert _column(file, "robot").total_uncompressed_size < len(robots)


def test_a_dictionary_is_used_where_values_repeat_and_nowhere_else() -> None:
    """Constants and quantised values get one, noise does not."""
    n = 20_000
    rng = np.random.default_rng(1)
    rows = pa.record_batch(
        {
            "constant": pa.array(np.zeros(n)),
            "quantised": pa.array(np.round(rng.normal(size=n), 1)),
            "noise": pa.array(rng.normal(size=n)),
            "counter": pa.array(np.arange(n)),
            "status": pa.array(rng.integers(0, 3, n)),
            "name": pa.array(rng.choice(["a", "b"], n)),
            "unique": pa.array([f"{i}" for i in range(n)]),
            "drift": pa.array(np.arange(n) // 2),
            "flag": pa.array(rng.integers(0, 2, n) > 0),
            "blob": pa.array([b"x"] * n, pa.binary()),
            "matrix": pa.array([[0.0, 1.0]] * n),
            "nothing": pa.nulls(n, pa.float64()),
            "pose": pa.array([{"x": 1.0, "y": float(i)} for i in range(n)]),
        }
    )
    [file] = _encode([rows])
    assert _read(file).to_pylist() == pa.Table.from_batches([rows]).to_pylist()
    metadata = pq.ParquetFile(pa.BufferReader(file.content)).metadata.row_group(0)
    encodings = {
        metadata.column(i).path_in_schema: metadata.column(i).encodings
        for i in range(metadata.num_columns)
    }
    with_dictionary = {path for path, used in encodings.items() if "RLE_DICTIONARY" in used}
    assert with_dictionary == {
        "constant",
        "quantised",
        "status",
        "name",
        "matrix.list.element",
        "nothing",
        "pose.x",
    }
    delta = {path for path, used in encodings.items() if "DELTA_BINARY_PACKED" in used}
    assert delta == {"counter", "drift"}


def test_event_ids_are_stored_raw_and_everything_else_is_zstd_with_statistics() -> None:
    """Hashes neither compress nor prune; the other columns do both."""
    [file] = _encode([imu_rows(0, 1000)])
    assert _column(file, "_event_id").compression == "UNCOMPRESSED"
    assert not _column(file, "_event_id").is_stats_set
    for path in ("_ingest_time", "temperature", "robot", "covariance.list.element", "frame_id"):
        assert _column(file, path).compression == "ZSTD"
        assert _column(file, path).is_stats_set
    assert _column(file, "_wal_pos").statistics.max == 999


def test_nan_and_infinity_do_not_mislead_statistics() -> None:
    """NaN is left out of minimum and maximum, infinities are values (spec 3.3)."""
    rows = pa.record_batch({"x": pa.array([1.0, math.nan, 3.0]), "y": [1.0, math.inf, -math.inf]})
    [file] = _encode([rows])
    x, y = _column(file, "x").statistics, _column(file, "y").statistics
    assert (x.min, x.max) == (1.0, 3.0)
    assert (y.min, y.max) == (-math.inf, math.inf)


def test_a_file_ends_before_the_row_group_that_would_exceed_max_bytes() -> None:
    """No file is larger than rotation.max_bytes plus its footer; no row is lost or doubled."""
    batch = imu_rows(0, 20_000, width=8)
    files = _encode([batch], bytes_max=300_000)
    assert len(files) > 3
    footer = 10_000
    assert all(file.content.size < 300_000 + footer for file in files)
    assert pa.concat_tables([_read(f) for f in files])["_wal_pos"].to_pylist() == list(
        range(20_000)
    )


def test_one_row_larger_than_max_bytes_is_a_file_of_its_own() -> None:
    """A limit on files is no limit on rows."""
    blobs = [np.random.default_rng(i).bytes(50_000) for i in range(3)]
    rows = pa.record_batch({"blob": pa.array(blobs, pa.binary())})
    files = _encode([rows], bytes_max=10_000)
    assert [file.row_count for file in files] == [1, 1, 1]
    assert [_read(file)["blob"][0].as_py() for file in files] == blobs


def test_row_groups_have_at_most_131_072_rows_and_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers hold a row group in memory; wide rows give shorter ones."""
    monkeypatch.setattr(encoder_module, "ROW_GROUP_BYTES_MAX", 1 << 20)
    narrow = pa.record_batch({"x": pa.array(np.zeros(300_000, np.int8))})
    [file] = _encode([narrow])
    metadata = pq.ParquetFile(pa.BufferReader(file.content)).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [
        131_072,
        131_072,
        37_856,
    ]
    wide = pa.record_batch({"x": pa.array([b"x" * 100_000] * 25, pa.binary())})
    [file] = _encode([wide])
    metadata = pq.ParquetFile(pa.BufferReader(file.content)).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [10, 10, 5]


def test_many_small_batches_give_the_same_rows_as_a_few() -> None:
    """Small chunks are copied together on the way; nothing else changes."""
    batches = [imu_rows(i * 7, 7) for i in range(2000)]
    [file] = _encode(batches)
    assert _read(file).equals(pa.Table.from_batches(batches).unify_dictionaries())


def test_lineage_stands_in_the_file_with_what_only_the_encoder_knows() -> None:
    """Rows, bytes of the pages and the part, beside what the caller said."""
    [file] = _encode([imu_rows(0, 10)])
    document = pq.ParquetFile(pa.BufferReader(file.content)).metadata.metadata
    lineage = orjson.loads(document[LINEAGE_KEY.encode()])
    assert lineage["software"] == "test"
    assert lineage["rows"] == 10
    assert lineage["part"] == 0
    assert 0 < lineage["bytes"] < file.content.size


def test_batches_with_other_columns_are_refused() -> None:
    """A pipeline that disagrees with its plan is a bug and must not reach a store."""
    with pytest.raises(ValueError, match="rows have columns"):
        _encode([pa.record_batch({"x": [1]})], imu_schema())
    with pytest.raises(ValueError, match=r"[Ss]chema"):
        _encode([imu_rows(0, 1), pa.record_batch({"x": [1]})], imu_schema())
