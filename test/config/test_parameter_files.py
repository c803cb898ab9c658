# SPDX-License-Identifier: Apache-2.0
"""Promises of reading ROS parameter files without ROS."""

from __future__ import annotations

import pytest

from thadam_ros.config.parameter_files import parse_parameter_file


@pytest.mark.parametrize(
    ("key", "namespace", "matches"),
    [
        ("/**", "/", True),
        ("/**", "/a/b", True),
        ("/**/thadam", "/", True),
        ("/**/thadam", "/a/b", True),
        ("/*/thadam", "/a", True),
        ("/*/thadam", "/", False),
        ("thadam", "/", True),
        ("/thadam", "/", True),
        ("thadam", "/a", False),
        ("/a/thadam", "/a", True),
        ("/a/thadam_lake", "/a", False),
        ("/a", "/a", False),
    ],
)
def test_node_names_match_as_in_rcl(key: str, namespace: str, matches: bool) -> None:
    """One star is one level, two are any; a bare name is the root namespace's."""
    text = f"other:\n  ros__parameters: {{}}\n{key}:\n  ros__parameters:\n    a: {{b: 1}}\n"
    assert parse_parameter_file(text, "thadam", namespace).flat == ({"a.b": 1} if matches else {})


def test_later_sections_win() -> None:
    """A file may hold a general section and exceptions below it."""
    text = "/**: {ros__parameters: {a: 1, b: 2}}\n/r1/thadam: {ros__parameters: {a: 3}}\n"
    assert parse_parameter_file(text, "thadam", "/r1").flat == {"a": 3, "b": 2}


def test_a_file_for_other_nodes_is_said_to_be_one() -> None:
    """Otherwise everything would be reported as missing."""
    (problem,) = parse_parameter_file("/r1/thadam: {ros__parameters: {a: 1}}\n").problems
    assert "/thadam" in problem.message
    assert "/r1/thadam" in problem.message


@pytest.mark.parametrize(
    ("text", "path", "what"),
    [
        ("a: 1", "a", "ros__parameters"),
        ("/**: {ros__parameters: {t: [{name: a}]}}", "t", "transform_names"),
        ("/**: {ros__parameters: {r: [1, 2.5]}}", "r", "mixes types"),
        ("/**: {ros__parameters: {r: [1, null]}}", "r", "list of maps"),
        ("/**: {ros__parameters: {r: 1", "", "not valid YAML"),
    ],
)
def test_what_rcl_would_refuse_is_refused(text: str, path: str, what: str) -> None:
    """rcl's own messages name neither the parameter nor the way out."""
    problems = parse_parameter_file(text).problems
    assert [p.path for p in problems] == [path]
    assert what in problems[0].message
