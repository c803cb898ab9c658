# SPDX-License-Identifier: Apache-2.0
"""Promises of ``$(env ...)``."""

from __future__ import annotations

import pytest

from thadam_ros.config.environment import escape, expand_text
from thadam_ros.config.loader import load_document
from thadam_ros.errors import Problem

from .documents import ENV, only_problem, problems_of, small


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(env A)", "1"),
        ("x-$(env A)-$(env B y)", "x-1-y"),
        ("$(env  A   z)", "1"),
        ("$(env B a b)", "a b"),
        ("$(env B )", ""),
        ("$$(env A)", "$(env A)"),
        ("$5 (env A)", "$5 (env A)"),
        ("plain", "plain"),
    ],
)
def test_references_expand(text: str, expanded: str) -> None:
    """Value first, then default; a doubled dollar is a dollar."""
    problems: list[Problem] = []
    assert expand_text(text, "p", {"A": "1"}, problems) == expanded
    assert problems == []


def test_a_value_is_not_expanded_again() -> None:
    """What a variable holds is data."""
    assert expand_text("$(env A)", "p", {"A": "$(env A)"}, []) == "$(env A)"


@pytest.mark.parametrize("text", ["$(env A)", "$$(x", "$$$(", "a$(b$(c"])
def test_escaping_is_undone_by_expanding(text: str) -> None:
    """Any text can be written into a document."""
    problems: list[Problem] = []
    assert expand_text(escape(text), "p", {}, problems) == text
    assert problems == []


def test_an_unset_variable_is_one_problem_at_its_place() -> None:
    """It names the variable, the way out, and nothing else fails because of it."""
    problem = only_problem(small(("/var/lib/thadam", "$(env DATA)/x"), ("robot: r7", "robot: x")))
    assert problem.path == "edge.data_dir"
    assert problem.value == "$(env DATA)/x"
    assert "DATA" in problem.message
    assert problem.line == 2


def test_a_mistyped_variable_gets_a_suggestion() -> None:
    """The nearest variable that is set."""
    assert only_problem(small(("r7", "$(env ROBOTID)"))).suggestion == "ROBOT_ID"


def test_other_substitutions_are_refused() -> None:
    """Launch's $(find-pkg-share ...) would stay in a path otherwise."""
    assert "$(env NAME default)" in only_problem(small(("url: /lake", "url: $(find x)/y"))).message


def test_numbers_and_booleans_may_come_from_the_environment() -> None:
    """The expanded text is read as the declared type, and only then."""
    text = small(
        ("all_fields: true", "all_fields: $(env ALL)\n    fields: {x: /x}"),
        ("client_id: edge", "client_id: edge, qos: $(env QOS 0)"),
    )
    config = load_document(text, {**ENV, "ALL": "true"})
    assert config.datasets["imu"].all_fields is True
    assert config.sources["cell"].mqtt is not None
    assert config.sources["cell"].mqtt.qos == 0
    assert [p.path for p in problems_of(text, {**ENV, "ALL": "maybe", "QOS": "two"})] == [
        "sources.cell.qos",
        "datasets.imu.all_fields",
    ]
    literal = small(("all_fields: true", 'all_fields: "true"\n    fields: {x: /x}'))
    assert only_problem(literal).path == "datasets.imu.all_fields"
