# SPDX-License-Identifier: Apache-2.0
"""Capture from live topics into a WAL in memory (spec 7.2); every path a distribution may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from rclpy.serialization import serialize_message
from std_msgs.msg import Int64, String

from thadam_ros.config.schema import Ros2SourceConfig, TopicOptions
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.states import State
from thadam_ros.node.capabilities import Capabilities, probe_capabilities, probe_message_info
from thadam_ros.node.capture import RosCapture
from thadam_ros.node.counters import TopicStatistics
from thadam_ros.node.topics import TopicSelector
from thadam_ros.node.types import TypeResolver

from .fakes import MemoryWal
from .support import wait_until

RELIABLE = QoSReliabilityPolicy.RELIABLE
BEST_EFFORT = QoSReliabilityPolicy.BEST_EFFORT
LATCHED = QoSDurabilityPolicy.TRANSIENT_LOCAL
VOLATILE = QoSDurabilityPolicy.VOLATILE


def profile(reliability: Any = RELIABLE, durability: Any = VOLATILE, depth: int = 1000) -> Any:
    return QoSProfile(depth=depth, reliability=reliability, durability=durability)


def definition_of(type_name: str) -> str | None:
    return {
        "std_msgs/msg/Int64": "int64 data\n",
        "std_msgs/msg/String": "string data\n",
    }.get(type_name)


class Rig:
    """A capturing node with its WAL."""

    def __init__(self, node: Node, wal: MemoryWal, capture: RosCapture) -> None:
        self.node, self.wal, self.capture = node, wal, capture
        self.fatal: list[BaseException] = []

    def statistics(self, topic: str) -> TopicStatistics | None:
        for statistics in self.capture.topic_statistics():
            if statistics.name == topic:
                return statistics
        return None

    def state(self) -> str:
        return self.capture.statistics().state.reason_code


Make = Callable[..., Rig]


@pytest.fixture
def make_rig(context: Any, spin: Callable[..., Any]) -> Iterator[Make]:
    """Build capturing nodes; capabilities can be taken away."""
    rigs: list[Rig] = []

    def make(
        disabled: tuple[str, ...] = (),
        definitions: Callable[[str], str | None] = definition_of,
        **source: Any,
    ) -> Rig:
        node = Node("capturer", context=context)
        capabilities = probe_message_info(node, probe_capabilities(disabled))
        config = Ros2SourceConfig(**({"capture": "all"} | source))
        selector = TopicSelector("robot", config, (), "/", node.resolve_topic_name)
        wal = MemoryWal()
        fatal: list[BaseException] = []
        capture = RosCapture(
            node,
            "robot",
            selector,
            wal,
            TypeResolver(node, definitions, capabilities),
            capabilities,
            own_topics=lambda: (),
            on_fatal=fatal.append,
            clock=SystemClock(),
            counters={},
        )
        spin(node)
        capture.start()
        rig = Rig(node, wal, capture)
        rig.fatal = fatal
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        assert rig.capture.stop(30.0)


@pytest.fixture
def talker(context: Any) -> Iterator[Node]:
    """A node that publishes; a participant of the same context suffices for the rules tested."""
    node = Node("talker", context=context)
    yield node
    node.destroy_node()


def publisher(node: Node, topic: str, qos: Any, matched: int = 1, kind: Any = Int64) -> Any:
    made = node.create_publisher(kind, topic, qos)
    wait_until(lambda: made.get_subscription_count() >= matched, f"{topic} is matched")
    return made


def publish(made: Any, numbers: range) -> None:
    for number in numbers:
        made.publish(Int64(data=number))


def numbers_of(rig: Rig, topic: str) -> list[int]:
    return [int.from_bytes(r.payload[4:12], "little", signed=True) for r in rig.wal.of(topic)]


#: What Humble lacks.
HUMBLE = ("sequence", "publisher_gid", "type_hash", "type_description")
EACH = [(), *((name,) for name in Capabilities.names()), ("wait_set", "drain"), HUMBLE]


@pytest.mark.parametrize("disabled", EACH, ids=lambda d: "-".join(d) or "complete")
def test_messages_arrive_in_order_with_their_attributes(
    make_rig: Make, talker: Node, disabled: tuple[str, ...]
) -> None:
    """Whatever a distribution lacks, bytes, order and what can be known are kept."""
    rig = make_rig(disabled)
    before = time.time_ns()
    made = publisher(talker, "/numbers", profile())
    publish(made, range(200))
    wait_until(lambda: len(rig.wal.of("/numbers")) >= 200, "200 messages")
    records = rig.wal.of("/numbers")
    assert [r.payload for r in records] == [
        bytes(serialize_message(Int64(data=n))) for n in range(200)
    ]
    for record in records:
        assert before <= record.source_timestamp_ns <= record.ingest_time_ns <= time.time_ns()
    statistics = rig.statistics("/numbers")
    assert statistics is not None
    assert (statistics.received, statistics.lost, statistics.refused) == (200, 0, 0)
    assert statistics.received_bytes == sum(len(r.payload) for r in records)
    if "sequence" in disabled:
        assert {r.sequence for r in records} == {-1}
        assert statistics.lost_method != "sequence"
    else:
        first = records[0].sequence
        assert [r.sequence for r in records] == list(range(first, first + 200))
        assert len({r.publisher for r in records}) == 1
        assert records[0].publisher is not None
        assert statistics.lost_method == "sequence"
    (declaration,) = [d for d in rig.wal.declarations if d.name == "/numbers"]
    assert declaration.type_name == "std_msgs/msg/Int64"
    assert declaration.definition == "int64 data\n"
    assert declaration.type_hash.startswith("RIHS01_")
    assert declaration.hash_origin == ("computed" if "type_hash" in disabled else "graph")


def test_computed_and_announced_hash_agree(make_rig: Make, talker: Node) -> None:
    """The hash computed from the definition is the one the publisher announces."""
    talker.create_publisher(Int64, "/numbers", 1)
    hashes = set()
    for disabled in ((), ("type_hash",)):
        rig = make_rig(disabled)
        wait_until(lambda rig=rig: rig.wal.declarations, "a declaration")
        hashes.add(rig.wal.declarations[0].type_hash)
    assert len(hashes) == 1


def test_a_topic_that_appears_later_is_captured(make_rig: Make, talker: Node) -> None:
    """Discovery goes on after the start."""
    rig = make_rig()
    publish(publisher(talker, "/first", profile()), range(3))
    wait_until(lambda: len(rig.wal.of("/first")) == 3, "the first topic")
    publish(publisher(talker, "/second", profile()), range(4))
    wait_until(lambda: len(rig.wal.of("/second")) == 4, "the late topic")


@pytest.mark.parametrize("disabled", [(), ("publisher_gid",), ("wait_set",)])
def test_latched_samples_from_before_the_start_are_captured(
    make_rig: Make, talker: Node, disabled: tuple[str, ...]
) -> None:
    """Transient-local history is asked for."""
    latched = talker.create_publisher(Int64, "/map", profile(durability=LATCHED, depth=5))
    publish(latched, range(5))
    rig = make_rig(disabled)
    wait_until(lambda: len(rig.wal.of("/map")) == 5, "the latched samples")
    assert numbers_of(rig, "/map") == [0, 1, 2, 3, 4]


MIXES = [
    ((RELIABLE, VOLATILE), (BEST_EFFORT, VOLATILE)),
    ((RELIABLE, LATCHED), (RELIABLE, VOLATILE)),
    ((RELIABLE, LATCHED), (BEST_EFFORT, VOLATILE)),
    ((BEST_EFFORT, VOLATILE), (RELIABLE, LATCHED)),
]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("disabled", [(), ("publisher_gid",)])
def test_a_second_publisher_with_other_qos_is_captured_too(
    make_rig: Make, talker: Node, mix: Any, disabled: tuple[str, ...]
) -> None:
    """Subscriptions follow what is offered, in either order of appearance."""
    rig = make_rig(disabled)
    first = publisher(talker, "/mix", profile(*mix[0]))
    publish(first, range(100))
    wait_until(lambda: len(rig.wal.of("/mix")) >= 100, "the first publisher")
    second = publisher(talker, "/mix", profile(*mix[1]))
    publish(second, range(1000, 1100))
    publish(first, range(100, 200))
    expected = {*range(200), *range(1000, 1100)}
    wait_until(lambda: set(numbers_of(rig, "/mix")) >= expected, "both publishers")
    if rig.capture._capabilities.publisher_gid and rig.capture._capabilities.sequence:
        wait_until(lambda: rig.statistics("/mix").publishers == 2, "discovery of both")
        assert sorted(numbers_of(rig, "/mix")) == sorted(expected), "nothing is captured twice"
        assert rig.statistics("/mix").lost == 0


def test_a_latched_sample_is_captured_beside_a_volatile_publisher(
    make_rig: Make, talker: Node
) -> None:
    """Both exist before the start; the latched history is not given up for the other."""
    latched = talker.create_publisher(Int64, "/mix", profile(durability=LATCHED, depth=3))
    publish(latched, range(3))
    talker.create_publisher(Int64, "/mix", profile(BEST_EFFORT))
    rig = make_rig()
    if not rig.capture._capabilities.publisher_gid:
        pytest.skip("this distribution does not name publishers in message infos")
    wait_until(lambda: len(rig.wal.of("/mix")) == 3, "the latched samples")


def test_losses_are_counted_on_the_right_topic(make_rig: Make, talker: Node) -> None:
    """A stalled reader with a short queue loses; every missing number is counted, only there."""
    rig = make_rig(topics={"/fast": TopicOptions(depth=5)})
    if not rig.capture._capabilities.sequence:
        pytest.skip("this distribution has no publication sequence numbers")
    fast, slow = publisher(talker, "/fast", profile()), publisher(talker, "/slow", profile())
    publish(fast, range(3))
    publish(slow, range(3))
    wait_until(lambda: len(rig.wal.of("/fast")) + len(rig.wal.of("/slow")) == 6, "a beginning")
    with rig.wal._lock:  # the draining thread waits in append meanwhile
        publish(slow, range(3, 4))
        time.sleep(0.05)
        publish(fast, range(3, 303))
        publish(slow, range(4, 304))
    publish(fast, range(303, 304))
    wait_until(lambda: 303 in numbers_of(rig, "/fast"), "the end of the fast topic")
    wait_until(lambda: len(rig.wal.of("/slow")) == 304, "the other topic")
    statistics, other = rig.statistics("/fast"), rig.statistics("/slow")
    assert statistics is not None
    assert other is not None
    assert statistics.lost == 304 - statistics.received > 0
    assert statistics.lost_method == "sequence"
    assert other.lost == 0


def test_an_override_that_shuts_a_publisher_out_is_counted(make_rig: Make, talker: Node) -> None:
    """Degraded with the topic's name; the other topics go on."""
    rig = make_rig(topics={"/weak": TopicOptions(reliability="reliable")})
    talker.create_publisher(Int64, "/weak", profile(BEST_EFFORT))
    publish(publisher(talker, "/good", profile()), range(3))
    wait_until(lambda: rig.state() == "qos_incompatible", "a report")
    statistics = rig.statistics("/weak")
    assert statistics is not None
    assert statistics.incompatible_qos == 1
    wait_until(lambda: len(rig.wal.of("/good")) == 3, "the other topic")


def test_an_unknown_type_is_reported_and_captured_when_it_appears(
    make_rig: Make, talker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never stops discovery, and no restart is needed."""
    known = TypeResolver.message_class

    def without_string(self: TypeResolver, type_name: str) -> type | None:
        return None if type_name == "std_msgs/msg/String" else known(self, type_name)

    monkeypatch.setattr(TypeResolver, "message_class", without_string)
    rig = make_rig()
    text = talker.create_publisher(String, "/a_text", profile(durability=LATCHED, depth=1))
    text.publish(String(data="x"))
    publish(publisher(talker, "/b_numbers", profile()), range(3))
    wait_until(lambda: len(rig.wal.of("/b_numbers")) == 3, "the topic after the unknown one")
    wait_until(lambda: rig.state() == "type_unknown", "a report")
    reason = rig.capture.statistics().state
    assert reason.state is State.DEGRADED
    assert "std_msgs/msg/String of /a_text" in reason.reason
    monkeypatch.setattr(TypeResolver, "message_class", known)
    wait_until(lambda: len(rig.wal.of("/a_text")) == 1, "the type that appeared")
    assert rig.state() == "ok"


@pytest.fixture
def other_talker(domain_id: int) -> Iterator[Node]:
    """A node of another participant: one participant knows a topic under one type only."""
    import rclpy
    from rclpy.context import Context

    other_context = Context()
    rclpy.init(context=other_context, domain_id=domain_id)
    node = Node("other", context=other_context)
    yield node
    node.destroy_node()
    other_context.shutdown()


def test_a_second_type_on_a_topic_is_counted(
    make_rig: Make, talker: Node, other_talker: Node
) -> None:
    """Publishers that disagree about the type degrade the source; the first type is captured."""
    rig = make_rig()
    made = publisher(talker, "/same", profile())
    other_talker.create_publisher(String, "/same", 1)
    wait_until(lambda: rig.state() == "type_mismatch", "a report", 60.0)
    publish(made, range(3))
    wait_until(lambda: len(rig.wal.of("/same")) == 3, "the first type")
    statistics = rig.statistics("/same")
    assert statistics is not None
    assert statistics.type_mismatch == 1


def test_a_topic_that_changes_its_type_is_captured_with_the_new_one(
    make_rig: Make, talker: Node, other_talker: Node
) -> None:
    """A robot's update may bring another type under the same name; both are declared."""
    rig = make_rig()
    first = publisher(talker, "/changes", profile())
    publish(first, range(3))
    wait_until(lambda: len(rig.wal.of("/changes")) == 3, "the first type")
    talker.destroy_publisher(first)
    second = other_talker.create_publisher(String, "/changes", profile(durability=LATCHED))
    second.publish(String(data="x"))
    wait_until(lambda: len(rig.wal.of("/changes")) == 4, "the second type")
    kinds = [d.type_name for d in rig.wal.declarations if d.name == "/changes"]
    assert kinds == ["std_msgs/msg/Int64", "std_msgs/msg/String"]


def test_limits_refuse_and_count(make_rig: Make, talker: Node) -> None:
    """max_rate and max_payload refuse per topic, by name."""
    rig = make_rig(
        topics={
            "/rated": TopicOptions(max_rate_hz=1.0),
            "/sized": TopicOptions(max_payload_bytes=20),
        }
    )
    rated = publisher(talker, "/rated", profile())
    publish(rated, range(20))
    sized = publisher(talker, "/sized", profile(), kind=String)
    sized.publish(String(data="short"))
    sized.publish(String(data="l" * 100))

    def counted(topic: str, count: int) -> Any:
        statistics = rig.statistics(topic)
        return statistics if statistics is not None and statistics.received == count else None

    rated_counts = wait_until(lambda: counted("/rated", 20), "all rated messages")
    captured = len(rig.wal.of("/rated"))
    assert 1 <= captured < 20
    assert rated_counts.refused == rated_counts.rate_limited == 20 - captured
    sized_counts = wait_until(lambda: counted("/sized", 2), "all sized messages")
    assert sized_counts.refused == sized_counts.oversized == 1
    assert len(rig.wal.of("/sized")) == 1


def test_a_full_wal_and_a_pause_refuse_by_topic(make_rig: Make, talker: Node) -> None:
    """What the WAL does not take is counted on its topic; capture resumes by itself."""
    rig = make_rig()
    made = publisher(talker, "/numbers", profile())
    publish(made, range(3))
    wait_until(lambda: len(rig.wal.of("/numbers")) == 3, "a beginning")
    rig.wal.refusing = True
    publish(made, range(3, 7))
    wait_until(lambda: rig.statistics("/numbers").refused == 4, "refusals")
    assert rig.state() == "wal_full"
    rig.wal.refusing = False
    rig.capture.pause(True)
    publish(made, range(7, 9))
    wait_until(lambda: rig.statistics("/numbers").refused == 6, "refusals by pause")
    rig.capture.pause(False)
    publish(made, range(9, 12))
    wait_until(lambda: len(rig.wal.of("/numbers")) == 6, "capture resumed")
    assert rig.statistics("/numbers").lost == 0


def test_a_bug_while_taking_is_counted_and_capture_goes_on(make_rig: Make, talker: Node) -> None:
    """An exception at the edge degrades the source, and messages flow again."""
    rig = make_rig()
    made = publisher(talker, "/numbers", profile())
    append = rig.wal.append
    raised = []

    def raise_once(batch: Any) -> bool:
        if not raised:
            raised.append(True)
            raise RuntimeError("boom")
        return append(batch)

    rig.wal.append = raise_once  # type: ignore[method-assign]
    publish(made, range(1))
    wait_until(lambda: raised, "the bug")
    wait_until(lambda: rig.state() == "bug", "a report")
    publish(made, range(1, 5))
    wait_until(lambda: len(rig.wal.of("/numbers")) == 4, "capture goes on")


def test_stopping_takes_what_waits(make_rig: Make, talker: Node) -> None:
    """Messages that were published before the stop are handed over before it returns."""
    rig = make_rig()
    made = publisher(talker, "/numbers", profile())
    publish(made, range(500))
    assert rig.capture.stop(30.0)
    assert numbers_of(rig, "/numbers") == list(range(500))
    wait_until(lambda: made.get_subscription_count() == 0, "the subscription is gone")


def test_depth_grows_with_the_rate_without_loss_or_repetition(make_rig: Make, talker: Node) -> None:
    """A busy topic gets a longer queue by an overlapping subscription; nothing comes twice."""
    rig = make_rig()
    if not (rig.capture._capabilities.publisher_gid and rig.capture._capabilities.sequence):
        pytest.skip("messages seen twice cannot be told on this distribution")
    made = publisher(talker, "/busy", profile())
    start = rig.statistics("/busy").depth
    sent = 0
    end = time.monotonic() + 60.0
    while rig.statistics("/busy").depth <= start and time.monotonic() < end:
        publish(made, range(sent, sent + 20))
        sent += 20
        time.sleep(0.01)
    assert rig.statistics("/busy").depth > start
    publish(made, range(sent, sent + 200))
    sent += 200
    wait_until(lambda: len(rig.wal.of("/busy")) >= sent, "everything")
    assert numbers_of(rig, "/busy") == list(range(sent))
    assert rig.statistics("/busy").lost == 0
