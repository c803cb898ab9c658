# SPDX-License-Identifier: Apache-2.0
"""Promises of the canonical form and its hashes (spec 3.7)."""

from __future__ import annotations

import pytest

from thadam_ros.config.canonical import row_hash, sink_row_hash
from thadam_ros.config.document import render_tree, render_yaml
from thadam_ros.config.loader import load_document
from thadam_ros.config.schema import Config

from .documents import CHECKOUT, ENV, SMALL, load_small

STEP = ("sinks:", "transforms: [{name: calm, kind: filter, dataset: imu, keep: x > 0}]\nsinks:")


def _hashes(config: Config) -> tuple[str, str, str]:
    return config.config_hash, config.row_hashes["imu"], config.row_hashes["temperature"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("schema: 1\n", ""),
        ("{type: ros2}", "{type: ros2, capture: matched, also: [], topics: {}}"),
        ("sinks:", "wal: {commit_interval: 0.2s, commit_bytes: 4096KiB}\nsinks:"),
        ("sinks:", "limits:\nsinks:"),
        ("identity: {robot: r7}", "identity: {robot: $(env ROBOT_ID)}"),
        ("all_fields: true", "all_fields: true\n    version: 1"),
        ("schema: 1\n", "# a comment\n\nschema:   1\n"),
    ],
)
def test_spelling_changes_no_hash(old: str, new: str) -> None:
    """Defaults, units, order, environment and comments are ways to say the same."""
    assert _hashes(load_small((old, new))) == _hashes(load_document(SMALL, ENV))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("url: /lake", "url: /other"),
        ("url: /lake", "url: /lake, rotation: {max_age: 1s}"),
        ("/var/lib/thadam", "/elsewhere"),
        ("mqtt://broker:1883", "mqtts://broker:8883"),
        ("client_id: edge", "client_id: edge, user: u, password_env: PW"),
        ("url: /lake", "url: /lake, timestamp_unit: ns"),
        ("sinks:", "wal: {compression: zstd}\nsinks:"),
        ("sinks:", "quarantine: {budget: 1GiB}\nsinks:"),
    ],
)
def test_what_cannot_change_a_row_changes_no_row_hash(old: str, new: str) -> None:
    """Ports, paths, rotation and secrets are in the configuration's hash alone."""
    before, after = _hashes(load_document(SMALL, ENV)), _hashes(load_small((old, new)))
    assert after[0] != before[0]
    assert after[1:] == before[1:]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("domain: utc", "domain: tai", {"imu"}),
        ("domain: utc", "domain: utc, max_skew: 6s", {"imu"}),
        ("all_fields: true", 'all_fields: true\n    exclude: ["/*_covariance"]', {"imu"}),
        ("all_fields: true", "all_fields: true\n    stale: 2s", {"imu"}),
        ("all_fields: true", "all_fields: true\n    flag_unless: {INVALID: a < 1}", {"imu"}),
        ("all_fields: true", "all_fields: true\n    event_id: {key: [robot]}", {"imu"}),
        ("from: /t", "from: /u", {"temperature"}),
        ("type: double", "type: float", {"temperature"}),
        ("type: double", "type: double, required: true", {"temperature"}),
        ("robot: r7", "robot: r8", {"imu", "temperature"}),
        ("sinks:", "limits: {json_depth: 3}\nsinks:", {"imu", "temperature"}),
        (*STEP, {"imu"}),
        (STEP[0], STEP[1].replace("dataset: imu, ", ""), {"imu", "temperature"}),
    ],
)
def test_what_can_change_a_row_changes_the_hash_of_its_dataset(
    old: str, new: str, changed: set[str]
) -> None:
    """Fields, rules, identity, limits, transforms; other datasets keep theirs."""
    before, after = load_document(SMALL, ENV), load_small((old, new))
    differ = {n for n in before.row_hashes if before.row_hashes[n] != after.row_hashes[n]}
    assert differ == changed
    assert before.config_hash != after.config_hash


def test_transforms_have_hashes_of_their_own() -> None:
    """A changed step is told from its unchanged neighbours, whose state may stay."""
    two = "[{name: a, kind: stale, after: 2s}, {name: b, kind: order}]"
    first = load_small(("sinks:", f"transforms: {two}\nsinks:"))
    second = load_small(("sinks:", f"transforms: {two.replace('2s', '3s')}\nsinks:"))
    assert first.transform_hashes["b"] == second.transform_hashes["b"]
    assert first.transform_hashes["a"] != second.transform_hashes["a"]


def test_the_order_of_transforms_is_part_of_the_hash() -> None:
    """They run in this order."""
    steps = ["{name: a, kind: stale, after: 2s}", "{name: b, kind: order}"]
    forth, back = (
        load_small(("sinks:", f"transforms: [{', '.join(order)}]\nsinks:"))
        for order in (steps, steps[::-1])
    )
    assert forth.config_hash != back.config_hash
    assert forth.row_hashes["imu"] != back.row_hashes["imu"]


def test_a_sink_hash_covers_what_the_sink_takes() -> None:
    """Steps for other sinks, and datasets it does not take, do not matter to it."""
    sinks = ("url: /lake}", "url: /lake}\n  other: {type: parquet, url: /o, datasets: [imu]}")
    step = "{name: a, kind: order, dataset: temperature, sinks: [lake]}"
    plain = load_small(sinks)
    stepped = load_small(sinks, ("sinks:", f"transforms: [{step}]\nsinks:"))
    for name, same in (("lake", False), ("other", True)):
        hashes = {sink_row_hash(config, config.sinks[name]) for config in (plain, stepped)}
        assert (len(hashes) == 1) is same
    assert row_hash(stepped, "temperature", "other") == row_hash(plain, "temperature")


def test_the_merged_document_loads_to_the_same_hash() -> None:
    """Complete with defaults, without the environment it was made in."""
    for text in (SMALL, (CHECKOUT / "config" / "thadam.yaml").read_text()):
        config = load_document(text, ENV)
        again = load_document(render_yaml(config), {})
        assert again == config
        assert render_yaml(again) == render_yaml(config)


@pytest.mark.parametrize(
    "value",
    ["$(env HOME)", "$$(x)", "yes", "1e3", "10:30", "~", "a: b", "#x", "0x1F", "ä\n\u2028 b", " "],
)
def test_text_that_looks_like_something_else_survives(value: str) -> None:
    """References, numbers, booleans and YAML syntax inside values stay text."""
    env = {**ENV, "ROBOT_ID": value}
    config = load_document(SMALL.replace("robot: r7", "robot: $(env ROBOT_ID)"), env)
    assert config.edge.identity["robot"] == value
    again = load_document(render_yaml(config), {})
    assert again.edge.identity["robot"] == value
    assert again.config_hash == config.config_hash
    assert render_tree({"a": value})
