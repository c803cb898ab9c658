# SPDX-License-Identifier: Apache-2.0
"""Routing: which records of a run of frames belong to which dataset (spec 3.2, 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from thadam_ros.config.schema import DatasetConfig
from thadam_ros.model.globs import glob_matches, resolve_name
from thadam_ros.model.message import Frame, RecordGroup, TopicDeclaration

_Scalar = TypeVar("_Scalar", bound=np.generic)


#: Stands for a topic whose declaration does not verify.
UNDECLARED = TopicDeclaration("", encoding="")


def topic_matches(dataset: DatasetConfig, source_id: str, topic: TopicDeclaration) -> bool:
    """Tell whether a dataset takes a topic of a source.

    Relative patterns resolve in the capturing namespace and are held against the name before
    remapping as well as the final one (spec 2, *self-describing*).
    """
    if dataset.match.source != source_id:
        return False
    names = {topic.name, topic.original_name or topic.name}
    for pattern in dataset.match.topics:
        absolute = resolve_name(pattern, topic.namespace)
        if any(glob_matches(absolute, name) for name in names):
            return True
    return False


class _GroupKey(NamedTuple):
    """What records must share to be decoded together."""

    source_id: str
    type_name: str
    definition: str
    encoding: str


@dataclass(frozen=True, slots=True)
class Columns:
    """All records of a run of frames as columns, n records in WAL order.

    ``topic`` indexes the router's topic table, ``publisher`` its publisher table (-1 unknown).
    """

    payload: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    topic: npt.NDArray[np.int32]
    publisher: npt.NDArray[np.int32]
    wal_epoch: npt.NDArray[np.int64]
    wal_pos: npt.NDArray[np.int64]
    record_index: npt.NDArray[np.int32]
    ingest_time_ns: npt.NDArray[np.int64]
    clock_synced: npt.NDArray[np.bool_]
    source_timestamp_ns: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)


class Router:
    """Keeps the topics and publishers seen so far and cuts frames into record groups.

    Tables grow with the number of distinct topics and publishers of the WAL, never with records.
    """

    def __init__(self, datasets: Mapping[str, DatasetConfig]) -> None:
        self._datasets = datasets
        self._topic_ids: dict[tuple[str, TopicDeclaration], int] = {}
        self.topics: list[tuple[str, TopicDeclaration]] = []
        self._takers: list[tuple[str, ...]] = []
        self._lost: list[int] = []
        self._publisher_ids: dict[bytes, int] = {}
        self._publishers: list[bytes] = []

    def columns(self, frames: Sequence[Frame]) -> Columns:
        """Lay the records of whole frames out as columns; one copy of the payload bytes."""
        counts = [len(frame) for frame in frames]
        bases = np.cumsum([0, *(len(frame.payload) for frame in frames)])
        repeat = np.asarray(counts)
        sequences = _concat([frame.sequences for frame in frames])
        return Columns(
            payload=_concat([frame.payload for frame in frames]),
            starts=_concat([f.offsets[:-1] + b for f, b in zip(frames, bases, strict=False)]),
            ends=_concat([f.offsets[1:] + b for f, b in zip(frames, bases, strict=False)]),
            topic=_concat([self._topic_column(frame) for frame in frames]),
            publisher=_concat([self._publisher_column(frame) for frame in frames]),
            wal_epoch=np.repeat(np.array([f.epoch for f in frames], np.int64), repeat),
            wal_pos=np.repeat(np.array([f.position for f in frames], np.int64), repeat),
            record_index=_concat([np.arange(count, dtype=np.int32) for count in counts]),
            ingest_time_ns=_concat([frame.ingest_times_ns for frame in frames]),
            clock_synced=np.repeat(np.array([f.clock_synced for f in frames], np.bool_), repeat),
            source_timestamp_ns=_concat([frame.source_timestamps_ns for frame in frames]),
            # On disk 0 means unknown and n + 1 means n.
            sequence=sequences.astype(np.int64) - 1,
        )

    def groups(self, columns: Columns) -> Iterator[tuple[str, npt.NDArray[np.int64], RecordGroup]]:
        """Yield (dataset name, record indices into ``columns``, group) for every match.

        The groups of a dataset follow each other in WAL order, so that its state sees the records
        as they came, however they are batched: usually one group, and one per run where records
        of several definitions alternate. Cost per record does not depend on the number of
        datasets: records are sorted by topic once.
        """
        order = np.argsort(columns.topic, kind="stable")
        present, first = np.unique(columns.topic[order], return_index=True)
        bounds = [*first.tolist(), len(order)]
        wanted: dict[str, dict[_GroupKey, list[tuple[int, npt.NDArray[np.int64]]]]] = {}
        for index, topic_id in enumerate(present.tolist()):
            source_id, topic = self.topics[topic_id]
            rows = order[bounds[index] : bounds[index + 1]]
            key = _GroupKey(source_id, topic.type_name, topic.definition, topic.encoding)
            for dataset in self._takers[topic_id]:
                wanted.setdefault(dataset, {}).setdefault(key, []).append((topic_id, rows))
        for dataset in sorted(wanted):
            members = list(wanted[dataset].values())
            sorted_rows = [_merge([rows for _, rows in member]) for member in members]
            for which, rows in _runs(sorted_rows):
                topic_ids = [topic_id for topic_id, _ in members[which]]
                source_id = self.topics[topic_ids[0]][0]
                yield dataset, rows, self._group(columns, source_id, topic_ids, rows)

    def undeclared(self, columns: Columns) -> npt.NDArray[np.int64]:
        """Return the records whose topic or source nobody knows: its declaration is damaged."""
        if not self._lost:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.isin(columns.topic, self._lost))

    def _group(
        self, columns: Columns, source_id: str, topic_ids: list[int], rows: npt.NDArray[np.int64]
    ) -> RecordGroup:
        local = np.zeros(len(self.topics), np.int32)
        local[topic_ids] = np.arange(len(topic_ids), dtype=np.int32)
        everything = len(rows) == len(columns)

        def take(column: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
            return column if everything else column[rows]

        return RecordGroup(
            source_id=source_id,
            declarations=tuple(self.topics[topic_id][1] for topic_id in topic_ids),
            topic=local[take(columns.topic)],
            payload=columns.payload,
            starts=take(columns.starts),
            ends=take(columns.ends),
            wal_epoch=take(columns.wal_epoch),
            wal_pos=take(columns.wal_pos),
            record_index=take(columns.record_index),
            ingest_time_ns=take(columns.ingest_time_ns),
            clock_synced=take(columns.clock_synced),
            source_timestamp_ns=take(columns.source_timestamp_ns),
            sequence=take(columns.sequence),
            publisher=take(columns.publisher),
            publishers=tuple(self._publishers),
        )

    def _topic_column(self, frame: Frame) -> npt.NDArray[np.int32]:
        table = {
            ref: self._topic_id(frame.source_id, frame.topics.get(ref, UNDECLARED))
            for ref in np.unique(frame.topic_refs).tolist()
        }
        return _translate(frame.topic_refs, table)

    def _topic_id(self, source_id: str, topic: TopicDeclaration) -> int:
        key = (source_id, topic)
        known = self._topic_ids.get(key)
        if known is None:
            known = self._topic_ids[key] = len(self.topics)
            self.topics.append(key)
            lost = topic == UNDECLARED or not source_id
            if lost:
                self._lost.append(known)
            takers = (n for n, d in self._datasets.items() if topic_matches(d, source_id, topic))
            self._takers.append(() if lost else tuple(takers))
        return known

    def _publisher_column(self, frame: Frame) -> npt.NDArray[np.int32]:
        table = {0: -1}
        for ref in np.unique(frame.publisher_refs).tolist():
            gid = frame.publishers.get(ref)
            if gid is None:
                table[ref] = -1
            else:
                if gid not in self._publisher_ids:
                    self._publisher_ids[gid] = len(self._publishers)
                    self._publishers.append(gid)
                table[ref] = self._publisher_ids[gid]
        return _translate(frame.publisher_refs, table)


def _merge(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))


def _runs(
    parts: list[npt.NDArray[np.int64]],
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield (part number, rows) so that all rows come in order; each part is sorted."""
    if len(parts) == 1:
        yield 0, parts[0]
        return
    rows = np.concatenate(parts)
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.argsort(rows, kind="stable")
    rows, owner = rows[order], owner[order]
    ends = [*(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(rows)]
    start = 0
    for end in ends:
        yield int(owner[start]), rows[start:end]
        start = end


def _translate(refs: npt.NDArray[np.uint32], table: Mapping[int, int]) -> npt.NDArray[np.int32]:
    if not len(refs):
        return np.zeros(0, np.int32)
    keys = np.array(sorted(table), np.int64)
    values = np.array([table[key] for key in keys.tolist()], np.int32)
    return values[np.searchsorted(keys, refs.astype(np.int64))]


def _concat(parts: list[npt.NDArray[_Scalar]]) -> npt.NDArray[_Scalar]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
