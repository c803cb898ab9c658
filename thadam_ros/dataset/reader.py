# SPDX-License-Identifier: Apache-2.0
"""Sources of one group as columns of its rows: decoded, exploded, converted, spread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thadam_ros.dataset.assemble import as_label
from thadam_ros.dataset.binding import Binding
from thadam_ros.dataset.convert import Converted, convert
from thadam_ros.dataset.message import Leaf
from thadam_ros.dataset.plan import PlannedField, Source
from thadam_ros.decode.columns import DecodedColumns
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rows import Mask, Rows, Values


def usable(converted: Converted) -> Values:
    """Return numbers with those that do not fit taken out."""
    column, bad = converted.column, converted.out_of_range
    assert isinstance(column, Values)
    if bad is None:
        return column
    return Values(column.data, ~bad if column.valid is None else column.valid & ~bad)


def spread_values(values: Values, rows: Rows) -> Values:
    """Return values of records as values of rows."""
    valid = None if values.valid is None else rows.of_records(values.valid)
    return Values(rows.of_records(values.data), valid)


class Reader:
    """Reads sources of one group into rows."""

    def __init__(
        self, binding: Binding, decoded: DecodedColumns, rows: Rows, elements: dict[str, pa.Array]
    ) -> None:
        self._binding = binding
        self._decoded = decoded
        self._rows = rows
        self._elements = elements

    def leaf(self, source: Source) -> Leaf:
        """Return what the source is in the definition that came with the data."""
        return self._binding.leaves[source]

    def message(self, source: Source) -> list[pa.Array]:
        """Return what the decoder gave for a field of the message, one value per record."""
        return [self._decoded.columns[pointer] for pointer in source.leaf.parts]

    def elements(self, source: Source) -> list[pa.Array]:
        """Return what the decoder gave for a field of the element, one value per row."""
        assert source.array is not None
        array = self._elements[source.array]
        found = []
        for pointer in source.leaf.parts:
            names = [name for name in pointer.split("/") if name]
            found.append(pc.struct_field(array, names) if names else array)
        return found

    def column(self, field: PlannedField) -> None:
        """Put a column into the rows; what cannot be held becomes a reject."""
        source, rows = field.source, self._rows
        assert source is not None
        leaf = self.leaf(source)
        per_record = source.array is None and rows.record is not None
        parts = self.message(source) if source.array is None else self.elements(source)
        if field.identity:
            labels = as_label(parts[0])
            rows.set(field.name, labels.take(pa.array(rows.record)) if per_record else labels)
            return
        converted = convert(field, leaf, parts)
        column = converted.column
        if isinstance(column, Values):
            rows.set(field.name, spread_values(column, rows) if per_record else column)
        else:
            rows.set(field.name, column.take(pa.array(rows.record)) if per_record else column)

        def spread(mask: Mask) -> Mask:
            return rows.of_records(mask) if per_record else mask

        if converted.out_of_range is not None:
            code = "schema.time" if field.tick_ns else "schema.integer_range"
            reason = f"{field.name} does not fit {field.type}"
            rows.reject(spread(converted.out_of_range), "schema", code, reason)
        if converted.unusable is not None:
            reason = f"INVALID: {field.name} has a nanosec of a second or more"
            rows.flag(spread(converted.unusable), QualityFlag.INVALID, reason)
        if field.required:
            self._require(field)

    def _require(self, field: PlannedField) -> None:
        rows = self._rows
        column = rows.columns.get(field.name)
        absent: npt.NDArray[np.bool_] | None = None
        if column is None:
            valid = rows.values(field.name).valid
            absent = None if valid is None else ~valid
        elif column.null_count:
            absent = column.is_null().to_numpy(zero_copy_only=False)
        if absent is not None:
            reason = f"{field.name} is required"
            rows.reject(absent, "schema", "schema.field_missing", reason)
