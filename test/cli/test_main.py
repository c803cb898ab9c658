# SPDX-License-Identifier: Apache-2.0
"""Promises of the command line's frame (spec 7.5)."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.cli import main as frame
from thadam_ros.cli import registry
from thadam_ros.errors import ConfigError, LockHeldError, Problem

ROOT = Path(registry.__file__).parents[1]


class _Verb:
    """A verb that does what the test says."""

    NAME = "test"
    HELP = "a verb of the tests"

    def __init__(self, result: int | BaseException) -> None:
        self.result = result

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="its own wins")

    def run(self, args: argparse.Namespace) -> int:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def _run(monkeypatch: pytest.MonkeyPatch, result: int | BaseException, *arguments: str) -> int:
    monkeypatch.setattr(frame, "load_verb", lambda name: _Verb(result))
    return frame.main(["test", *arguments])


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (0, 0),
        (1, 1),
        (ConfigError([Problem("a.b", 1, "is wrong")]), 2),
        (LockHeldError("wal/LOCK is held by thadam (pid 7)"), 3),
        (OSError(28, "No space left on device", "/data/x"), 3),
        (ValueError("a bug"), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_exit_codes_are_the_documented_ones(
    monkeypatch: pytest.MonkeyPatch, result: int | BaseException, code: int
) -> None:
    """0 fine, 1 found problems, 2 configuration, 3 could not run, 130 interrupted."""
    monkeypatch.setattr(os, "dup2", lambda *fds: 0)
    assert _run(monkeypatch, result) == code


def test_an_error_is_one_sentence_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path and what happened; the traceback only when it is asked for."""
    monkeypatch.delenv("THADAM_DEBUG", raising=False)
    _run(monkeypatch, OSError(28, "No space left on device", "/data/x"))
    assert capsys.readouterr().err == "thadam: /data/x: No space left on device\n"
    _run(monkeypatch, ValueError("odd"))
    assert "bug" in capsys.readouterr().err
    monkeypatch.setenv("THADAM_DEBUG", "1")
    _run(monkeypatch, ValueError("odd"))
    assert "Traceback" in capsys.readouterr().err


def test_problems_come_all_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each for people, one document for programs."""
    error = ConfigError(
        [Problem("wal.budget", 5, "has no unit", "5GiB", 7), Problem("sinks", None, "is missing")]
    )
    _run(monkeypatch, error)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "line 7: wal.budget = 5: has no unit Did you mean '5GiB'?"
    assert lines[1] == "sinks: is missing"
    _run(monkeypatch, error, "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 2
    assert document["problems"][0] == {
        "path": "wal.budget",
        "value": 5,
        "message": "has no unit",
        "suggestion": "5GiB",
        "line": 7,
    }


def test_every_verb_is_listed_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """And asking for nothing is a mistake on the command line."""
    assert frame.main([]) == 2
    assert frame.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in registry.VERBS:
        assert f"\n  {name} " in out
    assert "exit codes" in out


def test_every_verb_module_keeps_the_contract() -> None:
    """NAME is the verb, HELP one line, --json is understood, and it loads without ROS."""
    for name, module in registry.VERBS.items():
        if importlib.util.find_spec(module) is None:
            continue
        verb = registry.load_verb(name)
        assert name == verb.NAME
        assert "\n" not in verb.HELP
        options = frame.make_parser(verb).format_help()
        assert "--json" in options


def test_a_mistyped_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest verb, and all of them."""
    assert frame.main(["vaildate"]) == 2
    assert "Did you mean 'validate'?" in capsys.readouterr().err


def test_wrong_arguments_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and where the help is."""
    assert frame.main(["validate", "--no-such-thing"]) == 2
    error = capsys.readouterr().err
    assert "--no-such-thing" in error
    assert "--help" in error
    assert error.count("\n") == 1


def test_a_verb_that_needs_ros_says_so_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence that names the missing module and the way out."""
    (tmp_path / "needs_ros_verb.py").write_text("import rclpy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "rclpy", None)
    monkeypatch.setattr(registry, "ros_modules", lambda: {"robot": "needs_ros_verb"})
    assert frame.main(["robot"]) == 3
    error = capsys.readouterr().err
    assert "needs ROS 2" in error
    assert "rclpy" in error
    assert "setup.bash" in error


def test_a_missing_library_of_ours_is_not_taken_for_missing_ros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken installation is not explained away."""
    (tmp_path / "broken_verb.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "ros_modules", lambda: {"robot": "broken_verb"})
    assert frame.main(["robot"]) == 3
    assert "no_such_library" in capsys.readouterr().err


def test_helpers_beside_the_ros_verbs_are_no_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """init_graph serves ``init --from-graph``."""
    modules = {"init_graph": "x", "robot": "y", "validate": "z"}
    monkeypatch.setattr(registry, "ros_modules", lambda: modules)
    assert registry.ros_verbs() == {"robot": "y"}


def test_the_command_line_never_imports_the_node_layer() -> None:
    """Verbs that need ROS are found by name at run time, nothing else reaches them (spec 1.3)."""
    for path in sorted((ROOT / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert not name.startswith(("thadam_ros.node", "rclpy")), path


def test_it_runs_as_a_module_without_ros() -> None:
    """``python -m thadam_ros``; every verb's module loads and rclpy stays out."""
    code = (
        "import importlib, sys\n"
        "from thadam_ros.cli import registry\n"
        "for module in registry.VERBS.values():\n"
        "    if importlib.util.find_spec(module): importlib.import_module(module)\n"
        "print('rclpy' in sys.modules)\n"
    )
    for command in (["-m", "thadam_ros", "--version"], ["-c", code]):
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT.parent,
            timeout=120,
        )
        assert done.stdout.strip() in ("False",) or done.stdout.startswith("thadam ")
