# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench does around the benchmarks: finding, running apart, judging."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def bench(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """bench/__main__.py; the folder is no part of the installed package."""
    monkeypatch.syspath_prepend(str(checkout))
    return importlib.import_module("bench.__main__")


RESULT = {"name": "x", "ratio": 5.0, "floor": 3.0, "target": 5.0}


@pytest.mark.parametrize(
    ("change", "accepted", "said"),
    [
        ({}, {}, "target"),
        ({"ratio": 4.0}, {}, "floor"),
        ({"ratio": 2.9}, {}, "BELOW FLOOR"),
        ({"ratio": 4.0}, {"x": 8.2}, "BELOW HALF OF THE ACCEPTED 8.20"),
        ({"ratio": 4.0}, {"x": 7.9}, "floor"),
        ({"error": "ended with 1"}, {}, "FAILED: ended with 1"),
    ],
)
def test_a_ratio_is_judged_by_floor_target_and_history(
    bench: ModuleType, change: dict[str, object], accepted: dict[str, float], said: str
) -> None:
    """Slow erosion below a generous floor is noticed too (spec 8.2)."""
    assert bench.verdict({**RESULT, **change}, accepted) == said


def test_every_benchmark_of_the_repository_is_found(bench: ModuleType) -> None:
    """Modules without ``run`` are helpers, not benchmarks."""
    found = bench.find()
    assert "chain_imu" in found
    assert not [name for name in found if name.endswith("_support")]


@pytest.mark.parametrize(
    ("results", "arguments", "code"),
    [
        ([RESULT], [], 0),
        ([{**RESULT, "ratio": 1.0}], [], 0),
        ([{**RESULT, "ratio": 1.0}], ["--check"], 1),
        ([{**RESULT, "ratio": 4.0}], ["--check"], 0),
        ([{**RESULT, "ratio": 1.9}], ["--guard"], 1),
        ([{**RESULT, "ratio": 2.1}], ["--guard"], 0),
        ([{"name": "x", "error": "ended with 1"}], [], 1),
    ],
)
def test_the_exit_code_says_whether_a_floor_was_missed(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    results: list[dict[str, object]],
    arguments: list[str],
    code: int,
) -> None:
    """A benchmark that fails is never a success; a low ratio counts only when asked for."""
    monkeypatch.setattr(bench, "run_apart", lambda name, seconds: results)
    accepted = tmp_path / "accepted.json"
    accepted.write_text(json.dumps({"x": 4.0}))
    monkeypatch.setattr(bench, "ACCEPTED", accepted)
    out = tmp_path / "out.json"
    assert bench.main(["chain_imu", "--json", str(out), *arguments]) == code
    assert json.loads(out.read_text())["results"] == results


def test_an_unknown_name_is_refused_with_the_known_ones(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error must not look like a finished run."""
    assert bench.main(["chain_imo"]) == 2
    assert "chain_imu" in capsys.readouterr().out


def test_a_crashing_benchmark_is_an_error_of_its_own(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a process of its own, so the others still give their figures."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (result,) = bench.run_apart("chain_imu", 0.1)
    assert result == {"name": "chain_imu", "error": "ended with 1"}
