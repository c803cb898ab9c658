# SPDX-License-Identifier: Apache-2.0
"""Topics and types of the running graph, for ``thadam init --from-graph``."""

from __future__ import annotations

import time

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.node.capabilities import Capabilities, probe_capabilities
from thadam_ros.node.topics import is_system_topic
from thadam_ros.node.types import TypeResolver, graph_hash

#: The graph counts as known when nothing new came up for this long.
QUIET_S = 1.5
_POLL_S = 0.1


def collect_topics(timeout_s: float) -> list[TopicDeclaration]:
    """Return the published topics with their definitions, by name.

    Discovery has no end: this returns when nothing new came up for a while, or after ``timeout_s``.
    Types that are not installed here are asked of their publishers.
    """
    context = Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("thadam_init", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        return _collect(node, executor, timeout_s)
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def _collect(
    node: Node, executor: SingleThreadedExecutor, timeout_s: float
) -> list[TopicDeclaration]:
    capabilities = probe_capabilities()
    resolver = TypeResolver(node, TypeCatalog().definition, capabilities)
    found: dict[str, TopicDeclaration] = {}
    waiting: set[str] = set()
    end = time.monotonic() + timeout_s
    quiet_since = time.monotonic()
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=_POLL_S)
        before = (set(found), set(waiting))
        for name, _types in node.get_topic_names_and_types():
            if name not in found and not is_system_topic(name) and name != "/diagnostics":
                _look_at(node, name, resolver, capabilities, found, waiting)
        if (set(found), set(waiting)) != before or waiting:
            quiet_since = time.monotonic()
        if found and time.monotonic() - quiet_since >= QUIET_S:
            break
    resolver.close()
    return [found[name] for name in sorted(found)]


def _look_at(
    node: Node,
    name: str,
    resolver: TypeResolver,
    capabilities: Capabilities,
    found: dict[str, TopicDeclaration],
    waiting: set[str],
) -> None:
    endpoints = node.get_publishers_info_by_topic(name)
    if not endpoints:
        return
    first = endpoints[0]
    announced = graph_hash(first, capabilities)
    described = resolver.describe(
        first.topic_type, announced, (first.node_name, first.node_namespace)
    )
    if described is None:
        waiting.add(name)
        return
    waiting.discard(name)
    definition, hash_text = described
    found[name] = TopicDeclaration(
        name=name,
        type_name=first.topic_type,
        definition=definition,
        type_hash=hash_text,
        hash_origin="graph" if announced else "computed" if hash_text else "",
    )
