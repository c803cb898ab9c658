# SPDX-License-Identifier: Apache-2.0
"""Promises of routing."""

from __future__ import annotations

import numpy as np
import pytest

from thadam_ros.chain.router import Router, topic_matches
from thadam_ros.config.schema import DatasetConfig, MatchConfig
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.testing.frames import make_frame


def _dataset(name: str, *topics: str, source: str = "robot") -> DatasetConfig:
    return DatasetConfig(name, MatchConfig(source, topics))


def _topic(name: str, **more: str) -> TopicDeclaration:
    return TopicDeclaration(name, type_name="std_msgs/msg/String", **more)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("/imu", _topic("/imu"), True),
        ("/imu", _topic("/r1/imu"), False),
        ("imu", _topic("/r1/imu", namespace="/r1"), True),
        ("imu", _topic("/imu", namespace="/r1"), False),
        ("imu", _topic("/renamed", namespace="/r1", original_name="/r1/imu"), True),
        ("*/imu", _topic("/left/imu"), True),
        ("*/imu", _topic("/a/left/imu"), False),
        ("**/imu", _topic("/a/left/imu"), True),
        ("/a/**", _topic("/a/left/imu"), True),
        ("/imu.", _topic("/imux"), False),
    ],
)
def test_topics_match_in_the_capturing_namespace_before_and_after_remapping(
    pattern: str, topic: TopicDeclaration, expected: bool
) -> None:
    """Relative names resolve where the message was captured; globs respect segments."""
    assert topic_matches(_dataset("d", pattern), "robot", topic) is expected


def test_a_dataset_takes_nothing_from_another_source() -> None:
    """The source is part of the match."""
    assert not topic_matches(_dataset("d", "/imu", source="cell"), "robot", _topic("/imu"))


def test_records_reach_their_datasets_in_wal_order_across_frames_and_topics() -> None:
    """Two topics of one type make one group in order; payload slices stay right."""
    left, right, other = _topic("/left"), _topic("/right"), _topic("/other")
    frames = [
        make_frame(4, [(left, b"a"), (other, b"-"), (right, b"bb")]),
        make_frame(5, [(right, b""), (left, b"ccc")]),
    ]
    router = Router({"both": _dataset("both", "/left", "/right"), "none": _dataset("none", "/x")})
    columns = router.columns(frames)
    found = list(router.groups(columns))
    assert [name for name, _, _ in found] == ["both"]
    _, rows, group = found[0]
    assert rows.tolist() == [0, 2, 3, 4]
    assert [group.payload_at(i) for i in range(len(group))] == [b"a", b"bb", b"", b"ccc"]
    names = [group.declarations[i].name for i in group.topic]
    assert names == ["/left", "/right", "/right", "/left"]
    assert group.wal_pos.tolist() == [4, 4, 5, 5]
    assert group.record_index.tolist() == [0, 2, 0, 1]


def test_types_are_never_mixed_in_a_group() -> None:
    """Two definitions under one pattern are decoded apart."""
    one = TopicDeclaration("/a", type_name="p/msg/T", definition="int32 x")
    two = TopicDeclaration("/b", type_name="p/msg/T", definition="int64 x")
    router = Router({"d": _dataset("d", "**")})
    groups = list(router.groups(router.columns([make_frame(0, [(one, b"1"), (two, b"2")])])))
    assert sorted(group.declarations[0].definition for _, _, group in groups) == [
        "int32 x",
        "int64 x",
    ]


def test_records_of_alternating_definitions_reach_a_dataset_as_they_came() -> None:
    """A dataset's state must not depend on how frames are batched into steps."""
    one = TopicDeclaration("/a", type_name="p/msg/T", definition="int32 x")
    two = TopicDeclaration("/b", type_name="p/msg/T", definition="int64 x")
    router = Router({"d": _dataset("d", "**")})
    records = [(one, b"0"), (one, b"1"), (two, b"2"), (one, b"3"), (two, b"4"), (two, b"5")]
    groups = list(router.groups(router.columns([make_frame(0, records)])))
    assert [rows.tolist() for _, rows, _ in groups] == [[0, 1], [2], [3], [4, 5]]
    payloads = [g.payload_at(i) for _, _, g in groups for i in range(len(g))]
    assert payloads == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_unknown_sequence_and_publisher_are_minus_one() -> None:
    """Zero on disk means unknown, n + 1 means n."""
    topic = _topic("/a")
    frame = make_frame(0, [(topic, b"x"), (topic, b"y")])
    router = Router({"d": _dataset("d", "/a")})
    columns = router.columns([frame])
    assert columns.sequence.tolist() == [0, 1]
    assert columns.publisher.tolist() == [-1, -1]
    known = make_frame(1, [(topic, b"x"), (topic, b"y")], publishers=[b"g1", b"g2"])
    assert router.columns([known]).publisher.tolist() == [0, 1]
    assert np.all(router.columns([known, frame]).publisher == [0, 1, -1, -1])
