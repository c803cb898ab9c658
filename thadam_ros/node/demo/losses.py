# SPDX-License-Identifier: Apache-2.0
"""Which messages may be missing, and how long the loss window of a kill was (spec 8.1).

A SIGKILL may cost what was not yet durable, at most one commit interval and some slack, and what
was published before the restarted process was matched. Everything else that a reliable publisher
sent to a matched subscription must be in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from thadam_ros.node.demo.arrivals import WalContents
from thadam_ros.node.demo.ledger import Ledger, Sent

#: Added to the commit interval: the frame is written and synced, the thread is scheduled.
SLACK_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class KillLoss:
    """What one kill cost.

    Attributes:
        killed_ns: Wall clock of the SIGKILL.
        before: Messages published before the kill and not in the log.
        window_ns: Age of the oldest of them at the kill, 0 without any.
        after: Messages published after the kill that no process took.
        blind_ns: Time from the kill to the first message that the next process took; None when
            it took none.
    """

    killed_ns: int
    before: int
    window_ns: int
    after: int
    blind_ns: int | None


@dataclass(frozen=True, slots=True)
class _Life:
    """One process: from the kill before it (0 at the start) to its own (None at the end).

    Attributes:
        first: Publisher -> lowest number this process was the first to take.
    """

    begin_ns: int
    end_ns: int | None
    first: Mapping[int, int]

    def covers(self, sent: Sent) -> bool:
        return self.begin_ns <= sent.sent_ns and (self.end_ns is None or sent.sent_ns < self.end_ns)

    def listened_to(self, sent: Sent) -> bool:
        """Tell whether the process was taking this publisher's messages when this one came."""
        return sent.number > self.first.get(sent.publisher, sent.number)


def missing_messages(ledger: Ledger, contents: WalContents, *, reliable: bool) -> list[Sent]:
    """Return the messages of reliable (or best-effort) publishers that never arrived.

    Where messages do not name their publisher, a topic with a best-effort publisher is captured by
    one best-effort subscription: nothing on it is reliable then.
    """
    missing: list[Sent] = []
    best_effort = {p.topic for p in ledger.publishers if not p.reliable}
    weak = {topic for topic in best_effort if contents.anonymous[topic]}
    for publisher in ledger.publishers:
        if (publisher.reliable and publisher.topic not in weak) is reliable:
            numbers = set(contents.missing[publisher.index])
            missing.extend(s for s in ledger.sent[publisher.index] if s.number in numbers)
    return missing


def unexplained_losses(
    ledger: Ledger, contents: WalContents, kills: Sequence[int], commit_interval_ns: int
) -> list[Sent]:
    """Return the missing messages of reliable publishers that no kill explains.

    Args:
        kills: Wall clock of each SIGKILL, ascending.
    """
    window_ns = commit_interval_ns + SLACK_NS
    lives = _lives(contents, kills)
    # A latched message is asked for again by the next process: no kill explains its loss.
    latched = {p.index for p in ledger.publishers if p.latched}

    def is_explained(sent: Sent) -> bool:
        if sent.publisher in latched:
            return False
        life = next(life for life in lives if life.covers(sent))
        if life.end_ns is not None and sent.sent_ns >= life.end_ns - window_ns:
            return True
        # The first process was matched before anything was said.
        return life.begin_ns > 0 and not life.listened_to(sent)

    missing = missing_messages(ledger, contents, reliable=True)
    return [sent for sent in missing if not is_explained(sent)]


def kill_losses(ledger: Ledger, contents: WalContents, kills: Sequence[int]) -> list[KillLoss]:
    """Return what each kill cost the reliable publishers.

    Args:
        kills: Wall clock of each SIGKILL, ascending.
    """
    missing = missing_messages(ledger, contents, reliable=True)
    lives = _lives(contents, kills)
    found = []
    for killed, following in pairwise(lives):
        assert killed.end_ns is not None
        killed_ns = killed.end_ns
        before = [s for s in missing if killed.covers(s) and killed.listened_to(s)]
        after = [s for s in missing if following.covers(s) and not following.listened_to(s)]
        taken = [a.ingest_ns for a in contents.arrived if a.ingest_ns > killed_ns]
        found.append(
            KillLoss(
                killed_ns=killed_ns,
                before=len(before),
                window_ns=max((killed_ns - s.sent_ns for s in before), default=0),
                after=len(after),
                blind_ns=min(taken) - killed_ns if taken else None,
            )
        )
    return found


def _lives(contents: WalContents, kills: Sequence[int]) -> list[_Life]:
    """Return one life per process, in order."""
    edges = [0, *kills, None]
    first: list[dict[int, int]] = [{} for _ in range(len(kills) + 1)]
    seen: set[tuple[int, int]] = set()
    for arrived in contents.arrived:
        key = (arrived.publisher, arrived.number)
        if key not in seen:
            seen.add(key)
            of_life = first[bisect_left(kills, arrived.ingest_ns)]
            known = of_life.get(arrived.publisher, arrived.number)
            of_life[arrived.publisher] = min(known, arrived.number)
    return [
        _Life(begin or 0, end, numbers)
        for begin, end, numbers in zip(edges, edges[1:], first, strict=False)
    ]
