# SPDX-License-Identifier: Apache-2.0
"""Which messages may be missing, and how long the loss window of a kill was (spec 8.1).

A SIGKILL may cost what was not yet durable, at most one commit interval and some slack, and what
was published before the restarted process was matched. Everything else that a reliable publisher
sent to a matched subscription must be in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def missing_messages(ledger: Ledger, contents: WalContents, *, reliable: bool) -> list[Sent]:
    """Return the messages of reliable (or best-effort) publishers that never arrived."""
    missing: list[Sent] = []
    for publisher in ledger.publishers:
        if publisher.reliable is reliable:
            numbers = set(contents.missing[publisher.index])
            missing.extend(s for s in ledger.sent[publisher.index] if s.number in numbers)
    return missing


def unexplained_losses(
    ledger: Ledger, contents: WalContents, kills: Sequence[int], commit_interval_ns: int
) -> list[Sent]:
    """Return the missing messages of reliable publishers that no kill explains.

    Args:
        kills: Wall clock of each SIGKILL.
    """
    window_ns = commit_interval_ns + SLACK_NS
    ends = [_first_numbers_after(contents, killed_ns) for killed_ns in kills]
    latched = {p.index for p in ledger.publishers if p.latched}
    return [
        sent
        for sent in missing_messages(ledger, contents, reliable=True)
        # A latched message is asked for again by the next process: no kill explains its loss.
        if sent.publisher in latched
        or not any(
            sent.sent_ns >= killed_ns - window_ns
            and sent.number < after.get(sent.publisher, sent.number + 1)
            for killed_ns, after in zip(kills, ends, strict=True)
        )
    ]


def kill_losses(ledger: Ledger, contents: WalContents, kills: Sequence[int]) -> list[KillLoss]:
    """Return what each kill cost the reliable publishers.

    Args:
        kills: Wall clock of each SIGKILL, ascending.
    """
    missing = missing_messages(ledger, contents, reliable=True)
    found = []
    for index, killed_ns in enumerate(kills):
        earliest = kills[index - 1] if index else 0
        latest = kills[index + 1] if index + 1 < len(kills) else None
        after = _first_numbers_after(contents, killed_ns)
        of_kill = [s for s in missing if s.number < after.get(s.publisher, s.number + 1)]
        before = [
            s for s in of_kill if s.sent_ns < killed_ns and s.sent_ns > _midway(earliest, killed_ns)
        ]
        later = [
            s for s in of_kill if s.sent_ns >= killed_ns and (latest is None or s.sent_ns < latest)
        ]
        taken = [a.ingest_ns for a in contents.arrived if a.ingest_ns > killed_ns]
        blind_ns = min(taken) - killed_ns if taken else None
        window_ns = max((killed_ns - s.sent_ns for s in before), default=0)
        found.append(KillLoss(killed_ns, len(before), window_ns, len(later), blind_ns))
    return found


def _midway(earlier_ns: int, later_ns: int) -> int:
    """What went missing nearer to the earlier kill belongs to that one."""
    return (earlier_ns + later_ns) // 2 if earlier_ns else 0


def _first_numbers_after(contents: WalContents, killed_ns: int) -> dict[int, int]:
    """Return, per publisher, the lowest number taken after the kill for the first time."""
    seen: set[tuple[int, int]] = set()
    first: dict[int, int] = {}
    for arrived in contents.arrived:
        key = (arrived.publisher, arrived.number)
        if arrived.ingest_ns > killed_ns and key not in seen:
            known = first.get(arrived.publisher, arrived.number)
            first[arrived.publisher] = min(known, arrived.number)
        seen.add(key)
    return first
