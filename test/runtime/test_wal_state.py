# SPDX-License-Identifier: Apache-2.0
"""What a WAL at its limits says of itself (spec 1.6, 2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.codes import STATE_REASONS
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.model.states import State
from thadam_ros.runtime.retention import RemovedSink, WalRetentionStatistics
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.runtime.wal_state import wal_details, wal_state
from thadam_ros.testing.space import SettableSpace
from thadam_ros.wal.retention import DroppedRange, RetentionStatistics, SinkDrops
from thadam_ros.wal.statistics import WalStatistics
from thadam_ros.wal.writer import WalWriter

DROPS = SinkDrops(3, 70, (DroppedRange(Position(0, 5), Position(0, 74)),))


@pytest.fixture
def open_log(tmp_path: Path) -> WalStatistics:
    """Statistics of a log that has just been opened and is well."""
    writer = WalWriter.open(
        str(tmp_path / "wal"),
        WalConfig(budget_bytes=1000, min_free_bytes=70),
        fs=SettableSpace(free=900),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    statistics = writer.statistics()
    writer.close()
    return statistics


def retained(last_error: str = "", **log: object) -> WalRetentionStatistics:
    return WalRetentionStatistics(
        RetentionStatistics(**log),  # type: ignore[arg-type]
        (RemovedSink("gone", BEFORE_ALL, Position(0, 9)),),
        2,
        last_error,
    )


@pytest.mark.parametrize(("limit", "figure"), [("budget", "1000"), ("min_free", "70")])
def test_capture_that_is_held_up_is_degraded_and_names_limit_and_sink(
    open_log: WalStatistics, limit: str, figure: str
) -> None:
    """The sentence has the figures, the sink that keeps the segments, and what happens next."""
    statistics = replace(open_log, held_up_by=limit)
    state = wal_state(StateTracker(SystemClock()), statistics, retained(pinned_by=("lake",)))
    assert (state.state, state.reason_code) == (State.DEGRADED, "wal_full")
    assert state.reason_code in STATE_REASONS
    for text in (figure, "lake", limit, "resumes"):
        assert text in state.reason


def test_dropping_is_degraded_while_it_goes_on(open_log: WalStatistics) -> None:
    """Once the sink has caught up the state is well and the counters keep what was lost."""
    log = {"dropped_segments": 3, "drops": {"lake": DROPS}, "pressed": True}
    tracker = StateTracker(SystemClock())
    state = wal_state(tracker, open_log, retained(pinned_by=("lake",), **log))
    assert (state.state, state.reason_code) == (State.DEGRADED, "wal_full")
    assert "lake 70" in state.reason
    assert wal_state(tracker, open_log, retained(**log)).state is State.RUNNING


def test_segments_that_cannot_be_deleted_are_shown(open_log: WalStatistics) -> None:
    """The next full disk is announced while there is still room."""
    state = wal_state(StateTracker(SystemClock()), open_log, retained("OSError: read-only"))
    assert (state.state, state.reason_code) == (State.DEGRADED, "storage_error")
    assert state.cause == "OSError: read-only"


def test_details_hold_figures_refusals_drops_and_removed_sinks(open_log: WalStatistics) -> None:
    """Everything that a person asks when the disk is full."""
    statistics = replace(open_log, refused_by_cause={"budget": 4, "closed": 1})
    details = wal_details(
        statistics, retained(dropped_segments=3, drops={"lake": DROPS}, pinned_by=("lake",))
    )
    assert details["budget_bytes"] == "1000"
    assert details["filesystem_free_bytes"] == "900"
    assert details["refused.budget"] == "4"
    assert details["pinned_by"] == "lake"
    assert details["dropped.lake"] == "frames=70 segments=3 ranges=1 newest=0:5..0:74"
    assert details["removed.gone"] == "0:-1..0:9"
    assert details["retention_errors"] == "2"
