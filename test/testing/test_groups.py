# SPDX-License-Identifier: Apache-2.0
"""Builders of record groups."""

from __future__ import annotations

import numpy as np

from thadam_ros.model.message import TopicDeclaration
from thadam_ros.testing.groups import START_NS, cut_group, make_group

TOPIC = TopicDeclaration("/t", type_name="t/msg/T")


def test_a_group_has_one_record_per_payload_with_sensible_defaults():
    """Indices count up inside each frame; what is unknown is -1."""
    group = make_group(TOPIC, [b"a", b"", b"ccc"], positions=[4, 4, 5])
    assert [group.payload_at(i) for i in range(3)] == [b"a", b"", b"ccc"]
    assert group.record_index.tolist() == [0, 1, 0]
    assert group.sequence.tolist() == group.publisher.tolist() == [-1, -1, -1]
    assert group.ingest_time_ns[0] == START_NS
    assert group.clock_synced.all()


def test_cutting_keeps_every_record_once_and_in_order():
    """Pieces share the payload and never are empty."""
    group = make_group(TOPIC, [bytes([i]) for i in range(5)], sequences=range(5))
    pieces = cut_group(group, [0, 2, 2, 4])
    assert [len(piece) for piece in pieces] == [2, 2, 1]
    assert np.concatenate([piece.sequence for piece in pieces]).tolist() == list(range(5))
    assert pieces[1].payload_at(0) == b"\x02"


def test_a_group_may_be_empty():
    """No payloads make a group of no records."""
    group = make_group(TOPIC, [])
    assert len(group) == 0
    assert cut_group(group, [0]) == []
