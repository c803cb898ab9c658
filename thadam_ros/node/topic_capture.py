# SPDX-License-Identifier: Apache-2.0
"""One topic being captured: its subscriptions, as publishers come and go (spec 7.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node

from thadam_ros.node.capabilities import Capabilities, event_module
from thadam_ros.node.counters import TopicStatistics
from thadam_ros.node.qos import (
    DEPTH_BYTES_MAX,
    QosClass,
    default_depth,
    offered_class,
    requested_class,
    requested_classes,
    to_profile,
)
from thadam_ros.node.raw_subscription import CapturedTopic, RawSubscription
from thadam_ros.node.topics import Selection
from thadam_ros.node.types import ResolvedType, graph_hash
from thadam_ros.node.wait_set import Drainer

_events: Any = event_module()

#: The rate of a topic is measured over at least this long.
_RATE_WINDOW_S = 2.0
#: A replaced subscription stays at most this long beside a successor that does not match.
_OVERLAP_MAX_S = 5.0


@dataclass(slots=True)
class _Subscribed:
    raw: RawSubscription
    depth: int
    loss_event: Any


class TopicCapture:
    """Keeps the right subscriptions for one topic; used by the discovery thread only."""

    def __init__(
        self,
        node: Node,
        selection: Selection,
        resolved: ResolvedType,
        captured: CapturedTopic,
        drainer: Drainer,
        capabilities: Capabilities,
        subscribe_name: str,
    ) -> None:
        """Prepare; :meth:`update` subscribes.

        Args:
            subscribe_name: Name that the node's remappings turn into the topic's.
        """
        self._node = node
        self._selection = selection
        self.resolved = resolved
        self.captured = captured
        self._drainer = drainer
        self._capabilities = capabilities
        self._subscribe_name = subscribe_name
        self._subscribed: dict[QosClass, _Subscribed] = {}
        self._leaving: list[_Subscribed] = []
        self._leaving_until = 0.0
        self._publishers: frozenset[bytes] = frozenset()
        self._gone: frozenset[bytes] = frozenset()
        self.incompatible: frozenset[bytes] = frozenset()
        self.mismatched: frozenset[bytes] = frozenset()
        self._incompatible_total = 0
        self._mismatched_total = 0
        self._measured_at = time.monotonic()
        self._measured_received = 0
        self._rate_hz: float | None = None
        self._depth_changed = False

    @property
    def publisher_count(self) -> int:
        """Publishers of any type seen at the last look."""
        return len(self._publishers)

    def update(self, endpoints: Sequence[Any]) -> None:
        """Subscribe to what these publishers offer, and retire what nobody needs any more.

        Args:
            endpoints: ``TopicEndpointInfo`` of every publisher of the topic.
        """
        speaking = [e for e in endpoints if e.topic_type == self.resolved.type_name]
        self._note_mismatches(endpoints)
        self._note_publishers(endpoints, speaking)
        offered = [offered_class(e.qos_profile) for e in speaking]
        options = self._selection.options
        planned = requested_classes(offered, options, self._split)
        self._note_incompatible(speaking)
        if speaking or not self._subscribed:
            for wanted in planned:
                if wanted not in self._subscribed:
                    self._subscribed[wanted] = self._subscribe(wanted, self._depth())
            for present in [q for q in self._subscribed if q not in planned]:
                self._leave(self._subscribed.pop(present))
        self._adapt_depth()
        self._retire(speaking)

    def look(self) -> None:
        """Do what is due whether or not publishers came or went."""
        self._count_losses()
        self._measure()

    @property
    def wants_update(self) -> bool:
        """Whether :meth:`update` is due although no publisher came or went."""
        return bool(self._leaving) or self._depth_changed

    @property
    def outlived(self) -> bool:
        """Whether there are publishers, and all of them speak another type or version of it."""
        return bool(self._publishers) and self.mismatched >= self._publishers

    def leave(self) -> None:
        """Take what waits, then give all subscriptions back while the drainer works on."""
        for subscribed in (*self._subscribed.values(), *self._leaving):
            self._drainer.remove(subscribed.raw)
        self.close()

    def close(self) -> None:
        """Give all subscriptions back; the drainer must be closed or told first."""
        for subscribed in (*self._subscribed.values(), *self._leaving):
            self._destroy(subscribed)
        self._subscribed.clear()
        self._leaving.clear()

    def statistics(self) -> TopicStatistics:
        """Return the topic's counters."""
        counters = self.captured.counters
        method = "none"
        if counters.sequenced:
            method = "sequence"
        elif any(s.loss_event is not None for s in self._subscribed.copy().values()):
            method = "message_lost"
        return TopicStatistics(
            name=self.captured.name,
            type_name=self.resolved.type_name,
            type_hash=self.resolved.type_hash,
            received=counters.received,
            received_bytes=counters.received_bytes,
            lost=counters.lost(),
            lost_method=method,
            refused=counters.refused,
            rate_limited=counters.rate_limited,
            oversized=counters.oversized,
            repeated=counters.repeated,
            incompatible_qos=self._incompatible_total,
            type_mismatch=self._mismatched_total,
            publishers=len(self._publishers),
            depth=max((s.depth for s in self._subscribed.values()), default=0),
        )

    @property
    def _split(self) -> bool:
        """Whether messages seen twice can be told, so that several subscriptions are harmless."""
        return self._capabilities.sequence and self.captured.names_publishers

    def _note_mismatches(self, endpoints: Sequence[Any]) -> None:
        wanted = self.resolved
        mismatched = set()
        for endpoint in endpoints:
            announced = graph_hash(endpoint, self._capabilities)
            other_hash = wanted.hash_origin == "graph" and announced not in ("", wanted.type_hash)
            if endpoint.topic_type != wanted.type_name or other_hash:
                mismatched.add(bytes(endpoint.endpoint_gid))
        self._mismatched_total += len(mismatched - self.mismatched)
        self.mismatched = frozenset(mismatched)

    def _note_publishers(self, endpoints: Sequence[Any], speaking: Sequence[Any]) -> None:
        present = frozenset(bytes(e.endpoint_gid) for e in endpoints)
        for gone in self._gone - present:
            self.captured.counters.forget_publisher(gone)
        # One look later, since its last messages may still wait in a queue.
        self._gone = self._publishers - present
        self._publishers = present
        only = bytes(speaking[0].endpoint_gid) if len(speaking) == 1 else None
        self.captured.only_publisher = only

    def _note_incompatible(self, speaking: Sequence[Any]) -> None:
        incompatible = set()
        for endpoint in speaking:
            offered = offered_class(endpoint.qos_profile)
            if not offered.satisfies(requested_class(offered, self._selection.options)):
                incompatible.add(bytes(endpoint.endpoint_gid))
        self._incompatible_total += len(incompatible - self.incompatible)
        self.incompatible = frozenset(incompatible)

    def _depth(self) -> int:
        if self._selection.options.depth is not None:
            return self._selection.options.depth
        return default_depth(self._rate_hz, self._mean_bytes())

    def _mean_bytes(self) -> float | None:
        counters = self.captured.counters
        return counters.received_bytes / counters.received if counters.received else None

    def _measure(self) -> None:
        """Keep the topic's rate; see whether the queues still suit it."""
        now = time.monotonic()
        elapsed = now - self._measured_at
        if elapsed < _RATE_WINDOW_S:
            return
        received = self.captured.counters.received
        if received != self._measured_received:
            rate = (received - self._measured_received) / elapsed
            # The queue must stand the busiest time, not the last one.
            self._rate_hz = max(rate, self._rate_hz or 0.0)
        self._measured_at, self._measured_received = now, received
        self._depth_changed = any(self._suits_no_more(s) for s in self._subscribed.values())

    def _suits_no_more(self, subscribed: _Subscribed) -> bool:
        mean = self._mean_bytes()
        # Without numbers the messages of the overlap would be captured twice.
        if self._rate_hz is None or mean is None or not self._split:
            return False
        if self._selection.options.depth is not None:
            return False
        wanted = self._depth()
        too_small = wanted > 1.5 * subscribed.depth
        too_big = subscribed.depth * mean > 2 * DEPTH_BYTES_MAX and wanted < subscribed.depth
        return too_small or too_big

    def _adapt_depth(self) -> None:
        """Replace subscriptions whose queue no longer suits the measured rate and size."""
        self._depth_changed = False
        for qos, subscribed in list(self._subscribed.items()):
            if self._suits_no_more(subscribed):
                self._leave(subscribed)
                self._subscribed[qos] = self._subscribe(qos, self._depth())

    def _retire(self, speaking: Sequence[Any]) -> None:
        """Drop replaced subscriptions once their successors are matched with every publisher."""
        if not self._leaving:
            return
        if not self._all_matched(speaking) and time.monotonic() < self._leaving_until:
            return
        while self._leaving:
            leaving = self._leaving.pop()
            self._drainer.remove(leaving.raw)
            self._destroy(leaving)

    def _leave(self, subscribed: _Subscribed) -> None:
        self._leaving.append(subscribed)
        self._leaving_until = time.monotonic() + _OVERLAP_MAX_S

    def _all_matched(self, speaking: Sequence[Any]) -> bool:
        offered = [offered_class(e.qos_profile) for e in speaking]
        for wanted, subscribed in self._subscribed.items():
            expected = sum(1 for one in offered if one.satisfies(wanted))
            if subscribed.raw.subscription.get_publisher_count() < expected:
                return False
        return True

    def _subscribe(self, wanted: QosClass, depth: int) -> _Subscribed:
        def make(callback: Callable[..., None]) -> RawSubscription:
            subscription = self._create(callback, wanted, depth)
            return RawSubscription(self.captured, subscription, self.resolved.message_class)

        raw = self._drainer.add(make)
        return _Subscribed(raw, depth, self._loss_event(raw))

    def _loss_event(self, raw: RawSubscription) -> Any:
        """Return the event to ask for losses, None where numbers tell them or nothing does."""
        if self._split or not self._capabilities.message_lost_event:
            return None
        try:
            return _rclpy.EventHandle(
                raw.subscription.handle,
                _events.QoSSubscriptionEventType.RCL_SUBSCRIPTION_MESSAGE_LOST,
            )
        except _events.UnsupportedEventTypeError:
            return None

    def _count_losses(self) -> None:
        for subscribed in (*self._subscribed.values(), *self._leaving):
            event = subscribed.loss_event
            if event is None:
                continue
            with event:
                status = event.take_event()
            if status is not None:
                self.captured.counters.message_lost_events += status.total_count_change

    def _destroy(self, subscribed: _Subscribed) -> None:
        if subscribed.loss_event is not None:
            subscribed.loss_event.destroy_when_not_in_use()
            subscribed.loss_event = None
        self._node.destroy_subscription(subscribed.raw.subscription)

    def _create(self, callback: Callable[..., None], wanted: QosClass, depth: int) -> Any:
        return self._node.create_subscription(
            self.resolved.message_class,
            self._subscribe_name,
            callback,
            to_profile(wanted, depth),
            callback_group=self._drainer.callback_group,
            # No event handlers: an executor that waits for events of a subscription wakes with
            # every message of it (measured: five times the CPU of the whole capture).
            event_callbacks=_events.SubscriptionEventCallbacks(use_default_callbacks=False),
            raw=True,
        )
