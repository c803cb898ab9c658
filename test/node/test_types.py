# SPDX-License-Identifier: Apache-2.0
"""Definitions and hashes of the graph's types (spec 7.2)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from rclpy.node import Node
from sensor_msgs.msg import Imu
from std_msgs.msg import Int64, String

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.node.capabilities import probe_capabilities
from thadam_ros.node.types import (
    ResolvedType,
    TypeResolver,
    Unresolved,
    definition_from_sources,
    graph_hash,
    hash_of,
)
from thadam_ros.node.verbs.init_graph import collect_topics

from .support import wait_until


def announced(node: Node, topic: str) -> tuple[str, tuple[str, str]]:
    """Return the hash in the graph, and the publisher's node."""
    (endpoint,) = wait_until(lambda: node.get_publishers_info_by_topic(topic), topic)
    capabilities = probe_capabilities(())
    return graph_hash(endpoint, capabilities), (endpoint.node_name, endpoint.node_namespace)


def test_an_installed_definition_hashes_to_what_the_graph_announces(context: Any) -> None:
    """Then nobody needs to be asked."""
    node = Node("types", context=context)
    node.create_publisher(Imu, "/imu", 1)
    graph, publisher = announced(node, "/imu")
    resolver = TypeResolver(node, TypeCatalog().definition, probe_capabilities(()))
    resolved = resolver.resolve("sensor_msgs/msg/Imu", graph, publisher)
    node.destroy_node()
    assert isinstance(resolved, ResolvedType)
    assert resolved.message_class is Imu
    assert (resolved.type_hash, resolved.hash_origin) == (graph, "graph")
    assert hash_of(resolved.definition, "sensor_msgs/msg/Imu") == graph


@pytest.mark.parametrize("installed", [None, "int32 data\n"])
def test_a_definition_that_differs_is_asked_of_the_publisher(
    context: Any, spin: Callable[..., Any], installed: str | None
) -> None:
    """An absent or older local definition gives way to the publisher's own."""
    talker, asker = Node("talker", context=context), Node("asker", context=context)
    talker.create_publisher(Imu, "/imu", 1)
    spin(talker)
    spin(asker)
    graph, publisher = announced(asker, "/imu")
    resolver = TypeResolver(asker, lambda name: installed, probe_capabilities(()))

    def resolved() -> ResolvedType | None:
        found = resolver.resolve("sensor_msgs/msg/Imu", graph, publisher)
        return found if isinstance(found, ResolvedType) else None

    answer = wait_until(resolved, "the publisher's answer")
    assert hash_of(answer.definition, "sensor_msgs/msg/Imu") == graph
    assert (answer.type_hash, answer.hash_origin) == (graph, "graph")


@pytest.mark.parametrize("may_ask", [True, False])
def test_without_an_answer_capture_goes_on_without_a_definition(
    context: Any, may_ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong definition would decode to wrong values; none makes rejects that can be retried."""
    monkeypatch.setattr("thadam_ros.node.types.DESCRIPTION_TIMEOUT_S", 0.3)
    node = Node("asker", context=context)
    disabled = () if may_ask else ("type_description",)
    resolver = TypeResolver(node, lambda name: "int32 data\n", probe_capabilities(disabled))
    wanted = "RIHS01_" + "ab" * 32

    def resolved() -> ResolvedType | None:
        found = resolver.resolve("std_msgs/msg/Int64", wanted, ("nobody", "/"))
        return found if isinstance(found, ResolvedType) else None

    answer = wait_until(resolved, "the end of the wait")
    node.destroy_node()
    assert (answer.definition, answer.type_hash) == ("", wanted)


@pytest.mark.parametrize("name", ["nobody_msgs/msg/None", "std_msgs/msg/Nothing", "x", "a/srv/B"])
def test_types_that_cannot_be_imported_are_unknown(context: Any, name: str) -> None:
    """Whatever stands in the graph, it raises nothing."""
    node = Node("types", context=context)
    resolver = TypeResolver(node, lambda _: None, probe_capabilities(()))
    assert resolver.resolve(name, "", ("x", "/")) is Unresolved.UNKNOWN
    node.destroy_node()


def test_sources_of_a_description_become_one_text() -> None:
    """The main type first, dependencies after separators; anything but .msg gives nothing."""
    main = SimpleNamespace(type_name="a/msg/A", encoding="msg", raw_file_contents="b/B x")
    other = SimpleNamespace(type_name="b/msg/B", encoding="msg", raw_file_contents="int8 y")
    text = definition_from_sources("a/msg/A", [other, main])
    assert text == f"b/B x\n{'=' * 80}\nMSG: b/B\nint8 y"
    other.encoding = "idl"
    assert definition_from_sources("a/msg/A", [main, other]) == ""
    assert definition_from_sources("c/msg/C", [main]) == ""


def test_init_from_graph_sees_what_is_published(
    context: Any, spin: Callable[..., Any], domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics by name, with definitions; ROS's own machinery is left out."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    talker = Node("talker", context=context)
    talker.create_publisher(String, "/b", 1)
    talker.create_publisher(Int64, "/a", 1)
    spin(talker)
    topics = [t for t in collect_topics(20.0) if t.name in ("/a", "/b")]
    assert [(t.name, t.type_name) for t in topics] == [
        ("/a", "std_msgs/msg/Int64"),
        ("/b", "std_msgs/msg/String"),
    ]
    assert all("data" in t.definition for t in topics)
    assert all(t.type_hash.startswith("RIHS01_") for t in topics)
