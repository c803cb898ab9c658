# SPDX-License-Identifier: Apache-2.0
"""From a taken message to a record of a batch (spec 7.2)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rclpy", reason="thadam_ros.node needs rclpy")

from thadam_ros.config.schema import TopicOptions
from thadam_ros.model.message import SourceBatch
from thadam_ros.node.counters import TopicCounters
from thadam_ros.node.raw_subscription import CapturedTopic, RawSubscription

ONE, OTHER = b"1" * 16, b"2" * 16


def topic(use_sequence: bool = True, use_gid: bool = True, **options: Any) -> CapturedTopic:
    gids: list[bytes] = []

    def declare(gid: bytes) -> int:
        gids.append(gid)
        return len(gids)

    return CapturedTopic(
        "/t", 5, TopicOptions(**options), declare, TopicCounters(),
        use_sequence=use_sequence, use_gid=use_gid,
    )  # fmt: skip


def info(number: int | None, gid: bytes | None = ONE) -> dict[str, Any]:
    found: dict[str, Any] = {"source_timestamp": 77, "publication_sequence_number": number}
    if gid is not None:
        found["publisher_gid"] = {"implementation_identifier": "x", "data": gid}
    return found


def admit(captured: CapturedTopic, *infos: dict[str, Any]) -> SourceBatch:
    batch = SourceBatch("robot")
    for index, one in enumerate(infos):
        captured.admit((bytes([index]), one), batch)
    return batch


def test_attributes_stand_beside_each_payload() -> None:
    """Numbers are stored plus one; unknown ones as 0."""
    batch = admit(topic(), info(0), info(1, OTHER), {"source_timestamp": 0})
    assert batch.topic_refs == [5, 5, 5]
    assert batch.payloads == [b"\0", b"\1", b"\2"]
    assert batch.source_timestamps_ns == [77, 77, 0]
    assert batch.sequences == [1, 2, 0]
    assert batch.publisher_refs == [1, 2, 0]


def test_publishers_are_numbered_apart() -> None:
    """Interleaved publishers lose nothing; each one's gaps are its own."""
    captured = topic()
    admit(captured, info(1), info(1, OTHER), info(2), info(4, OTHER))
    assert captured.counters.lost() == 2
    assert captured.counters.received == 4


def test_a_message_seen_twice_is_captured_once() -> None:
    """Two subscriptions of one topic may deliver the same publication."""
    captured = topic()
    batch = admit(captured, info(1), info(2), info(1), info(2))
    assert len(batch) == 2
    assert captured.counters.repeated == 2
    assert captured.counters.lost() == 0


def test_without_gids_the_only_publisher_of_the_graph_is_meant() -> None:
    """As on a distribution whose infos do not name publishers."""
    captured = topic(use_gid=False)
    captured.only_publisher = ONE
    batch = admit(captured, info(4, None), info(6, None))
    assert batch.publisher_refs == [1, 1]
    assert captured.counters.lost() == 1
    assert captured.counters.sequenced


def test_without_gids_a_second_voice_is_never_dropped_nor_counted_lost() -> None:
    """A number that goes back means another publisher: nothing is attributed until it is known."""
    captured = topic(use_gid=False)
    captured.only_publisher = ONE
    batch = admit(captured, info(100, None), info(1, None), info(101, None), info(2, None))
    assert len(batch) == 4
    assert batch.sequences == [101, 0, 0, 0]
    assert batch.publisher_refs[1:] == [0, 0, 0]
    assert captured.counters.lost() == 0
    assert captured.only_publisher is None


def test_infos_that_turn_out_to_lack_gids_are_noticed() -> None:
    """The first message decides where no probe could."""
    captured = topic()
    captured.only_publisher = ONE
    admit(captured, info(1, None))
    assert not captured.names_publishers
    assert captured.counters.sequenced


def test_a_refused_message_is_no_loss() -> None:
    """Size and rate limits refuse what was seen; the numbers go on."""
    captured = topic(max_payload_bytes=0)
    assert len(admit(captured, info(1), info(2), info(3))) == 0
    counters = captured.counters
    assert (counters.received, counters.refused, counters.oversized) == (3, 3, 3)
    assert counters.lost() == 0


def test_a_rate_limit_keeps_its_rate_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole periods, no burst after a pause."""
    now = [0]
    monkeypatch.setattr("thadam_ros.node.raw_subscription.time.monotonic_ns", lambda: now[0])
    captured = topic(max_rate_hz=10.0)
    passed = []
    for step in range(200):
        now[0] = 10_000_000_000 + step * 10_000_000
        if step == 100:
            now[0] += 5_000_000_000
        passed.append(len(admit(captured, info(step + 1))))
    assert sum(passed[:100]) == 10
    assert sum(passed[100:103]) <= 2


class Queue:
    """A subscription's handle with so many messages."""

    pointer = 1

    def __init__(self, count: int, size: int) -> None:
        self.left, self.size, self.number = count, size, 0

    def take_message(self, message_class: type, raw: bool) -> tuple[bytes, dict[str, Any]] | None:
        if not self.left:
            return None
        self.left -= 1
        self.number += 1
        return bytes(self.size), info(self.number)


class Subscription:
    """What RawSubscription needs of rclpy's."""

    def __init__(self, handle: Queue) -> None:
        self.handle = handle


@pytest.mark.parametrize(("count", "size", "taken"), [(10, 1, 10), (300, 1, 256), (20, 1 << 20, 8)])
def test_one_busy_topic_cannot_starve_the_others(count: int, size: int, taken: int) -> None:
    """A turn takes a bounded number of messages and of bytes, and says whether more may wait."""
    raw = RawSubscription(topic(), Subscription(Queue(count, size)), object)
    batch = SourceBatch("robot")
    more = raw.drain(batch)
    assert len(batch) == taken
    assert more == (taken < count)
