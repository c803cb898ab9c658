# SPDX-License-Identifier: Apache-2.0
"""Snapshots and their ROS spellings (spec 7.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")
pytest.importorskip("thadam_ros.msg", reason="needs the built workspace")

from diagnostic_msgs.msg import DiagnosticStatus

from thadam_ros.errors import (
    ConfigError,
    FatalError,
    FormatError,
    LockHeldError,
    Problem,
    StorageFullError,
)
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.codes import STATE_REASONS
from thadam_ros.model.states import ComponentState, ComponentStatistics, Kind, State
from thadam_ros.node.states import failed_state
from thadam_ros.node.status import (
    Snapshot,
    component_from_status_file,
    in_order,
    readiness,
    to_diagnostics,
    to_edge_state,
)
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.runtime.status_files import write_status


def component(name: str, state: State, kind: Kind = Kind.CHAIN) -> ComponentStatistics:
    return ComponentStatistics(
        name,
        kind,
        ComponentState(state, "ok", f"{name} speaks", "", 1_500_000_000, 2_000_000_000),
        node=f"/r1/{name}",
        backlog_age_s=1.5,
        received=7,
        flagged=2,
        details={"cut_no": "3"},
    )


def snapshot(*components: ComponentStatistics, foreign: frozenset[str] = frozenset()) -> Snapshot:
    return Snapshot(
        stamp_ns=3_000_000_001, started_ns=1, edge="s/r", robot="r", config_hash="ab", ready=True,
        reason="fine", clock_synced=True, wal_epoch=(1 << 63) - 1, wal_durable_position=-1,
        wal_bytes=5, wal_budget_bytes=6, filesystem_free_bytes=7,
        components=in_order(components), foreign=foreign,
    )  # fmt: skip


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("state", list(State))
def test_every_kind_and_state_has_its_number_in_the_message(kind: Kind, state: State) -> None:
    """Constants of the message, not positions of an enumeration."""
    message = to_edge_state(snapshot(component("x", state, kind)))
    (sent,) = message.components
    assert sent.kind == getattr(sent, f"KIND_{kind.name}")
    assert sent.state == getattr(sent, f"STATE_{state.name}")
    assert (sent.since.sec, sent.since.nanosec) == (1, 500_000_000)
    assert (sent.backlog_age.sec, sent.backlog_age.nanosec) == (1, 500_000_000)
    assert (sent.received, sent.flagged, sent.details[0].key) == (7, 2, "cut_no")
    assert message.wal_epoch == (1 << 63) - 1
    assert message.wal_durable_position == -1


def test_diagnostics_leave_out_what_another_process_speaks_for() -> None:
    """One voice per component; the WAL stands first; levels follow the states."""
    wal = component("wal", State.FAILED, Kind.WAL)
    array = to_diagnostics(
        snapshot(component("chain.b", State.DEGRADED), component("chain.a", State.RUNNING), wal,
                 foreign=frozenset({"chain.b"}))
    )  # fmt: skip
    assert [s.name for s in array.status] == ["thadam: wal", "thadam: chain.a"]
    assert [s.level for s in array.status] == [DiagnosticStatus.ERROR, DiagnosticStatus.OK]
    assert array.status[0].hardware_id == "r"


def test_readiness_follows_ready_requires() -> None:
    """A failed sink is no reason for [capture]; a stopped capture is one."""
    fine = component("wal", State.RUNNING, Kind.WAL)
    failed = component("chain.lake", State.FAILED)
    assert readiness([fine, failed], True, ("capture", "sinks")) == (
        False,
        "chain.lake: chain.lake speaks",
    )
    assert readiness([fine, failed], True, ("capture",))[0]
    assert not readiness([fine], False, ("capture",))[0]
    assert readiness([fine], True, ("capture", "sinks"))[0]


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (ConfigError([Problem("a.b", 1, "is wrong")]), "config"),
        (LockHeldError("held by x"), "lock_held"),
        (FormatError("version 9"), "format_version"),
        (StorageFullError("no space"), "storage_full"),
        (FatalError("refused"), "sink_refused"),
        (PermissionError(13, "denied"), "storage_error"),
        (KeyboardInterrupt(), "bug"),
    ],
)
def test_a_cause_becomes_a_reason_by_its_type(cause: BaseException, code: str) -> None:
    """Reason codes come from the closed list, and the sentence names the cause."""
    state = failed_state(StateTracker(SystemClock()), cause, 5)
    assert (state.state, state.reason_code, state.next_retry_ns) == (State.FAILED, code, 5)
    assert code in STATE_REASONS
    if str(cause):
        assert str(cause).split(":")[0].strip("[]") in state.reason


def test_a_status_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """What an isolated chain wrote is what the edge shows."""
    written = component("chain.lake", State.DEGRADED)
    write_status(str(tmp_path), written, SystemClock())
    assert component_from_status_file(str(tmp_path / "chain.lake.json")) == written
    (tmp_path / "broken.json").write_text("{")
    assert component_from_status_file(str(tmp_path / "broken.json")) is None
    assert component_from_status_file(str(tmp_path / "absent.json")) is None
