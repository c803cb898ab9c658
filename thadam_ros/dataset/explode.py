# SPDX-License-Identifier: Apache-2.0
"""``explode``: one message with an array becomes one row per element (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.dataset.plan import PlannedExplode
from thadam_ros.transforms.rows import Mask

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Exploded:
    """Rows of the messages that could be exploded.

    Attributes:
        record: int64[rows] index of each row's message.
        sample: int32[rows] element index.
        elements: Array pointer -> its elements, one per row (null where the array was empty).
        unequal: bool[n] messages whose parallel arrays differ in length.
        too_many: bool[n] messages with more elements than allowed.
    """

    record: Index
    sample: npt.NDArray[np.int32]
    unequal: Mask
    too_many: Mask
    elements: dict[str, pa.Array] = field(default_factory=dict)


def explode(
    plan: PlannedExplode, columns: Mapping[str, pa.Array], usable: Mask, explode_max: int
) -> Exploded:
    """Explode n messages.

    Args:
        columns: Pointer -> list array of n.
        usable: bool[n], messages to explode; others give no row.
    """
    arrays = {pointer: columns[pointer] for pointer in plan.arrays}
    lengths = {pointer: _lengths(array) for pointer, array in arrays.items()}
    length = np.maximum.reduce(list(lengths.values()))
    unequal = np.zeros(len(usable), np.bool_)
    for own in lengths.values():
        differs = own != length
        if plan.empty_as_null:
            differs &= own != 0
        unequal |= differs
    unequal &= usable
    too_many = usable & ~unequal & (length > explode_max)
    kept = np.flatnonzero(usable & ~unequal & ~too_many)
    counts = length[kept]
    record = np.repeat(kept, counts)
    ends = np.cumsum(counts)
    sample = np.arange(len(record)) - np.repeat(ends - counts, counts)
    elements = {}
    for pointer, array in arrays.items():
        position = _offsets(array)[record] + sample
        present = lengths[pointer][record] > 0
        elements[pointer] = _take(array.values, position, present)
    return Exploded(record, sample.astype(np.int32), unequal, too_many, elements)


def _offsets(array: pa.ListArray) -> Index:
    offsets: Index = array.offsets.to_numpy()[:-1].astype(np.int64)
    return offsets


def _lengths(array: pa.ListArray) -> Index:
    lengths: Index = np.diff(array.offsets.to_numpy()).astype(np.int64)
    if array.null_count:
        lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _take(values: pa.Array, position: Index, present: Mask) -> pa.Array:
    if not present.all():
        return values.take(pa.array(position, mask=~present))
    if len(position) == 0:
        return values.slice(0, 0)
    start = int(position[0])
    # Nearly always every message is kept, and then the child array already is the column.
    if (np.diff(position) == 1).all():
        return values.slice(start, len(position))
    return values.take(pa.array(position))
