# SPDX-License-Identifier: Apache-2.0
"""Capture of one ``ros2`` source: discovery, subscriptions, counters, hand-over to the WAL.

Threads: *discovery* looks at the graph four times a second (rclpy does not expose the graph's guard
condition; in an executor each look would cost a rebuilt wait set, ten times the look itself);
*draining* runs in the drainer's thread (:mod:`thadam_ros.node.wait_set`). Discovery alone touches
the set of topics, draining alone moves messages; counters are read by anybody.

A failing type, topic or subscription never stops discovery of the others: it is reported once and
tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from rclpy.node import Node

from thadam_ros.errors import FatalError
from thadam_ros.model.clock import Clock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.model.states import ComponentStatistics, Kind, State
from thadam_ros.node.capabilities import Capabilities
from thadam_ros.node.counters import TopicCounters, TopicStatistics
from thadam_ros.node.raw_subscription import CapturedTopic
from thadam_ros.node.topic_capture import TopicCapture
from thadam_ros.node.topics import Selection, TopicSelector
from thadam_ros.node.types import TypeResolver, Unresolved, graph_hash
from thadam_ros.node.wait_set import CallbackDrainer, Drainer, WaitSetDrainer
from thadam_ros.runtime.redact import redact
from thadam_ros.runtime.state_tracker import StateTracker

#: Seconds between two looks at the graph; a look costs some microseconds a topic.
DISCOVERY_PERIOD_S = 0.25
#: The same just after the start, when publishers that wait for nobody are being discovered.
DISCOVERY_PERIOD_FIRST_S = 0.03
DISCOVERY_FIRST_S = 10.0
#: Every so many looks the publishers of all topics are read, changed or not.
FULL_LOOK_EVERY = 8
#: Topics that the details list by name; the rest is in the sums.
DETAIL_TOPICS_MAX = 200
#: Refusals and bugs degrade the source until this long after the last one.
_RECENT_S = 5.0


class Wal(Protocol):
    """What capture needs of :class:`thadam_ros.wal.writer.WalWriter`."""

    def declare_topic(self, declaration: TopicDeclaration) -> int: ...

    def declare_publisher(self, gid: bytes) -> int: ...

    def append(self, batch: SourceBatch) -> bool: ...


class RosCapture:
    """Captures the topics of one source from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        node: Node,
        source_name: str,
        selector: TopicSelector,
        wal: Wal,
        resolver: TypeResolver,
        capabilities: Capabilities,
        *,
        own_topics: Callable[[], Collection[str]],
        on_fatal: Callable[[BaseException], None],
        clock: Clock,
        counters: dict[str, TopicCounters],
    ) -> None:
        """Prepare; nothing is subscribed before :meth:`start`.

        Args:
            counters: Topic -> counters since process start; filled here.
            own_topics: Topics that this process publishes.
            on_fatal: Told when the WAL can take nothing any more.
        """
        self._node = node
        self.source_name = source_name
        self._selector = selector
        self._wal = wal
        self._resolver = resolver
        self._capabilities = capabilities
        self._own_topics = own_topics
        self._on_fatal = on_fatal
        self._counters = counters
        self._topics: dict[str, TopicCapture] = {}
        self._by_ref: dict[int, CapturedTopic] = {}
        self._unknown: dict[str, str] = {}
        self._troubled: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._looks = 0
        self._stopping = threading.Event()
        self._paused = False
        self._tracker = StateTracker(clock)
        self._bugs = 0
        self._bug_text = ""
        self._bug_at = self._refused_at = float("-inf")
        self._drainer: Drainer | None = None

    def start(self) -> None:
        """Begin to capture; the first look at the graph is taken before this returns."""
        node, capabilities = self._node, self._capabilities
        if capabilities.wait_set:
            self._drainer = WaitSetDrainer(
                node, self.source_name, self._deliver, self._bug, f"capture-{self.source_name}"
            )
        else:
            self._drainer = CallbackDrainer(
                node, self.source_name, self._deliver, self._bug, drain=capabilities.drain
            )
        self._look()
        self._discovery = threading.Thread(
            target=self._discover, name=f"discovery-{self.source_name}"
        )
        self._discovery.start()

    def stop(self, timeout_s: float) -> bool:
        """Take what waits, hand it over, and give all subscriptions back.

        Returns:
            False when a thread did not end in time; the subscriptions stay then.
        """
        self._stopping.set()
        drainer = self._drainer
        if drainer is None:
            return True
        self._discovery.join(timeout_s)
        if self._discovery.is_alive() or not drainer.close(timeout_s):
            return False
        self._drainer = None
        for topic in self._topics.values():
            topic.close()
        self._resolver.close()
        return True

    def pause(self, paused: bool) -> None:
        """Refuse (and count) everything while ``paused``."""
        self._paused = paused

    @property
    def ended(self) -> bool:
        """Whether it was stopped; it is not started again."""
        return self._stopping.is_set()

    @property
    def paused(self) -> bool:
        """Whether messages are refused on request."""
        return self._paused

    # Draining thread.

    def _deliver(self, batch: SourceBatch) -> None:
        try:
            taken = not self._paused and self._wal.append(batch)
        except FatalError as exc:
            self._refuse(batch)
            self._on_fatal(exc)
            return
        if not taken:
            self._refuse(batch)

    def _refuse(self, batch: SourceBatch) -> None:
        for ref in batch.topic_refs:
            self._by_ref[ref].counters.refused += 1
        if not self._paused:
            self._refused_at = time.monotonic()

    def _bug(self, exc: BaseException) -> None:
        self._bugs += 1
        self._bug_at = time.monotonic()
        self._bug_text = redact(exc)
        self._node.get_logger().error(f"source {self.source_name}: {self._bug_text}")

    # Discovery.

    def _discover(self) -> None:
        hurried_until = time.monotonic() + DISCOVERY_FIRST_S
        period_s = DISCOVERY_PERIOD_FIRST_S
        while not self._stopping.wait(period_s):
            if time.monotonic() > hurried_until:
                period_s = DISCOVERY_PERIOD_S
            self._look()

    def _look(self) -> None:
        self._looks += 1
        if self._looks % FULL_LOOK_EVERY == 0:
            self._counts.clear()
        try:
            own = self._own_topics()
            for name, _types in self._node.get_topic_names_and_types():
                if self._stopping.is_set():
                    return
                self._look_at(name, own)
        except BaseException as exc:  # noqa: BLE001 - the edge of this component (spec 1.6)
            self._bug(exc)

    def _look_at(self, name: str, own: Collection[str]) -> None:
        topic = self._topics.get(name)
        if topic is None:
            selection = self._selector.select(name, own)
            if selection is not None:
                self._guarded(name, lambda: self._begin(selection))
            return
        topic.look()
        count = self._node.count_publishers(name)
        if not topic.wants_update and self._counts.get(name) == count:
            return
        self._counts[name] = count
        endpoints = self._node.get_publishers_info_by_topic(name)
        self._guarded(name, lambda: topic.update(endpoints))
        if topic.outlived:
            # The next look begins anew, with the type that is spoken now.
            topic.leave()
            del self._topics[name]

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Run one topic's work; whatever it raises is reported once and tried again later."""
        try:
            work()
            self._troubled.pop(name, None)
        except Exception as exc:  # noqa: BLE001 - one topic must not stop the others
            text = redact(exc)
            if self._troubled.get(name) != text:
                self._troubled[name] = text
                self._node.get_logger().error(f"topic {name}: {text}; it will be tried again")

    def _begin(self, selection: Selection) -> None:
        name = selection.name
        endpoints = self._node.get_publishers_info_by_topic(name)
        if not endpoints or self._drainer is None:
            return
        first = endpoints[0]
        resolved = self._resolver.resolve(
            first.topic_type,
            graph_hash(first, self._capabilities),
            (first.node_name, first.node_namespace),
        )
        if isinstance(resolved, Unresolved):
            if resolved is Unresolved.UNKNOWN and self._unknown.get(name) != first.topic_type:
                self._unknown[name] = first.topic_type
                self._node.get_logger().warning(
                    f"topic {name}: type {first.topic_type} cannot be captured, "
                    f"{resolved.value}; it is looked for again"
                )
            return
        self._unknown.pop(name, None)
        ref = self._wal.declare_topic(
            TopicDeclaration(
                name=name,
                original_name=selection.original_name,
                namespace=self._node.get_namespace(),
                type_name=resolved.type_name,
                encoding="cdr",
                definition=resolved.definition,
                type_hash=resolved.type_hash,
                hash_origin=resolved.hash_origin,
            )
        )
        counters = self._counters.setdefault(name, TopicCounters())
        counters.restart()
        captured = CapturedTopic(
            name,
            ref,
            selection.options,
            self._wal.declare_publisher,
            counters,
            use_sequence=self._capabilities.sequence,
            use_gid=self._capabilities.publisher_gid,
        )
        self._by_ref[ref] = captured
        topic = TopicCapture(
            self._node,
            selection,
            resolved,
            captured,
            self._drainer,
            self._capabilities,
            self._subscribe_name(selection),
        )
        self._topics[name] = topic
        self._counts[name] = len(endpoints)
        topic.update(endpoints)

    def _subscribe_name(self, selection: Selection) -> str:
        """Return a name that the node's remappings turn into the selected topic.

        Raises:
            ValueError: If a remapping leads every name we know elsewhere.
        """
        for name in (selection.name, selection.original_name):
            if self._node.resolve_topic_name(name) == selection.name:
                return name
        raise ValueError(f"a remapping of this node turns {selection.name} into another topic")

    # Speaking.

    def topic_statistics(self) -> tuple[TopicStatistics, ...]:
        """Return the counters of every captured topic, by name."""
        return tuple(topic.statistics() for _, topic in sorted(self._topics.copy().items()))

    def statistics(self) -> ComponentStatistics:
        """Return the source's statistics; details hold one line per topic."""
        topics = self.topic_statistics()
        counters = list(self._counters.copy().values())
        self._update_state(topics)
        details: dict[str, Any] = {
            "topics": len(topics),
            "unknown_types": len(self._unknown),
            "bugs": self._bugs,
            "taking": "wait_set" if self._capabilities.wait_set else "callback",
        }
        details.update((t.name, _line(t)) for t in topics[:DETAIL_TOPICS_MAX])
        return ComponentStatistics(
            name=f"source.{self.source_name}",
            kind=Kind.SOURCE,
            state=self._tracker.current,
            node=self._node.get_fully_qualified_name(),
            restarts=self._bugs,
            received=sum(c.received for c in counters),
            delivered=sum(c.received - c.refused for c in counters),
            lost=sum(c.lost() for c in counters),
            refused=sum(c.refused for c in counters),
            details={key: str(value) for key, value in details.items()},
        )

    def _update_state(self, topics: tuple[TopicStatistics, ...]) -> None:
        degraded, update = State.DEGRADED, self._tracker.update
        now = time.monotonic()
        unknown = sorted(self._unknown.copy().items())
        trouble = sorted(self._troubled.copy().items())
        captures = self._topics.copy()
        incompatible = sorted(n for n, t in captures.items() if t.incompatible)
        mismatched = sorted(n for n, t in captures.items() if t.mismatched)
        if self._drainer is None:
            update(State.STOPPED, "stopped", "not capturing; activate the node to begin")
        elif now - self._bug_at < _RECENT_S:
            update(degraded, "bug", "capture goes on after an unexpected exception", self._bug_text)
        elif trouble:
            name, text = trouble[0]
            update(degraded, "bug", f"{name} cannot be subscribed, retried", text)
        elif self._paused:
            update(degraded, "stopped", "paused on request; call ~/pause with data: false")
        elif now - self._refused_at < _RECENT_S:
            update(degraded, "wal_full", "the WAL takes no messages; they are counted as refused")
        elif unknown:
            name, type_name = unknown[0]
            update(
                degraded,
                "type_unknown",
                f"{type_name} of {name} is not installed here; install its package "
                f"({len(unknown)} topic(s) wait)",
            )
        elif incompatible:
            update(
                degraded,
                "qos_incompatible",
                f"a publisher of {incompatible[0]} offers less than the configured QoS asks for; "
                "loosen sources.<name>.topics or qos_overrides",
            )
        elif mismatched:
            update(
                degraded,
                "type_mismatch",
                f"publishers of {mismatched[0]} disagree about its type; make them use one version",
            )
        else:
            update(State.RUNNING, "ok", f"capturing {len(topics)} topic(s)")


def _line(topic: TopicStatistics) -> str:
    return (
        f"type={topic.type_name} received={topic.received} bytes={topic.received_bytes} "
        f"lost={topic.lost} lost_method={topic.lost_method} refused={topic.refused} "
        f"rate_limited={topic.rate_limited} oversized={topic.oversized} "
        f"repeated={topic.repeated} incompatible_qos={topic.incompatible_qos} "
        f"type_mismatch={topic.type_mismatch} publishers={topic.publishers} depth={topic.depth}"
    )
