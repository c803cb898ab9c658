# SPDX-License-Identifier: Apache-2.0
"""Promises of ``thadam init``: what it writes is valid and misses no field."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.cli.initial_config import render_initial_config
from thadam_ros.cli.main import main
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.runtime.loading import LoadedConfig, load_text

BAGS = (
    "all_types_mcap",
    "all_types_sqlite",
    "array_msgs",
    "base_msgs",
    "big_array",
    "cdr_test_mcap",
    "cdr_test_sqlite",
    "float64_50k",
    "mag_temp",
)


def _load(topics: list[TopicDeclaration]) -> LoadedConfig:
    catalog = TypeCatalog(definitions={t.type_name: t.definition for t in topics if t.definition})
    return load_text(render_initial_config(topics, "a test"), {}, catalog=catalog)


def _topic(name: str, definition: str, type_name: str = "my_msgs/msg/Mine") -> TopicDeclaration:
    return TopicDeclaration(name, type_name=type_name, definition=definition)


@pytest.mark.parametrize("bag", BAGS)
def test_a_real_bag_becomes_a_valid_configuration(
    bag: str, bags_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every topic is taken by a dataset, and validate finds nothing wrong."""
    path, out = bags_dir / bag, tmp_path / "thadam.yaml"
    assert main(["init", "--from-bag", str(path), "-o", str(out), "--json"]) == 0
    topics = json.loads(capsys.readouterr().out)["topics"]
    assert topics
    assert main(["validate", str(out), "--bag", str(path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    taken = {t for d in summary["datasets"].values() for t in d["topics"]}
    empty = {name for name, kind in topics.items() if kind == "std_msgs/msg/Empty"}
    assert taken | empty == set(topics)
    assert summary["obstacles"] == []


def test_nested_structures_become_columns_and_arrays_of_them_datasets() -> None:
    """Nothing of the message is left out silently."""
    definition = (
        "std_msgs/Header header\nItem[] items\nItem best\nuint8[] raw\n"
        "================\nMSG: my_msgs/Item\nstring name\nfloat64[2] place\nTag[] tags\n"
        "================\nMSG: my_msgs/Tag\nstring text\n"
        "================\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
        "================\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
    )
    loaded = _load([_topic("/a/mine", definition)])
    columns = {n: [f.name for f in plan.fields] for n, plan in loaded.plans.items()}
    assert set(columns) == {"a_mine", "a_mine_items", "a_mine_best_tags"}
    assert {"header_stamp", "best_name", "best_place", "raw", "robot"} <= set(columns["a_mine"])
    assert {"name", "place"} <= set(columns["a_mine_items"])
    assert "text" in columns["a_mine_best_tags"]
    time = loaded.config.datasets["a_mine_items"].time
    assert time is not None
    assert (time.pointer, time.domain) == ("/header/stamp", "utc")


def test_names_that_cannot_be_columns_are_replaced() -> None:
    """Too long, equal to another after joining, or one of the envelope's."""
    long = "a" * 40
    definition = (
        f"{'b' * 40} {long}\nint32 sample_idx\nint32 a_b\nA a\n".replace("b" * 40, "Long")
        + f"================\nMSG: my_msgs/Long\nint32 {'c' * 40}\n"
        + "================\nMSG: my_msgs/A\nint32 b\n"
    )
    loaded = _load([_topic("/mine", definition)])
    names = [f.name for f in loaded.plans["mine"].fields]
    assert len(names) == 5, "four values and the identity level"
    assert {"a_b", "a_b_2", "sample_idx_2", "robot"} < set(names)
    assert all(len(name) <= 63 for name in names)


def test_a_field_called_like_the_identity_level_renames_the_level() -> None:
    """The robot's own data keeps its name."""
    loaded = _load([_topic("/mine", "string robot\n")])
    assert [f.name for f in loaded.plans["mine"].fields] == ["robot_id", "robot"]


def test_topics_that_cannot_be_datasets_stay_as_comments() -> None:
    """They are named with the reason, and cannot break out of their comment."""
    topics = [
        _topic("/good", "int32 x\n"),
        _topic("/unknown", "", "other_msgs/msg/Other"),
        _topic("/empty", "# nothing\n", "std_msgs/msg/Empty"),
        _topic("/bad\nedge: {data_dir: /evil}", "int32 x\n"),
        _topic("/broken", "int32\n", "my_msgs/msg/Broken"),
    ]
    text = render_initial_config(topics, "a test\nsinks: {}")
    assert text.count("left out") == 4
    assert list(_load(topics).plans) == ["good"]
    assert _load(topics).config.edge.data_dir == "/var/lib/thadam"


def test_topics_with_equal_names_become_different_datasets() -> None:
    """Names are unique and valid, whatever the topics are called."""
    topics = [
        _topic(name, "int32 x\n") for name in ("/a/b", "/a_b", "/A/B", "/1/2", "/" + "x" * 90)
    ]
    loaded = _load(topics)
    assert len(loaded.plans) == len(topics)


def test_an_existing_file_is_not_overwritten(
    bags_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person's edits are worth more than a fresh start."""
    out = tmp_path / "thadam.yaml"
    out.write_text("mine")
    bag = str(bags_dir / "mag_temp")
    assert main(["init", "--from-bag", bag, "-o", str(out)]) == 3
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "--from-bag", bag, "-o", str(out), "--force"]) == 0


def test_what_is_no_bag_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, empty and foreign files."""
    (tmp_path / "x.mcap").write_bytes(b"no bag")
    (tmp_path / "empty").mkdir()
    for name in ("missing", "x.mcap", "empty"):
        assert main(["init", "--from-bag", str(tmp_path / name)]) == 3
        error = capsys.readouterr().err
        assert "cannot be read as a bag" in error
        assert "bug" not in error


def test_the_graph_needs_ros(tmp_path: Path) -> None:
    """Where there is none, that is the sentence."""
    code = (
        "import sys; sys.modules['rclpy'] = None\n"
        "from thadam_ros.cli.main import main\n"
        "sys.exit(main(['init', '--from-graph']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3
    assert "thadam init --from-graph" in done.stderr
    assert done.stderr.count("\n") == 1
