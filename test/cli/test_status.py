# SPDX-License-Identifier: Apache-2.0
"""Promises of ``thadam status`` (spec 7.5)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.cli.main import main
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.states import ComponentState, ComponentStatistics, Kind, State
from thadam_ros.runtime.status_files import write_status
from thadam_ros.runtime.status_view import headline, read_status

CHECKOUT = Path(__file__).resolve().parents[2]


class _Clock(SystemClock):
    """Another boot of this machine."""

    def boot_id(self) -> bytes:
        return b"another boot 123"


def _write(
    data_dir: Path,
    name: str,
    state: State,
    reason_code: str = "ok",
    reason: str = "",
    cause: str = "",
) -> None:
    write_status(
        str(data_dir / "status"),
        ComponentStatistics(
            name,
            Kind.CHAIN,
            ComponentState(state, reason_code, reason, cause),
            received=12345,
            delivered=12000,
            rejected=7,
            backlog_bytes=3 << 20,
            backlog_age_s=125.0,
        ),
        SystemClock(),
    )


def _status(data_dir: Path, *more: str) -> int:
    return main(["status", "--data-dir", str(data_dir), *more])


def test_the_first_line_says_that_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit code agrees."""
    _write(tmp_path, "chain.lake", State.RUNNING)
    _write(tmp_path, "wal", State.RUNNING)
    assert _status(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all 2 components work"
    assert any("chain.lake" in line and "12,345" in line and "2 min 5 s" in line for line in lines)


def test_the_first_line_names_the_worst_cause_and_the_next_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failed comes before degraded, whatever the names are; the exit code is 1."""
    _write(tmp_path, "chain.a", State.DEGRADED, "sink_unreachable", "the lake does not answer")
    _write(
        tmp_path,
        "chain.z",
        State.FAILED,
        "sink_refused",
        "the store refuses the password; correct it, then configure",
        "401 Unauthorized",
    )
    assert _status(tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        "chain.z is failed: the store refuses the password; correct it, then configure "
        "(401 Unauthorized)"
    )


def test_a_dead_process_is_not_mistaken_for_a_running_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a killed process wrote last still says running."""
    _write(tmp_path, "wal", State.RUNNING)
    path = tmp_path / "status" / "wal.json"
    document = json.loads(path.read_text())
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=60)
    gone = child.pid
    path.write_text(json.dumps({**document, "pid": gone}))
    assert _status(tmp_path) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert "not running" in first
    assert str(gone) in first


def test_a_status_of_another_boot_is_not_believed(tmp_path: Path) -> None:
    """The process id may belong to somebody else by now."""
    _write(tmp_path, "wal", State.RUNNING)
    views, _ = read_status(str(tmp_path / "status"), _Clock(), lambda pid: True)
    assert not views[0].alive
    assert "not running" in headline(views)


def test_a_stopped_edge_is_called_stopped(tmp_path: Path) -> None:
    """A clean end needs no alarm."""
    _write(tmp_path, "wal", State.STOPPED, "stopped")
    views, _ = read_status(str(tmp_path / "status"), _Clock(), lambda pid: True)
    assert headline(views).startswith("not running: it was stopped")


def test_json_carries_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counters, state, headline."""
    _write(tmp_path, "chain.lake", State.RUNNING)
    assert _status(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fine"] is True
    assert document["components"][0]["numbers"]["rejected"] == 7


def test_damaged_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are shown all the same."""
    _write(tmp_path, "wal", State.RUNNING)
    (tmp_path / "status" / "bad.json").write_text("{")
    (tmp_path / "status" / "new.json").write_text('{"format": 99}')
    assert _status(tmp_path) == 1
    out = capsys.readouterr().out
    assert "bad.json" in out
    assert "99" in out
    assert "wal" in out


def test_a_folder_without_status_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3: there is nothing to judge."""
    assert _status(tmp_path) == 3
    assert "--data-dir" in capsys.readouterr().err


def test_watching_ends_with_ctrl_c_and_the_last_verdict(tmp_path: Path) -> None:
    """It repeats until it is told to stop; the exit code is that of the last look."""
    _write(tmp_path, "wal", State.RUNNING)
    verb = ["status", "--watch", "--data-dir", str(tmp_path)]
    watcher = subprocess.Popen(
        [sys.executable, "-u", "-m", "thadam_ros", *verb],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert watcher.stdout is not None
    seen = 0
    for line in watcher.stdout:
        seen += line == "all 1 components work\n"
        if seen == 2:
            break
    watcher.send_signal(signal.SIGINT)
    watcher.stdout.read()
    watcher.stdout.close()
    assert watcher.wait(timeout=60) == 0
