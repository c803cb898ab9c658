# SPDX-License-Identifier: Apache-2.0
"""Everything the demo holds against what must be, each with both figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.chain.cursor import Cursor
from thadam_ros.node.demo.arrivals import WalContents
from thadam_ros.node.demo.balance import Line
from thadam_ros.node.demo.expectations import (
    SCAN_INFINITIES,
    Arrival,
    RobotPlan,
    expect,
)
from thadam_ros.node.demo.ledger import Ledger
from thadam_ros.node.demo.losses import unexplained_losses
from thadam_ros.node.demo.tables import TableFigures


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison."""

    name: str
    expected: object
    found: object

    @property
    def is_fine(self) -> bool:
        """Whether both are equal."""
        return self.expected == self.found


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What one sink's chain left on disk.

    Attributes:
        datasets: The datasets it takes.
        rejects: Code -> rejects in its staging.
    """

    name: str
    datasets: tuple[str, ...]
    cursor: Cursor
    counts: ChainCounts
    rejects: Counter[str]
    tables: TableFigures


def capture_checks(
    ledger: Ledger, contents: WalContents, kills: Sequence[int], commit_interval_ns: int
) -> list[Check]:
    """Check the log against the publisher's ledger."""
    unexplained = unexplained_losses(ledger, contents, kills, commit_interval_ns)
    topics = {p.index: p.topic for p in ledger.publishers}
    return [
        Check("the publisher finished", True, ledger.end_ns > 0),
        Check("messages in the log that nobody published", {}, dict(contents.unknown)),
        Check("messages in the log with other bytes", {}, dict(contents.altered)),
        Check(
            "reliable messages lost without a kill as the cause",
            {},
            dict(Counter(topics[sent.publisher] for sent in unexplained)),
        ),
        Check("damaged ranges of the log", 0, contents.damaged_ranges),
        Check("missing segments of the log", 0, contents.gaps),
    ]


def sheet_checks(sink: str, sheet: Iterable[Line]) -> list[Check]:
    """Check that every topic's difference is 0."""
    wrong = {line.topic: line.difference for line in sheet if line.difference}
    return [Check(f"{sink}: balance sheet, topics with a difference", {}, wrong)]


def sink_checks(facts: SinkFacts, contents: WalContents) -> list[Check]:
    """Check what must hold for any input: drained, exactly once, counts equal files."""
    name = facts.name
    # A sink's folder knows only datasets with rows; so do the counts here.
    rows = {key: count for key, count in facts.counts.rows.items() if count}
    return [
        Check(f"{name}: cursor at the end of the log", contents.last, facts.cursor.position),
        Check(f"{name}: frames worked off", contents.frames, facts.counts.frames),
        Check(f"{name}: rows in Parquet", rows, dict(facts.tables.rows)),
        Check(f"{name}: distinct event ids", rows, dict(facts.tables.event_ids)),
        Check(
            f"{name}: flagged rows in Parquet",
            dict(sorted(facts.counts.flagged.items())),
            dict(sorted(facts.tables.flagged.items())),
        ),
        Check(
            f"{name}: rejects in staging",
            dict(sorted(facts.counts.rejects.items())),
            dict(sorted(facts.rejects.items())),
        ),
    ]


def arrivals_of(ledger: Ledger, contents: WalContents) -> list[Arrival]:
    """Return the arrived messages as the expectations see them."""
    streams = [publisher.stream for publisher in ledger.publishers]
    sent = [{s.number: s for s in messages} for messages in ledger.sent]
    return [
        Arrival(
            streams[arrived.publisher],
            arrived.number,
            arrived.ingest_ns,
            sent[arrived.publisher][arrived.number].stamp_ns,
            arrived.is_numbered,
        )
        for arrived in contents.arrived
    ]


def robot_checks(
    plan: RobotPlan, ledger: Ledger, arrivals: Sequence[Arrival], facts: SinkFacts
) -> list[Check]:
    """Check the robot's known figures: outcomes, rows, flags and rejects of one sink."""
    expected = expect(plan, arrivals, facts.datasets)
    topics = {stream.topic: stream.topic for stream in plan.streams}
    by_stream = {stream.key: stream.topic for stream in plan.streams}
    for publisher in ledger.publishers:
        topics[by_stream[publisher.stream]] = publisher.topic
    checks = [
        Check(
            f"{facts.name}: outcomes of {topics[topic]}",
            _positive(outcomes),
            _positive(facts.counts.messages.get(topics[topic], {})),
        )
        for topic, outcomes in expected.messages.items()
    ]
    checks += [
        Check(f"{facts.name}: rows", _positive(expected.rows), _positive(facts.counts.rows)),
        Check(f"{facts.name}: flags", _positive(expected.flagged), _positive(facts.counts.flagged)),
        Check(f"{facts.name}: rejects", _positive(expected.rejects), _positive(facts.rejects)),
    ]
    if "scan" in facts.datasets:
        infinities = expected.rows["scan"] * SCAN_INFINITIES
        checks.append(Check(f"{facts.name}: infinite ranges", infinities, facts.tables.infinities))
    return checks


def published_checks(plan: RobotPlan, ledger: Ledger) -> list[Check]:
    """Check that the robot published its plan, message for message."""
    planned = {stream.key: stream.count for stream in plan.streams}
    published = {p.stream: len(ledger.sent[p.index]) for p in ledger.publishers}
    return [Check("messages published by the robot", planned, published)]


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {key: counts[key] for key in sorted(counts) if counts[key]}
