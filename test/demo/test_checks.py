# SPDX-License-Identifier: Apache-2.0
"""A wrong figure is found, whichever it is."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.chain.cursor import Cursor
from thadam_ros.model.position import Position
from thadam_ros.node.demo.arrivals import WalContents
from thadam_ros.node.demo.checks import Check, SinkFacts, robot_checks, sink_checks
from thadam_ros.node.demo.expectations import (
    RULES,
    SCAN_INFINITIES,
    Arrival,
    figures_without_loss,
    make_plan,
)
from thadam_ros.node.demo.ledger import Ledger, Publisher
from thadam_ros.node.demo.screen import Screen
from thadam_ros.node.demo.tables import TableFigures

PLAN = make_plan(12, 1)
LAST = Position(0, 41)


def sound_facts() -> SinkFacts:
    """What a sink leaves that did everything right, without any loss."""
    figures = figures_without_loss(PLAN, tuple(RULES))
    counts = ChainCounts(
        messages=dict(figures.messages),
        rows=figures.rows,
        flagged=figures.flagged,
        rejects=figures.rejects,
        frames=42,
    )
    tables = TableFigures(
        rows=Counter(figures.rows),
        event_ids=Counter(figures.rows),
        flagged=Counter(figures.flagged),
        infinities=figures.rows["scan"] * SCAN_INFINITIES,
    )
    rejects = Counter(figures.rejects)
    return deepcopy(SinkFacts("lake", tuple(RULES), Cursor(LAST, 7, 3), counts, rejects, tables))


def all_checks(facts: SinkFacts) -> list[Check]:
    """Every check of a sink."""
    ledger = Ledger(
        publishers=[
            Publisher(index, stream.key, stream.topic, stream.type_name, "", True, False)
            for index, stream in enumerate(PLAN.streams)
        ],
        sent=[[] for _ in PLAN.streams],
    )
    contents = WalContents(last=LAST, frames=42)
    due = sorted(
        (int(stream.due_s(n) * 1e9), stream.key, n, stream.planned_stamp_ns(n))
        for stream in PLAN.streams
        for n in range(1, stream.count + 1)
    )
    arrivals = [Arrival(key, number, due_ns, stamp) for due_ns, key, number, stamp in due]
    return sink_checks(facts, contents) + robot_checks(PLAN, ledger, arrivals, facts)


def test_sound_sink_passes_every_check() -> None:
    """The checks do not cry wolf."""
    assert [check for check in all_checks(sound_facts()) if not check.is_fine] == []


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda f: f.tables.rows.update(imu=1), "rows in Parquet"),
        (lambda f: f.tables.event_ids.update(imu=-1), "distinct event ids"),
        (lambda f: f.tables.flagged.update({"imu.INVALID": -1}), "flagged rows in Parquet"),
        (lambda f: f.rejects.update({"decode.truncated": 1}), "rejects in staging"),
        (lambda f: f.counts.messages["odom"].update(delivered=-1), "outcomes of odom"),
        (lambda f: f.counts.flagged.update({"battery.STALE": 1}), "flags"),
        (lambda f: f.counts.rows.update(tf=-1), "rows"),
        (lambda f: setattr(f.tables, "infinities", 0), "infinite ranges"),
        (lambda f: setattr(f.counts, "frames", 41), "frames worked off"),
    ],
)
def test_one_wrong_figure_is_named(damage: object, named: str) -> None:
    """Whatever it is, and the demo's exit code follows."""
    facts = sound_facts()
    damage(facts)  # type: ignore[operator]
    wrong = [check for check in all_checks(facts) if not check.is_fine]
    assert any(check.name == f"lake: {named}" for check in wrong), wrong


def test_screen_shows_both_figures_of_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """And says that not everything is fine."""
    screen = Screen()
    assert screen.checks([Check("good", 1, 1)])
    assert not screen.checks([Check("good", 1, 1), Check("bad", 3, 4)])
    said = capsys.readouterr().out
    assert "WRONG  bad" in said
    assert "expected 3" in said
    assert "found    4" in said
