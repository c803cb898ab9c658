# SPDX-License-Identifier: Apache-2.0
"""Promises of the YAML reader."""

from __future__ import annotations

import pytest

from thadam_ros.config.yaml_tree import parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("10:30", "10:30"),
        ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"),
        ("010", 10),
        ("0x1F", 31),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("true", True),
        ("'true'", "true"),
        ('"5"', "5"),
        ("~", None),
        ("", None),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    """Only what looks like a number or a boolean to everyone is one."""
    found = parse_yaml(f"key: {text}").tree["key"]
    assert found == value
    assert type(found) is type(value)


def test_keys_are_text() -> None:
    """Columns may be called on, y or 1, as in rcl's parser."""
    assert set(parse_yaml("{on: 1, y: 2, 1: 3, null: 4}").tree) == {"on", "y", "1", "null"}


def test_a_repeated_key_is_named_with_both_lines() -> None:
    """The second one does not silently win."""
    document = parse_yaml("a:\n  b: 1\n  c: 2\n  b: 3\n")
    (problem,) = document.problems
    assert (problem.path, problem.line) == ("a.b", 4)
    assert "line 2" in problem.message
    assert document.tree == {"a": {"b": 1, "c": 2}}


def test_lines_are_kept_for_keys_and_items() -> None:
    """A list's item has the line where it stands."""
    document = parse_yaml("a:\n  - x\n  - y\nb: {c: 1}\n")
    assert document.lines["a[1]"] == 3
    assert document.lines["b.c"] == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [1, 2", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("- a\n- b", "must be a map"),
        ("just text", "must be a map"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: !!python/object:os.system {}", "tag"),
        ("a: !mine 1", "tag"),
        ("? [a]\n: 1", "keys must be plain text"),
        ("base: &b {x: 1}\na:\n  <<: *b", "merge keys"),
        ("a: \x00", "not valid YAML"),
    ],
)
def test_what_is_no_plain_document_is_refused(text: str, what: str) -> None:
    """Syntax errors, tags, merge keys, several documents: one sentence each, no exception."""
    assert any(what in p.message for p in parse_yaml(text).problems)


def test_aliases_cannot_make_a_document_explode() -> None:
    """A billion laughs end at the limit of values."""
    text = "a0: &a0 [x]\n"
    for level in range(1, 12):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert any("more than" in p.message for p in parse_yaml(text).problems)


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 3000, "a: " + "{b: " * 3000, "a: &x [*x]", "[" * 50]
)
def test_deep_and_circular_documents_are_refused(text: str) -> None:
    """Neither recursion nor a loop gets through."""
    assert parse_yaml(text).problems


def test_an_empty_document_is_an_empty_tree() -> None:
    """What is missing is said by the loader, key by key."""
    assert parse_yaml("").tree == {}
    assert parse_yaml("# only a comment\n").problems == []
