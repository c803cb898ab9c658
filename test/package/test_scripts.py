# SPDX-License-Identifier: Apache-2.0
"""The scripts that set up and test: their parts that need no network."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

BASH_SCRIPTS = ("setup", "test", "demo", "bench", "check-dependencies", "check-ros2")


def tool(checkout: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of scripts/tools."""
    monkeypatch.syspath_prepend(str(checkout / "scripts" / "tools"))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", BASH_SCRIPTS)
def test_a_script_is_executable_and_parses(checkout: Path, name: str) -> None:
    """A typing error in a rarely used script shows here, not on the robot."""
    path = checkout / "scripts" / name
    assert os.access(path, os.X_OK)
    if path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash"):
        checked = subprocess.run(
            ["bash", "-n", str(path)], capture_output=True, text=True, check=False
        )
    else:
        checked = subprocess.run(
            [sys.executable, "-m", "py_compile", str(path)],
            capture_output=True,
            text=True,
            check=False,
            env=dict(os.environ, PYTHONPYCACHEPREFIX="/dev/null"),
        )
    assert checked.returncode == 0, checked.stderr


def test_the_environment_script_is_plain_sh(checkout: Path) -> None:
    """It is sourced from whatever shell the reader has."""
    shell = shutil.which("dash") or "sh"
    checked = subprocess.run(
        [shell, "-n", str(checkout / "scripts" / "env")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
def test_an_unready_environment_is_named(checkout: Path, tmp_path: Path, shell: str) -> None:
    """Sourcing before setting up says what to do and leaves the shell alive."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "scripts").mkdir()
    shutil.copy(checkout / "scripts" / "env", tmp_path / "scripts" / "env")
    done = subprocess.run(
        [shell, "-c", ". scripts/env; echo status $?"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "status 1" in done.stdout
    assert "scripts/setup" in done.stderr


def test_scripts_name_no_package_index(checkout: Path) -> None:
    """pip, apt and git use what the machine is configured for."""
    files = [path for path in (checkout / "scripts").rglob("*") if path.is_file()]
    files = [path for path in [*files, checkout / ".ci" / "run"] if path.suffix != ".pyc"]
    wrong = [
        str(path.relative_to(checkout))
        for path in files
        if re.search(r"https?://|--index-url|--trusted-host", path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_include_folders_of_the_build_machine_are_replaced(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both kinds, for numpy 1 and 2; a second pass changes nothing."""
    fix = tool(checkout, "fix_cmake_exports", monkeypatch).fix_text
    before = (
        'DIRECTORIES "/opt/python/cp311-cp311/include/python3.11;'
        "/opt/python/cp311-cp311/lib/python3.11/site-packages/numpy/_core/include;"
        '/opt/python/cp310-cp310/lib/python3.10/site-packages/numpy/core/include"'
    )
    after = fix(before, "/venv/include", "/venv/numpy")
    assert after == 'DIRECTORIES "/venv/include;/venv/numpy;/venv/numpy"'
    assert fix(after, "/venv/include", "/venv/numpy") == after


def test_a_test_report_is_counted_case_by_case(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures, errors and skips are told apart; skips keep their reasons."""
    run_tests = tool(checkout, "run_tests", monkeypatch)
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase>"
        "<testcase name='c'><error/></testcase>"
        "<testcase name='d'><skipped message='no bags'/></testcase>"
        "<testcase name='e'><skipped message='collection skipped'>"
        "('/x/test_e.py', 11, 'Skipped: no rclpy')</skipped></testcase></testsuite></testsuites>"
    )
    outcome = run_tests.Outcome("x")
    run_tests.read_report(report, outcome)
    assert outcome.counts == {"passed": 1, "failed": 2, "skipped": 2}
    assert outcome.skips == {"no bags": 1, "no rclpy": 1}


@pytest.mark.parametrize(
    ("state", "passed", "code"), [("ok", 3, 0), ("FAILED", 3, 1), ("ok", 0, 1)]
)
def test_a_failed_suite_or_an_empty_run_fails(
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
    passed: int,
    code: int,
) -> None:
    """The closing line counts a suite without failed tests (style, a leak) as one failure."""
    run_tests = tool(checkout, "run_tests", monkeypatch)
    outcome = run_tests.Outcome("x", state)
    outcome.counts["passed"] = passed
    assert run_tests.report([outcome]) == code
    closing = capsys.readouterr().out.splitlines()[-1]
    assert closing == f"{passed} passed, {int(state == 'FAILED')} failed, 0 skipped"


def test_orphans_are_found_by_their_mark_and_stopped(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that outlives its parent is still one that we started."""
    processes = tool(checkout, "processes", monkeypatch)
    variable, value = "THADAM_TEST_ORPHAN", f"{os.getpid()}"
    subprocess.run(
        ["sh", "-c", "sleep 600 >/dev/null 2>&1 &"],
        env=dict(os.environ, **{variable: value}),
        check=True,
    )
    try:
        deadline = time.monotonic() + 30
        # For a moment the child is still a copy of its shell.
        while list(processes.marked(variable, value).values()) != ["sleep 600"]:
            assert time.monotonic() < deadline
        assert len(processes.settle(variable, value, grace_s=0.0)) == 1
    finally:
        processes.stop(variable, value)
    assert processes.marked(variable, value) == {}
