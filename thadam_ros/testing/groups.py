# SPDX-License-Identifier: Apache-2.0
"""Record groups for tests: what a chain hands to a dataset pipeline, from plain bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from thadam_ros.model.message import RecordGroup, TopicDeclaration

#: 2026-01-01T00:00:00Z, where made-up records begin.
START_NS = 1_767_225_600_000_000_000


def make_group(
    declarations: TopicDeclaration | Sequence[TopicDeclaration],
    payloads: Sequence[bytes],
    *,
    topics: Iterable[int] | None = None,
    source_id: str = "robot",
    epoch: int = 7,
    positions: Iterable[int] | None = None,
    record_indices: Iterable[int] | None = None,
    ingest_times_ns: Iterable[int] | None = None,
    clock_synced: bool | Iterable[bool] = True,
    sequences: Iterable[int] | None = None,
    publisher_indices: Iterable[int] | None = None,
    publishers: Sequence[bytes] = (),
) -> RecordGroup:
    """Return a group of one record per payload.

    Args:
        declarations: One topic, or several of the same type with ``topics`` choosing.
        topics: Index into ``declarations`` per record; default all 0.
        positions: Frame position per record; default one frame, number 0.
        record_indices: Index inside the frame; default counts up inside each frame.
        ingest_times_ns: Default 10 ms apart from :data:`START_NS`.
        sequences: Publisher sequence numbers; default unknown (-1).
        publisher_indices: Index into ``publishers``; default unknown (-1).
    """
    n = len(payloads)
    topic_list = (declarations,) if isinstance(declarations, TopicDeclaration) else declarations
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes, dtype=np.int64)
    wal_pos = _ints(positions, np.zeros(n, np.int64), np.int64)
    synced = clock_synced if isinstance(clock_synced, bool) else list(clock_synced)
    return RecordGroup(
        source_id=source_id,
        declarations=tuple(topic_list),
        topic=_ints(topics, np.zeros(n), np.int32),
        payload=np.frombuffer(b"".join(payloads), np.uint8),
        starts=ends - sizes,
        ends=ends,
        wal_epoch=np.full(n, epoch, np.int64),
        wal_pos=wal_pos,
        record_index=_ints(record_indices, _inside_frames(wal_pos), np.int32),
        ingest_time_ns=_ints(ingest_times_ns, START_NS + 10_000_000 * np.arange(n), np.int64),
        clock_synced=np.broadcast_to(np.array(synced, np.bool_), (n,)).copy(),
        source_timestamp_ns=np.zeros(n, np.int64),
        sequence=_ints(sequences, np.full(n, -1), np.int64),
        publisher=_ints(publisher_indices, np.full(n, -1), np.int32),
        publishers=tuple(publishers),
    )


def cut_group(group: RecordGroup, cuts: Iterable[int]) -> list[RecordGroup]:
    """Return the group in pieces that start at the record indices ``cuts``."""
    edges = [0, *sorted(set(cuts)), len(group)]
    return [slice_records(group, start, end) for start, end in pairwise(edges) if end > start]


def slice_records(group: RecordGroup, start: int, end: int) -> RecordGroup:
    """Return the records ``start`` to ``end`` of a group; the payload buffer is shared."""
    part = slice(start, end)
    return replace(
        group,
        topic=group.topic[part],
        starts=group.starts[part],
        ends=group.ends[part],
        wal_epoch=group.wal_epoch[part],
        wal_pos=group.wal_pos[part],
        record_index=group.record_index[part],
        ingest_time_ns=group.ingest_time_ns[part],
        clock_synced=group.clock_synced[part],
        source_timestamp_ns=group.source_timestamp_ns[part],
        sequence=group.sequence[part],
        publisher=group.publisher[part],
    )


def _ints(given: Iterable[int] | None, default: Any, kind: type[Any]) -> npt.NDArray[Any]:
    if given is None:
        return np.asarray(default).astype(kind)
    return np.fromiter(given, kind, len(default))


def _inside_frames(wal_pos: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count records inside each run of equal positions."""
    starts = np.flatnonzero(np.diff(wal_pos, prepend=wal_pos[:1] - 1))
    counts = np.diff(np.append(starts, len(wal_pos)))
    return np.arange(len(wal_pos)) - np.repeat(starts, counts)
