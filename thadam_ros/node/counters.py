# SPDX-License-Identifier: Apache-2.0
"""What is counted per captured topic, and losses by publication sequence numbers (spec 7.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Gaps remembered per publisher, so that late arrivals can close them; older gaps stay losses.
GAPS_MAX = 256


class PublisherSequence:
    """The numbers seen from one publisher: a range with gaps.

    A publisher numbers its messages per topic, one after another. The first number seen is no
    loss: whatever came before was published before this subscription. A number inside the range
    that fills no gap was taken before, by another subscription of the same topic.

    Attributes:
        lost: Numbers inside the range that have not been seen.
    """

    __slots__ = ("_gaps", "_history", "first", "last", "lost", "ref")

    def __init__(self, ref: int) -> None:
        self.ref = ref
        self.first = 0
        self.last = -1
        self.lost = 0
        # First missing number -> one past the last missing.
        self._gaps: dict[int, int] = {}
        self._history: dict[int, int] = {}

    def observe(self, number: int) -> bool:
        """Note ``number``; return False when it was seen before."""
        last = self.last
        if number == last + 1 and last >= 0:
            self.last = number
            return True
        if last < 0:
            self.first = self.last = number
            return True
        if number > last:
            self.lost += number - last - 1
            _remember(self._gaps, last + 1, number)
            self.last = number
            return True
        if number < self.first:
            # History of a latched topic, delivered after newer messages: what lies between may
            # still come, or was overwritten before this subscription existed; no loss either way.
            if number + 1 < self.first:
                _remember(self._history, number + 1, self.first)
            self.first = number
            return True
        if _fill(self._gaps, number):
            self.lost -= 1
            return True
        return _fill(self._history, number)


def _remember(gaps: dict[int, int], begin: int, end: int) -> None:
    gaps[begin] = end
    if len(gaps) > GAPS_MAX:
        del gaps[next(iter(gaps))]


def _fill(gaps: dict[int, int], number: int) -> bool:
    """Take ``number`` out of the gap that holds it; False when none does."""
    for begin, end in gaps.items():
        if begin <= number < end:
            del gaps[begin]
            if begin < number:
                gaps[begin] = number
            if number + 1 < end:
                gaps[number + 1] = end
            return True
    return False


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """Counters of one captured topic since process start.

    Attributes:
        lost: Messages known to have been published and never seen.
        lost_method: ``sequence`` (gaps in publication numbers), ``message_lost`` (the middleware
            said so) or ``none``.
        refused: Taken from the middleware and not captured: full WAL, pause, rate or size limit.
        rate_limited: Part of ``refused`` due to ``max_rate``.
        oversized: Part of ``refused`` due to ``max_payload``.
        repeated: Seen through two subscriptions of this process; captured once.
        incompatible_qos: Publishers whose QoS does not reach what the configuration asks for.
        type_mismatch: Publishers that speak another type, or the same type with another hash.
    """

    name: str
    type_name: str
    type_hash: str
    received: int
    received_bytes: int
    lost: int
    lost_method: str
    refused: int
    rate_limited: int
    oversized: int
    repeated: int
    incompatible_qos: int
    type_mismatch: int
    publishers: int
    depth: int


@dataclass(slots=True)
class TopicCounters:
    """Mutable counters of one topic; written by the capturing thread only."""

    received: int = 0
    received_bytes: int = 0
    refused: int = 0
    rate_limited: int = 0
    oversized: int = 0
    repeated: int = 0
    message_lost_events: int = 0
    #: Losses of publishers that are gone from the graph.
    lost_before: int = 0
    #: Whether message infos carried numbers that could be attributed to a publisher.
    sequenced: bool = False
    publishers: dict[bytes, PublisherSequence] = field(default_factory=dict)

    def lost(self) -> int:
        """Return the losses by the best method there is."""
        if not self.sequenced:
            return self.message_lost_events
        present = list(self.publishers.values())
        return self.lost_before + sum(publisher.lost for publisher in present)

    def forget_publisher(self, gid: bytes) -> None:
        """Drop a publisher that is gone, keeping its losses."""
        gone = self.publishers.pop(gid, None)
        if gone is not None:
            self.lost_before += gone.lost

    def restart(self) -> None:
        """Begin a new subscription: what was published meanwhile is no loss of ours."""
        for gid in list(self.publishers):
            self.forget_publisher(gid)
