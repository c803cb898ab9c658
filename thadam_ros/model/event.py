# SPDX-License-Identifier: Apache-2.0
"""Canonical events as typed Arrow batches, rejects, and what a chain step hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from thadam_ros.model.position import Position

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

#: Raw bytes kept with a reject; exactly this many are not truncated (spec 4.3).
REJECT_RAW_BYTES_MAX = 65_536


class Outcome(IntEnum):
    """What became of a message; a message counts once, by its lowest outcome (spec 7.7)."""

    DELIVERED = 0
    QUARANTINED = 1
    DEDUPLICATED = 2
    FILTERED = 3
    UNMATCHED = 4


@dataclass(frozen=True, slots=True)
class Reject:
    """An event or message that cannot be processed, with its raw bytes (spec 4.3).

    Attributes:
        sample_idx: Element of an exploded message, or -1 for the message itself.
        raw: At most 65 536 bytes.
        row_hash: Row configuration hash of the dataset at the time, hex.
    """

    wal_epoch: int
    wal_pos: int
    ingest_time_ns: int
    source_id: str
    topic: str
    error_domain: str
    error_code: str
    reason: str
    raw: bytes
    raw_truncated: bool
    dataset: str
    record_index: int
    sample_idx: int
    encoding: str
    type_name: str
    type_hash: str
    clock_synced: bool
    row_hash: str


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Rows of one dataset for a run of whole frames, envelope first, columns by field id."""

    dataset: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a dataset pipeline made of one :class:`~thadam_ros.model.message.RecordGroup`.

    Attributes:
        rows: Rows to deliver; may have 0 rows.
        rejects: Rejects of this dataset.
        outcome: uint8[n], an :class:`Outcome` per record.
        flagged: Flag name -> number of rows that carry it.
    """

    rows: pa.RecordBatch
    rejects: tuple[Reject, ...]
    outcome: npt.NDArray[np.uint8]
    flagged: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """What one chain step produced for whole frames; accepted whole or not at all (spec 5.2).

    Attributes:
        last: Position of the last frame covered.
        last_epoch: Epoch of that frame.
        frames: Number of frames covered.
        batches: One per dataset and message type; rows in WAL order.
        state: The chain's state snapshot at ``last``, serialized, or None when none was asked for;
            only a submission with a state can be the boundary of a cut.
    """

    last: Position
    last_epoch: int
    frames: int
    batches: tuple[EventBatch, ...]
    rejects: tuple[Reject, ...]
    state: bytes | None
