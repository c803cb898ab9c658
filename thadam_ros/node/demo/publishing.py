# SPDX-License-Identifier: Apache-2.0
"""Publishers that write a ledger, and the wait for the subscriptions they need."""

from __future__ import annotations

import importlib
import time
from typing import Any

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

from thadam_ros.node.demo.ledger import LedgerWriter, Publisher, Sent, digest

#: How long the graph is asked for the identity of a publisher just made.
_GID_DEADLINE_S = 5.0
#: A weak subscription that stays alone for so long is all there will be.
_SETTLED_S = 3.0
#: Bytes of a gid that every distribution has; Humble pads with zeros.
GID_BYTES = 16


def message_class(type_name: str) -> Any:
    """Return the class of a type such as ``std_msgs/msg/String``.

    Raises:
        ImportError, AttributeError: If its package is not installed here.
    """
    package, kind, name = type_name.split("/")
    return getattr(importlib.import_module(f"{package}.{kind}"), name)


def make_qos(*, reliable: bool, latched: bool, depth: int) -> QoSProfile:
    """Return the profile of a publisher."""
    return QoSProfile(
        depth=depth,
        reliability=QoSReliabilityPolicy.RELIABLE if reliable else QoSReliabilityPolicy.BEST_EFFORT,
        durability=QoSDurabilityPolicy.TRANSIENT_LOCAL if latched else QoSDurabilityPolicy.VOLATILE,
    )


class LedgerPublisher:
    """Publishes ready CDR and notes every message in a ledger; used by one thread."""

    def __init__(
        self,
        node: Node,
        ledger: LedgerWriter,
        *,
        index: int,
        stream: str,
        topic: str,
        message_type: Any,
        type_name: str,
        qos: QoSProfile,
    ) -> None:
        self._node = node
        self._ledger = ledger
        before = _gids_of(node, topic)
        self._publisher = node.create_publisher(message_type, topic, qos)
        self.topic = str(self._publisher.topic_name)
        self._reliable = qos.reliability == QoSReliabilityPolicy.RELIABLE
        self.declaration = Publisher(
            index=index,
            stream=stream,
            topic=self.topic,
            type_name=type_name,
            gid=_new_gid(node, self.topic, before),
            reliable=self._reliable,
            latched=qos.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL,
        )
        ledger.publisher(self.declaration)
        self.number = 0
        self._matched_since_s: float | None = None

    def is_matched(self) -> bool:
        """Tell whether every subscription the graph shows is matched, and the right one among them.

        A topic with publishers of two kinds has two subscriptions; the count alone would not tell
        that the one this publisher's messages are taken from is there. Where messages do not name
        their publisher, capture makes do with one weak subscription: after some seconds with
        nothing else in sight that is the right one.
        """
        matched = self._publisher.get_subscription_count()
        found = self._node.get_subscriptions_info_by_topic(self.topic)
        weak = [s for s in found if _is_best_effort(s.qos_profile)]
        reachable = found if self._reliable else weak
        if not reachable or matched < len(reachable):
            self._matched_since_s = None
            return False
        if not self._reliable or len(weak) < len(found):
            return True
        now = time.monotonic()
        self._matched_since_s = self._matched_since_s or now
        return now - self._matched_since_s > _SETTLED_S

    def publish(self, payload: bytes, stamp_ns: int) -> None:
        """Publish serialized bytes as they are."""
        sent_ns = time.time_ns()
        self._publisher.publish(payload)
        self.number += 1
        self._ledger.sent(
            Sent(
                publisher=self.declaration.index,
                number=self.number,
                sent_ns=sent_ns,
                stamp_ns=stamp_ns,
                size=len(payload),
                digest=digest(payload),
            )
        )

    def wait_until_acknowledged(self, timeout_s: float) -> bool:
        """Wait until every matched reliable subscription has everything; False when it has not."""
        timeout = Duration(nanoseconds=int(timeout_s * 1e9))
        return bool(self._publisher.wait_for_all_acked(timeout))


def _is_best_effort(profile: QoSProfile) -> bool:
    return bool(profile.reliability == QoSReliabilityPolicy.BEST_EFFORT)


def _gids_of(node: Node, topic: str) -> set[str]:
    resolved = node.resolve_topic_name(topic)
    return {
        bytes(info.endpoint_gid)[:GID_BYTES].hex()
        for info in node.get_publishers_info_by_topic(resolved)
        if (info.node_name, info.node_namespace) == (node.get_name(), node.get_namespace())
    }


def _new_gid(node: Node, topic: str, before: set[str]) -> str:
    deadline = time.monotonic() + _GID_DEADLINE_S
    while time.monotonic() < deadline:
        found = _gids_of(node, topic) - before
        if found:
            return found.pop()
        time.sleep(0.005)
    return ""
