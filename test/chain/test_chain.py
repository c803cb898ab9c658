# SPDX-License-Identifier: Apache-2.0
"""Promises of the chain step, held with small pipelines of our own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from thadam_ros.chain.chain import Chain
from thadam_ros.chain.state import ChainState
from thadam_ros.config.schema import DatasetConfig, MatchConfig
from thadam_ros.errors import FormatError
from thadam_ros.model.event import Outcome, PipelineResult
from thadam_ros.model.message import RecordGroup, TopicDeclaration
from thadam_ros.model.position import Position
from thadam_ros.testing.frames import make_frame

A = TopicDeclaration("/a", type_name="p/msg/T")
B = TopicDeclaration("/b", type_name="p/msg/T")


class Numbering:
    """Gives every record a running number; raises on records that say so."""

    def __init__(self, fails: int = 10**9) -> None:
        self.seen = 0
        self.fails_left = fails

    def process(self, group: RecordGroup) -> PipelineResult:
        before = self.seen
        try:
            return self._process(group)
        except Exception:
            self.seen = before
            raise

    def _process(self, group: RecordGroup) -> PipelineResult:
        values = []
        for index in range(len(group)):
            self.seen += 1
            raw = group.payload_at(index)
            if raw == b"poison" and self.fails_left:
                self.fails_left -= 1
                raise ZeroDivisionError("poison")
            if raw == b"memory":
                raise MemoryError
            values.append(self.seen)
        rows = pa.RecordBatch.from_pydict({"n": pa.array(values, pa.int64())})
        return PipelineResult(rows, (), np.zeros(len(group), np.uint8), {"STALE": len(values)})

    def snapshot(self) -> bytes:
        return b"%d" % self.seen

    def restore(self, state: bytes) -> None:
        self.seen = int(state)


def _chain(pipeline: Numbering) -> Chain:
    dataset = DatasetConfig("d", MatchConfig("robot", ("/a",)))
    return Chain({"d": dataset}, {"d": pipeline}, {"d": "hash"})


def test_a_step_hands_over_whole_frames_with_their_last_position() -> None:
    """Rows, position, counts and state belong to exactly the frames given."""
    chain = _chain(Numbering())
    submission = chain.step([make_frame(3, [(A, b"1"), (B, b"2")]), make_frame(4, [(A, b"3")])])
    assert submission.last == Position(0, 4)
    assert submission.frames == 2
    assert submission.batches[0].rows.column("n").to_pylist() == [1, 2]
    assert chain.counts.messages == {"/a": {"delivered": 2}, "/b": {"unmatched": 1}}
    assert chain.counts.flagged == {"d.STALE": 2}


def test_a_restored_chain_continues_as_if_it_had_never_stopped() -> None:
    """State and counts after a restart equal those of an uninterrupted run."""
    frames = [make_frame(i, [(A, b"x"), (B, b"y")]) for i in range(6)]
    straight = _chain(Numbering())
    for frame in frames:
        last = straight.step([frame])
    first = _chain(Numbering())
    middle = first.step(frames[:3])
    second = _chain(Numbering())
    assert middle.state is not None
    second.restore(ChainState.decode(middle.state))
    end = second.step(frames[3:])
    assert end.state == last.state
    assert end.batches[0].rows.column("n").to_pylist() == [4, 5, 6]


def test_a_record_that_raises_alone_is_quarantined_and_the_others_are_delivered_once() -> None:
    """Poison costs one record; state is not counted twice by the retries."""
    chain = _chain(Numbering())
    frame = make_frame(0, [(A, b"1"), (A, b"poison"), (A, b"3")])
    submission = chain.step([frame])
    rows = [n for batch in submission.batches for n in batch.rows.column("n").to_pylist()]
    assert rows == [1, 2]
    (reject,) = submission.rejects
    assert (reject.error_domain, reject.error_code) == ("poison", "poison.raised")
    assert (reject.raw, reject.record_index, reject.row_hash) == (b"poison", 1, "hash")
    assert chain.counts.messages["/a"] == {"delivered": 2, "quarantined": 1}


def test_an_exception_that_passes_costs_nothing() -> None:
    """A pipeline that raises once and then works loses and repeats no row."""
    chain = _chain(Numbering(fails=1))
    submission = chain.step([make_frame(0, [(A, b"1"), (A, b"poison")])])
    assert submission.rejects == ()
    assert submission.batches[0].rows.column("n").to_pylist() == [1, 2]


def test_memory_errors_are_no_poison() -> None:
    """Running out of memory says nothing about a record; it is raised on."""
    with pytest.raises(MemoryError):
        _chain(Numbering()).step([make_frame(0, [(A, b"memory")])])


def test_a_message_counts_once_by_its_lowest_outcome_over_datasets() -> None:
    """Delivered by one dataset beats filtered by another."""

    class Filtering(Numbering):
        def process(self, group: RecordGroup) -> PipelineResult:
            rows = pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())})
            return PipelineResult(rows, (), np.full(len(group), Outcome.FILTERED, np.uint8))

    datasets = {n: DatasetConfig(n, MatchConfig("robot", ("/a",))) for n in ("keep", "none")}
    chain = Chain(datasets, {"keep": Numbering(), "none": Filtering()}, {})
    chain.step([make_frame(0, [(A, b"1")])])
    assert chain.counts.messages == {"/a": {"delivered": 1}}


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"format":99}', b'{"format":1}'])
def test_a_state_of_another_format_is_refused(raw: bytes) -> None:
    """Nothing is guessed about a state file."""
    with pytest.raises(FormatError):
        ChainState.decode(raw)


def test_records_whose_topic_is_not_declared_are_quarantined_and_the_chain_goes_on() -> None:
    """A damaged declaration costs its records a reject each, never the chain."""
    chain = _chain(Numbering())
    known = make_frame(3, [(A, b"1")])
    lost = make_frame(4, [(A, b"2"), (B, b"x" * 70_000)], publishers=[b"g", b"g"])
    lost = dataclasses.replace(lost, topics={1: A}, publishers={})
    submission = chain.step([known, lost])
    assert submission.last == Position(0, 4)
    assert submission.batches[0].rows.column("n").to_pylist() == [1, 2]
    (reject,) = submission.rejects
    assert (reject.error_domain, reject.error_code) == ("decode", "decode.type_unknown")
    assert (reject.wal_pos, reject.record_index, reject.source_id) == (4, 1, "robot")
    assert (reject.dataset, reject.topic, reject.raw_truncated) == ("", "", True)
    assert len(reject.raw) == 65_536
    assert chain.counts.messages == {"/a": {"delivered": 2}, "": {"quarantined": 1}}
    assert chain.counts.rejects == {"decode.type_unknown": 1}
