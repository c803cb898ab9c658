# SPDX-License-Identifier: Apache-2.0
"""The balance sheet: every published message is accounted for, once (spec 7.7).

``published + received_again = delivered + quarantined + deduplicated + filtered + unmatched +
refused + lost``. The left side comes from the publisher's ledger and the write-ahead log, the
outcomes from the chain's stamped state, the losses from the numbers missing in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.chain.cursor import Cursor, read_cursor_document
from thadam_ros.chain.state import ChainState
from thadam_ros.node.demo.arrivals import WalContents
from thadam_ros.node.demo.ledger import Ledger
from thadam_ros.storage.atomic import read_whole
from thadam_ros.storage.filesystem import FileSystem

OUTCOMES = ("delivered", "quarantined", "deduplicated", "filtered", "unmatched")


@dataclass(frozen=True, slots=True)
class Line:
    """One topic's line; all in messages."""

    topic: str
    published: int
    received_again: int
    delivered: int
    quarantined: int
    deduplicated: int
    filtered: int
    unmatched: int
    refused: int
    lost: int

    @property
    def difference(self) -> int:
        """Left side minus right side; anything but 0 is a message nobody can account for."""
        return (self.published + self.received_again) - (
            self.delivered
            + self.quarantined
            + self.deduplicated
            + self.filtered
            + self.unmatched
            + self.refused
            + self.lost
        )


def make_sheet(
    ledger: Ledger, contents: WalContents, counts: ChainCounts, refused: Mapping[str, int]
) -> list[Line]:
    """Return one line per topic, in the ledger's order, then topics only the chain knows.

    Args:
        counts: From the stamped state of the chain.
        refused: Topic -> messages capture refused; they are not in the log and not lost.
    """
    topics = list(dict.fromkeys([*ledger.topics, *sorted(counts.messages)]))
    return [_line(topic, ledger, contents, counts, refused.get(topic, 0)) for topic in topics]


def _line(
    topic: str, ledger: Ledger, contents: WalContents, counts: ChainCounts, refused: int
) -> Line:
    publishers = [p.index for p in ledger.publishers if p.topic == topic]
    missing = sum(len(contents.missing[index]) for index in publishers)
    outcomes: Mapping[str, int] = counts.messages.get(topic, {})
    refused = min(refused, missing)
    return Line(
        topic=topic,
        published=ledger.published(topic),
        received_again=contents.again[topic],
        delivered=outcomes.get("delivered", 0),
        quarantined=outcomes.get("quarantined", 0),
        deduplicated=outcomes.get("deduplicated", 0),
        filtered=outcomes.get("filtered", 0),
        unmatched=outcomes.get("unmatched", 0),
        refused=refused,
        lost=missing - refused,
    )


def total(lines: Iterable[Line]) -> Line:
    """Return the sum of all lines."""
    lines = list(lines)

    sums = {
        name: sum(int(getattr(line, name)) for line in lines)
        for name in ("published", "received_again", *OUTCOMES, "refused", "lost")
    }
    return Line("total", **sums)


def stamped_counts(chain_dir: str, fs: FileSystem) -> tuple[Cursor, ChainCounts]:
    """Return the cursor of a chain and the counts of the state file it names.

    Raises:
        FormatError: If either is damaged.
        OSError: From the filesystem.
    """
    found = read_cursor_document(os.path.join(chain_dir, "cursor"), fs)
    if found is None:
        return Cursor(), ChainCounts()
    cursor, document = found
    raw = read_whole(fs, os.path.join(chain_dir, str(document["state"])))
    return cursor, ChainState.decode(raw).counts
