# SPDX-License-Identifier: Apache-2.0
"""Topics being captured, and the loop that moves their messages into a source batch (spec 7.2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from thadam_ros.config.schema import TopicOptions
from thadam_ros.model.message import SourceBatch
from thadam_ros.node.counters import PublisherSequence, TopicCounters

#: Per wake and subscription, so that one busy topic cannot starve the others.
MESSAGES_PER_WAKE_MAX = 256
BYTES_PER_WAKE_MAX = 8 << 20

#: A raw message with its info, as ``take_message`` returns them.
Taken = tuple[bytes, Any]


class CapturedTopic:
    """One topic: its reference in the WAL, its counters, its limits.

    Used by the capturing thread only, except for the counters, which others read.

    Attributes:
        only_publisher: gid of the topic's publisher while the graph shows exactly one; what infos
            without a gid are attributed to.
    """

    def __init__(
        self,
        name: str,
        topic_ref: int,
        options: TopicOptions,
        declare_publisher: Callable[[bytes], int],
        counters: TopicCounters,
        *,
        use_sequence: bool,
        use_gid: bool,
    ) -> None:
        self.name = name
        self.topic_ref = topic_ref
        self.counters = counters
        self.only_publisher: bytes | None = None
        self._declare_publisher = declare_publisher
        self._use_sequence = use_sequence
        self._use_gid = use_gid
        self._max_payload = options.max_payload_bytes
        self._min_period_ns = (
            0 if options.max_rate_hz is None else round(1_000_000_000 / options.max_rate_hz)
        )
        self._next_allowed_ns = 0

    def publisher(self, gid: bytes) -> PublisherSequence:
        """Return the state of a publisher, declaring it to the WAL at first sight."""
        known = self.counters.publishers.get(gid)
        if known is None:
            known = PublisherSequence(self._declare_publisher(gid))
            self.counters.publishers[gid] = known
        return known

    def admit(self, taken: Taken, batch: SourceBatch) -> int:
        """Append one taken message to ``batch`` unless it is refused; return its size in bytes."""
        payload, info = taken
        counters = self.counters
        publisher_ref = 0
        number = info.get("publication_sequence_number") if self._use_sequence else None
        gid = self._gid_of(info)
        if gid is not None:
            publisher = counters.publishers.get(gid) or self.publisher(gid)
            publisher_ref = publisher.ref
            if number is not None:
                counters.sequenced = True
                if not self._use_gid and number <= publisher.last:
                    # Somebody else speaks: until discovery has looked, nobody knows who.
                    self.only_publisher = None
                    number, publisher_ref = None, 0
                elif not publisher.observe(number):
                    counters.repeated += 1
                    return 0
        else:
            number = None  # a number means nothing without its publisher
        size = len(payload)
        counters.received += 1
        counters.received_bytes += size
        if self._max_payload is not None and size > self._max_payload:
            counters.oversized += 1
            counters.refused += 1
            return 0
        now_ns = time.time_ns()
        if self._min_period_ns and not self._within_rate():
            counters.rate_limited += 1
            counters.refused += 1
            return 0
        batch.topic_refs.append(self.topic_ref)
        batch.ingest_times_ns.append(now_ns)
        batch.payloads.append(payload)
        batch.source_timestamps_ns.append(info.get("source_timestamp") or 0)
        batch.sequences.append(0 if number is None else number + 1)
        batch.publisher_refs.append(publisher_ref)
        return size

    def _gid_of(self, info: Any) -> bytes | None:
        if not self._use_gid:
            return self.only_publisher
        gid = info.get("publisher_gid")
        if gid is None:
            # Only now is it known that this middleware does not name publishers.
            self._use_gid = False
            return self.only_publisher
        data: bytes = gid["data"]
        return data

    @property
    def names_publishers(self) -> bool:
        """Whether message infos name the publisher, as far as it is known."""
        return self._use_gid

    def _within_rate(self) -> bool:
        now_ns = time.monotonic_ns()
        if now_ns < self._next_allowed_ns:
            return False
        # Steps of whole periods keep the long-term rate; a pause is not made up for by a burst.
        late = now_ns - self._next_allowed_ns > self._min_period_ns
        self._next_allowed_ns = (now_ns if late else self._next_allowed_ns) + self._min_period_ns
        return True


class RawSubscription:
    """One raw subscription of a topic, and how to take from it."""

    def __init__(self, topic: CapturedTopic, subscription: Any, message_class: type) -> None:
        self.topic = topic
        self.subscription = subscription
        self.message_class = message_class
        self.pointer: int = subscription.handle.pointer
        self._take = getattr(subscription.handle, "take_message", None)

    def drain(
        self,
        batch: SourceBatch,
        messages_max: int = MESSAGES_PER_WAKE_MAX,
        bytes_max: int = BYTES_PER_WAKE_MAX,
    ) -> bool:
        """Take what waits, up to the limits; return True when more may be waiting."""
        take, message_class, admit = self._take, self.message_class, self.topic.admit
        assert take is not None
        total = 0
        for _ in range(messages_max):
            taken = take(message_class, True)
            if taken is None:
                return False
            total += admit(taken, batch)
            if total >= bytes_max:
                break
        return True
