# SPDX-License-Identifier: Apache-2.0
"""The chain itself: durable frames in, one submission out (spec 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.chain.router import Columns, Router
from thadam_ros.chain.state import ChainState
from thadam_ros.config.schema import DatasetConfig
from thadam_ros.model.event import (
    REJECT_RAW_BYTES_MAX,
    EventBatch,
    Outcome,
    PipelineResult,
    Reject,
    Submission,
)
from thadam_ros.model.message import Frame, RecordGroup
from thadam_ros.model.position import Position


class Pipeline(Protocol):
    """What the chain needs of :class:`thadam_ros.dataset.pipeline.DatasetPipeline`."""

    def process(self, group: RecordGroup) -> PipelineResult:
        """Process a group; when this raises, the state is as it was before the call."""

    def snapshot(self) -> bytes: ...

    def restore(self, state: bytes) -> None: ...


class Chain:
    """Routes, decodes and shapes whole frames; owned by one thread, pure.

    Args:
        datasets: The datasets of this chain's sink.
        pipelines: One per dataset.
        row_hashes: Dataset -> row hash, kept in poison rejects.
        poison_retries: How often a raising pipeline is tried again before its records are
            stepped one by one, and each of those before it is quarantined.
    """

    def __init__(
        self,
        datasets: Mapping[str, DatasetConfig],
        pipelines: Mapping[str, Pipeline],
        row_hashes: Mapping[str, str],
        poison_retries: int = 2,
    ) -> None:
        self._tries = 1 + poison_retries
        self._router = Router(datasets)
        self._pipelines = pipelines
        self._row_hashes = row_hashes
        self.counts = ChainCounts()

    def restore(self, state: ChainState) -> None:
        """Start from a snapshot; state of datasets that no longer exist is dropped."""
        self.counts = state.counts.copy()
        for name, raw in state.pipelines.items():
            if name in self._pipelines:
                self._pipelines[name].restore(raw)

    def snapshot(self) -> bytes:
        """Return the state after the frames stepped so far."""
        pipelines = {name: pipeline.snapshot() for name, pipeline in self._pipelines.items()}
        return ChainState(pipelines, self.counts).encode()

    def step(self, frames: Sequence[Frame], *, snapshot: bool = True) -> Submission:
        """Process whole frames; nothing of them is handed over before all are processed.

        Args:
            frames: At least one, in WAL order.
            snapshot: Whether to attach the state (what a cut needs).

        Returns:
            Rows and rejects of all datasets for exactly these frames.
        """
        columns = self._router.columns(frames)
        outcome = np.full(len(columns), int(Outcome.UNMATCHED), np.uint8)
        batches: list[EventBatch] = []
        lost = self._router.undeclared(columns)
        rejects = [self._lost(columns, index) for index in lost.tolist()]
        outcome[lost] = int(Outcome.QUARANTINED)
        self.counts.rejects.update(reject.error_code for reject in rejects)
        for dataset, rows, group in self._router.groups(columns):
            for result, part in self._process(dataset, group):
                indices = rows if part is None else rows[part]
                outcome[indices] = np.minimum(outcome[indices], result.outcome)
                rejects.extend(result.rejects)
                self.counts.add_result(dataset, result)
                if result.rows.num_rows:
                    batches.append(EventBatch(dataset, result.rows))
        topics = [topic.name for _, topic in self._router.topics]
        self.counts.add_outcomes(topics, columns.topic, outcome)
        self.counts.frames += len(frames)
        last = frames[-1]
        return Submission(
            last=Position(last.ordinal, last.position),
            last_epoch=last.epoch,
            frames=len(frames),
            batches=tuple(batches),
            rejects=tuple(rejects),
            state=self.snapshot() if snapshot else None,
        )

    def _lost(self, columns: Columns, index: int) -> Reject:
        """Return the reject of a record that no dataset can claim."""
        source_id, topic = self._router.topics[int(columns.topic[index])]
        start, end = int(columns.starts[index]), int(columns.ends[index])
        return Reject(
            wal_epoch=int(columns.wal_epoch[index]),
            wal_pos=int(columns.wal_pos[index]),
            ingest_time_ns=int(columns.ingest_time_ns[index]),
            source_id=source_id,
            topic=topic.name,
            error_domain="decode",
            error_code="decode.type_unknown",
            reason="the declaration of its topic or source in the WAL is damaged",
            raw=columns.payload[start : min(end, start + REJECT_RAW_BYTES_MAX)].tobytes(),
            raw_truncated=end - start > REJECT_RAW_BYTES_MAX,
            dataset="",
            record_index=int(columns.record_index[index]),
            sample_idx=-1,
            encoding=topic.encoding,
            type_name=topic.type_name,
            type_hash=topic.type_hash,
            clock_synced=bool(columns.clock_synced[index]),
            row_hash="",
        )

    def _process(
        self, dataset: str, group: RecordGroup
    ) -> list[tuple[PipelineResult, npt.NDArray[np.int64] | None]]:
        """Process a group whole, or record by record when it keeps raising (spec 4.2, *poison*).

        MemoryError and OSError say nothing about the data and are raised on.
        """
        pipeline = self._pipelines[dataset]
        for _ in range(self._tries):
            try:
                return [(pipeline.process(group), None)]
            except (MemoryError, OSError):
                raise
            except Exception:  # noqa: BLE001, S112 - what goes on raising is a poison reject below
                continue
        return [self._alone(dataset, pipeline, group, index) for index in range(len(group))]

    def _alone(
        self, dataset: str, pipeline: Pipeline, group: RecordGroup, index: int
    ) -> tuple[PipelineResult, npt.NDArray[np.int64]]:
        part = np.array([index], np.int64)
        single = slice_group(group, part)
        for tries_left in reversed(range(self._tries)):
            try:
                return pipeline.process(single), part
            except (MemoryError, OSError):
                raise
            except Exception as exc:  # noqa: BLE001 - becomes a reject with its type
                if not tries_left:
                    return self._poison(dataset, single, exc), part
        raise AssertionError("unreachable: the last attempt returns")

    def _poison(self, dataset: str, single: RecordGroup, exc: Exception) -> PipelineResult:
        raw = single.payload_at(0)
        topic = single.declarations[int(single.topic[0])]
        reject = Reject(
            wal_epoch=int(single.wal_epoch[0]),
            wal_pos=int(single.wal_pos[0]),
            ingest_time_ns=int(single.ingest_time_ns[0]),
            source_id=single.source_id,
            topic=topic.name,
            error_domain="poison",
            error_code="poison.raised",
            reason=f"{type(exc).__name__} while processing this record alone",
            raw=raw[:REJECT_RAW_BYTES_MAX],
            raw_truncated=len(raw) > REJECT_RAW_BYTES_MAX,
            dataset=dataset,
            record_index=int(single.record_index[0]),
            sample_idx=-1,
            encoding=topic.encoding,
            type_name=topic.type_name,
            type_hash=topic.type_hash,
            clock_synced=bool(single.clock_synced[0]),
            row_hash=self._row_hashes.get(dataset, ""),
        )
        empty = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
        return PipelineResult(empty, (reject,), np.array([Outcome.QUARANTINED], np.uint8))


def slice_group(group: RecordGroup, rows: npt.NDArray[np.int64]) -> RecordGroup:
    """Return the records ``rows`` of a group; the payload buffer is shared."""
    return replace(
        group,
        topic=group.topic[rows],
        starts=group.starts[rows],
        ends=group.ends[rows],
        wal_epoch=group.wal_epoch[rows],
        wal_pos=group.wal_pos[rows],
        record_index=group.record_index[rows],
        ingest_time_ns=group.ingest_time_ns[rows],
        clock_synced=group.clock_synced[rows],
        source_timestamp_ns=group.source_timestamp_ns[rows],
        sequence=group.sequence[rows],
        publisher=group.publisher[rows],
    )
