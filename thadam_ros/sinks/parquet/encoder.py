# SPDX-License-Identifier: Apache-2.0
"""Rows to Parquet bytes: row groups, encodings, statistics, lineage (spec 5.1, 4.4).

Same batches in, same bytes out (for one pyarrow version): encodings are chosen from the rows,
never from time or chance. Rows keep their order.

The settings are measured, see docs/parquet.md: hashing every value for a dictionary costs four
times all the rest, so a dictionary is used where a sample of the column says that it pays;
integers without one are delta-encoded; event ids are hashes, so they are neither compressed nor
given statistics.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Key of the lineage JSON in a file's key-value metadata.
LINEAGE_KEY = "thadam.lineage"

#: Rows of a row group at most; fewer when rows are wide.
ROW_GROUP_ROWS_MAX = 1 << 17

#: In-memory bytes of a row group at most, whatever its rows.
ROW_GROUP_BYTES_MAX = 64 << 20

#: Chunks smaller than this on average are copied together: the writer's cost per chunk and
#: column is higher than that of the copy.
_CHUNK_ROWS_MIN = 16_384

#: Values looked at to decide about a dictionary, spread evenly over the column.
_SAMPLE_VALUES = 4096

#: Chunks looked at to take them from.
_SAMPLE_CHUNKS = 8

#: A dictionary pays when it has at most a quarter as many entries as there are values.
_VALUES_PER_ENTRY_MIN = 4

_ZSTD_LEVEL = 1

#: Columns whose values are hashes.
_INCOMPRESSIBLE = frozenset({"_event_id"})

# A page is closed by its size alone: pages of 20 000 rows (the default of newer versions) cost
# 5 % of size and time in columns that hardly take any space. Older versions have no such limit.
_PAGE_OPTIONS: dict[str, object] = (
    {"max_rows_per_page": ROW_GROUP_ROWS_MAX}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters
    else {}
)


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """One whole Parquet file in memory.

    Attributes:
        content: A ``pyarrow.Buffer``.
        row_count: Rows in it.
    """

    content: pa.Buffer
    row_count: int


class ParquetEncoder:
    """Encodes units of one dataset; holds no state between calls.

    Args:
        schema: Columns in order, with field ids in each field's metadata.
        rows_max: Rows of a file at most (``rotation.max_rows``).
        bytes_max: A file is closed before the row group that would exceed this
            (``rotation.max_bytes``); a single row may exceed it.
    """

    def __init__(self, schema: pa.Schema, *, rows_max: int, bytes_max: int) -> None:
        self._schema = schema
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def encode(
        self, batches: Sequence[pa.RecordBatch], lineage: Mapping[str, object]
    ) -> Iterator[EncodedFile]:
        """Yield the files that hold these rows, in order; none when there are no rows.

        Lineage gains ``rows`` and ``bytes`` (pages, without the footer) of the file itself and
        ``part``, counting from 0 over the files of this call.

        Raises:
            ValueError: A batch has other columns than the schema.
        """
        table = self._table(batches)
        if not table.num_rows:
            return
        options = self._options(table)
        group_rows = self._group_rows(table)
        start = 0
        part = 0
        while start < table.num_rows:
            encoded = self._encode_file(table, start, group_rows, options, lineage, part)
            yield encoded
            start += encoded.row_count
            part += 1

    def _table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        if not batches:
            return self._schema.empty_table()
        table = pa.Table.from_batches(batches)
        if not table.schema.equals(self._schema, check_metadata=False):
            raise ValueError(
                f"rows have columns\n{table.schema.to_string(show_field_metadata=False)}\n"
                f"the dataset declares\n{self._schema.to_string(show_field_metadata=False)}"
            )
        # The batches' metadata may differ from the schema's, which carries the field ids.
        table = pa.Table.from_arrays(table.columns, schema=self._schema)
        # Chunks with different dictionaries would make the writer fall back to plain values.
        return table.unify_dictionaries() if len(batches) > 1 else table

    def _group_rows(self, table: pa.Table) -> int:
        row_bytes = max(1, int(table.get_total_buffer_size()) // int(table.num_rows))
        by_bytes = min(ROW_GROUP_BYTES_MAX, self._bytes_max) // row_bytes
        return max(1, min(ROW_GROUP_ROWS_MAX, self._rows_max, by_bytes))

    def _encode_file(
        self,
        table: pa.Table,
        start: int,
        group_rows: int,
        options: Mapping[str, object],
        lineage: Mapping[str, object],
        part: int,
    ) -> EncodedFile:
        stream = pa.BufferOutputStream()
        rows_end = min(table.num_rows, start + self._rows_max)
        row = start
        largest_group = 0
        with pq.ParquetWriter(stream, self._schema, **options) as writer:
            while row < rows_end and (
                row == start or stream.tell() + largest_group <= self._bytes_max
            ):
                before = stream.tell()
                count = min(group_rows, rows_end - row)
                group = table.slice(row, count)
                if group.column(0).num_chunks > count // _CHUNK_ROWS_MIN + 1:
                    group = group.combine_chunks()
                writer.write_table(group, row_group_size=count)
                largest_group = max(largest_group, stream.tell() - before)
                row += count
            facts = {"rows": row - start, "bytes": stream.tell(), "part": part}
            document = orjson.dumps({**lineage, **facts}, option=orjson.OPT_SORT_KEYS)
            writer.add_key_value_metadata({LINEAGE_KEY: document.decode()})
        return EncodedFile(stream.getvalue(), row - start)

    def _options(self, table: pa.Table) -> dict[str, object]:
        dictionary: list[str] = []
        encodings: dict[str, str] = {}
        compression: dict[str, str] = {}
        statistics: list[str] = []
        for field, column in zip(self._schema, table.columns, strict=True):
            hashes = field.name in _INCOMPRESSIBLE
            for path, sample in _leaf_samples(field.name, column):
                compression[path] = "none" if hashes else "zstd"
                if hashes:
                    continue
                statistics.append(path)
                if _dictionary_pays(sample):
                    dictionary.append(path)
                elif pa.types.is_integer(sample.type) or pa.types.is_temporal(sample.type):
                    encodings[path] = "DELTA_BINARY_PACKED"
        return {
            "use_dictionary": dictionary or False,
            "column_encoding": encodings or None,
            "compression": compression,
            "compression_level": {p: _ZSTD_LEVEL for p, c in compression.items() if c == "zstd"},
            "write_statistics": statistics or False,
            "version": "2.6",
            **_PAGE_OPTIONS,
        }


def _leaf_samples(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """Yield (Parquet column path, some of its values) of every leaf of a column.

    The values are spread over the column, not its first ones: what drifts slowly looks constant
    at the start.
    """
    step = max(1, -(-column.num_chunks // _SAMPLE_CHUNKS))
    samples: dict[str, list[pa.Array]] = {}
    for index in range(0, column.num_chunks, step):
        for path, values in _leaves(name, column.chunk(index)):
            samples.setdefault(path, []).append(values)
    for path, parts in samples.items():
        if _never_sampled(parts[0].type):
            yield path, parts[0]
            continue
        wanted = _SAMPLE_VALUES // len(parts)
        taken = [_spread(values, wanted) for values in parts]
        yield path, taken[0] if len(taken) == 1 else pa.concat_arrays(taken)


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(index).name}", values.field(index))
    else:
        yield path, values


def _spread(values: pa.Array, wanted: int) -> pa.Array:
    """Take every k-th value so that about ``wanted`` come back."""
    step = len(values) // wanted
    if step <= 1:
        return values
    return values.take(pa.array(np.arange(0, step * wanted, step)))


def _never_sampled(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_dictionary(kind)
        or pa.types.is_null(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _dictionary_pays(sample: pa.Array) -> bool:
    """Whether few enough distinct values stand in the sample of a leaf."""
    if _never_sampled(sample.type):
        return bool(pa.types.is_dictionary(sample.type) or pa.types.is_null(sample.type))
    return len(sample) == 0 or _distinct(sample) * _VALUES_PER_ENTRY_MIN <= len(sample)


def _distinct(values: pa.Array) -> int:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        # Sorting the bare numbers takes a quarter of the time of a hash table of Arrow values.
        numbers = values.drop_null().view(f"int{kind.bit_width}").to_numpy()
        ordered = np.sort(numbers)
        return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(ordered))
    return int(pc.count_distinct(values, mode="all").as_py())
