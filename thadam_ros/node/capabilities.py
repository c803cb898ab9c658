# SPDX-License-Identifier: Apache-2.0
"""What this ROS distribution can do, found by looking, never by its name or version (spec 7.2).

Each capability can be switched off, by the constructor or by
``THADAM_DISABLE_CAPABILITIES=wait_set,publisher_gid`` in the environment, so that the paths that a
poorer distribution takes are run everywhere.

==================  ==============================================================================
wait_set            rclpy's WaitSet and ``take_message``: raw messages are taken by a thread of our
                    own; else in executor callbacks
drain               ``take_message`` on the subscription's handle: a callback takes all that waits;
                    else one message a callback
sequence            publication sequence numbers in the message info: losses are counted by them
publisher_gid       publisher gids in the message info: losses per publisher, one subscription for
                    each QoS that publishers offer
type_hash           RIHS01 hashes in the graph; else computed
type_description    the ``get_type_description`` service; else installed definitions only
message_lost_event  the middleware counts losses; asked for where numbers do not tell them
==================  ==============================================================================

``sequence`` and ``publisher_gid`` depend on the middleware too: :func:`probe_message_info` takes a
message of its own and looks at it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any

from lifecycle_msgs.msg import State
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from thadam_ros.errors import ConfigError, Problem

#: Environment variable with a comma-separated list of capabilities to do without.
DISABLE_VARIABLE = "THADAM_DISABLE_CAPABILITIES"


class UntouchedGroup(ReentrantCallbackGroup):
    """Executors run the events of its subscriptions, but never take a message from them."""

    def can_execute(self, entity: Any) -> Any:
        return not isinstance(entity, Subscription)


_WAIT_SET_METHODS = (
    "add_subscription",
    "add_guard_condition",
    "clear_entities",
    "get_ready_entities",
    "wait",
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Which optional parts of rclpy and the middleware are used; see the module."""

    wait_set: bool
    drain: bool
    sequence: bool
    publisher_gid: bool
    type_hash: bool
    type_description: bool
    message_lost_event: bool

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return every capability's name."""
        return tuple(f.name for f in fields(Capabilities))

    def without(self, names: Iterable[str]) -> Capabilities:
        """Return these capabilities with some switched off.

        Raises:
            ConfigError: If a name is none of :meth:`names`.
        """
        unknown = sorted(set(names) - set(self.names()))
        if unknown:
            valid = ", ".join(self.names())
            raise ConfigError(
                [Problem(DISABLE_VARIABLE, name, f"is none of {valid}") for name in unknown]
            )
        return replace(self, **dict.fromkeys(names, False))


def event_module() -> ModuleType:
    """Return rclpy's module of middleware events, whose name differs between distributions."""
    for name in ("rclpy.event_handler", "rclpy.qos_event"):
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    raise ImportError("rclpy has no module of middleware events")


def probe_capabilities(disabled: Iterable[str] | None = None) -> Capabilities:
    """Look at the installed rclpy and return what can be used.

    Args:
        disabled: Names to switch off; None takes them from the environment.

    Raises:
        ConfigError: If a name to switch off is unknown.
    """
    if disabled is None:
        listed = os.environ.get(DISABLE_VARIABLE, "")
        disabled = [name.strip() for name in listed.split(",") if name.strip()]
    drain = hasattr(_rclpy.Subscription, "take_message")
    wait_set = getattr(_rclpy, "WaitSet", None)
    found = Capabilities(
        wait_set=drain and all(hasattr(wait_set, name) for name in _WAIT_SET_METHODS),
        drain=drain,
        sequence=True,
        publisher_gid=True,
        type_hash=hasattr(TopicEndpointInfo, "topic_type_hash"),
        type_description=importlib.util.find_spec("type_description_interfaces") is not None,
        message_lost_event=hasattr(_rclpy, "EventHandle"),
    )
    return found.without(list(disabled))


def probe_message_info(node: Node, found: Capabilities) -> Capabilities:
    """Return ``found`` without what this middleware's message infos do not carry.

    Publishes one latched message on a hidden topic of the node and takes it; when it does not
    arrive within a second, nothing is assumed. Without ``take_message`` the first message that a
    callback gets decides.
    """
    if not found.drain or not (found.sequence or found.publisher_gid):
        return found
    topic = "~/_probe"
    latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
    publisher = node.create_publisher(State, topic, latched)
    subscription = node.create_subscription(
        State, topic, lambda message: None, latched, raw=True, callback_group=UntouchedGroup()
    )
    try:
        publisher.publish(State())
        info = _take_info(subscription)
    finally:
        node.destroy_subscription(subscription)
        node.destroy_publisher(publisher)
    missing = []
    if info.get("publication_sequence_number") is None:
        missing.append("sequence")
    if info.get("publisher_gid") is None:
        missing.append("publisher_gid")
    return found.without(missing)


def _take_info(subscription: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        taken = subscription.handle.take_message(State, True)
        if taken is not None:
            info: dict[str, Any] = taken[1]
            return info
        time.sleep(0.002)
    return {}
