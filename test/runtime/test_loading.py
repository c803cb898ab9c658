# SPDX-License-Identifier: Apache-2.0
"""Promises of loading a configuration to run it (spec 3.2, 3.7, 7.1)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thadam_ros.config.document import render_tree
from thadam_ros.config.schema import SinkConfig
from thadam_ros.dataset.plan import DatasetPlan
from thadam_ros.errors import ConfigError, FormatError
from thadam_ros.runtime.loading import (
    default_lock_path,
    load_parameters,
    load_path,
    load_text,
    obstacles_of,
    save_lock,
)
from thadam_ros.sinks import DriverEntry
from thadam_ros.storage.filesystem import OsFileSystem

DOCUMENT = """\
edge: {data_dir: $(env DATA)}
sources: {robot: {type: ros2}}
datasets:
  imu:
    match: {source: robot, topics: [imu/data]}
    type: sensor_msgs/msg/Imu
    fields: {x: /linear_acceleration/x, y: /linear_acceleration/y}
sinks:
  lake: {type: parquet, url: /lake}
  other: {type: parquet, url: /other}
"""


def test_field_ids_survive_a_reload_and_new_columns_come_after(tmp_path: Path) -> None:
    """The lock file beside the document pins them; a column in front does not move the others."""
    env, path = {"DATA": str(tmp_path)}, tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT)
    first = load_path(path, env)
    assert first.lock_changed
    save_lock(first, OsFileSystem())
    assert first.lock_path == f"{path}.lock"
    path.write_text(DOCUMENT.replace("{x:", "{a: /angular_velocity/x, x:"))
    second = load_path(path, env)
    before = {f.name: f.field_id for f in first.plans["imu"].fields}
    after = {f.name: f.field_id for f in second.plans["imu"].fields}
    assert {name: after[name] for name in before} == before
    assert after["a"] > max(before.values())
    save_lock(second, OsFileSystem())
    assert not load_path(path, env).lock_changed


def test_a_document_that_lost_a_column_is_refused(tmp_path: Path) -> None:
    """Readers of the table rely on it; the way out is a new version."""
    env, path = {"DATA": str(tmp_path)}, tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT)
    save_lock(load_path(path, env), OsFileSystem())
    shorter = DOCUMENT.replace(", y: /linear_acceleration/y", "")
    path.write_text(shorter)
    with pytest.raises(ConfigError, match="version"):
        load_path(path, env)
    path.write_text(shorter.replace("fields:", "version: 2\n    fields:"))
    assert "y" not in [f.name for f in load_path(path, env).plans["imu"].fields]


def test_the_lock_file_stands_where_the_specification_says(tmp_path: Path) -> None:
    """Named, beside the document, or in the data folder."""
    config = load_text(DOCUMENT, {"DATA": "/d"}).config
    assert default_lock_path(config, "") == "/d/config/datasets.lock"
    assert default_lock_path(config, "/etc/thadam.yaml") == "/etc/thadam.yaml.lock"
    named = DOCUMENT.replace("$(env DATA)}", "/d, lock_file: /locks/a.lock}")
    assert default_lock_path(load_text(named, {}).config, "/etc/x") == "/locks/a.lock"


def test_a_lock_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    """A damaged promise must not be replaced by a new one."""
    path = tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT)
    (tmp_path / "thadam.yaml.lock").write_text("{}")
    with pytest.raises(FormatError, match=r"thadam\.yaml\.lock"):
        load_path(path, {"DATA": "/d"})


def test_the_merged_document_is_the_same_configuration(tmp_path: Path) -> None:
    """An isolated chain loads it without the environment and gets equal plans."""
    loaded = load_text(DOCUMENT, {"DATA": str(tmp_path)})
    again = load_text(loaded.merged_yaml, {})
    assert again.config == loaded.config
    assert again.plans["imu"].fields == loaded.plans["imu"].fields


def test_plans_carry_the_row_hash_and_respect_sinks() -> None:
    """A step for one sink runs in that sink's chain alone."""
    text = DOCUMENT + "transforms: [{name: calm, kind: filter, sinks: [lake], keep: x < 1}]\n"
    loaded = load_text(text, {"DATA": "/d"})
    lake, other = (loaded.plan_for("imu", sink) for sink in ("lake", "other"))
    assert len(lake.steps) == 1
    assert other.steps == ()
    assert lake.row_hash != other.row_hash
    plain = load_text(DOCUMENT, {"DATA": "/d"})
    assert plain.plan_for("imu", "lake").row_hash == plain.config.row_hashes["imu"]


def test_parameters_load_like_documents(tmp_path: Path) -> None:
    """Over a document, with the document's lock file."""
    path = tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT)
    loaded = load_parameters(
        {"config_file": str(path), "edge.data_dir": "/elsewhere", "autostart": True}, {}
    )
    assert loaded.config.edge.data_dir == "/elsewhere"
    assert loaded.lock_path == f"{path}.lock"


def test_what_is_missing_here_is_an_obstacle() -> None:
    """Unknown drivers, missing libraries and unbuilt decoders, each with its path."""
    loaded = load_text(DOCUMENT, {"DATA": "/d"})
    assert loaded.obstacles == ()
    loaded.require_runnable()
    drivers = {"parquet": DriverEntry("m:C", "parquet", ("no_such_library",))}
    found = obstacles_of(loaded.config, loaded.plans, drivers)
    assert [p.path for p in found] == ["sinks.lake.type", "sinks.other.type"]
    assert "pip install 'thadam_ros[parquet]'" in found[0].message
    imu = loaded.config.datasets["imu"]
    plan = DatasetPlan(imu, supported=False, reason="decode: json is not built yet")
    assert [p.path for p in obstacles_of(loaded.config, {"imu": plan})] == ["datasets.imu"]
    assert isinstance(loaded.config.sinks["lake"], SinkConfig)


def test_mistakes_of_datasets_and_of_the_document_come_together() -> None:
    """Planning needs message definitions, the rest does not; people want one list."""
    text = DOCUMENT.replace("/linear_acceleration/x", "/linear_acceleration/q").replace(
        "url: /lake", "url: lake"
    )
    with pytest.raises(ConfigError) as caught:
        load_text(text, {"DATA": "/d"})
    paths = {p.path for p in caught.value.problems}
    assert "sinks.lake.url" in paths
    assert any(p.startswith("datasets.imu.fields.x") for p in paths)


def test_a_mistyped_message_type_gets_a_suggestion() -> None:
    """Among the well-known types; and mistakes elsewhere in the same dataset are named too."""
    text = DOCUMENT.replace("sensor_msgs/msg/Imu", "sensor_msgs/msg/Im").replace(
        "{x:", "{X: /x, x:"
    )
    with pytest.raises(ConfigError) as caught:
        load_text(text, {"DATA": "/d"})
    found = {p.path: p.suggestion for p in caught.value.problems}
    assert found["datasets.imu.type"] == "sensor_msgs/msg/Imu"
    assert "datasets.imu.fields.X" in found


RICH = """\
edge: {data_dir: /d, identity: {robot: r}}
sources: {robot: {type: ros2}}
datasets:
  odom:
    match: {source: robot, topics: [odom]}
    type: nav_msgs/msg/Odometry
    all_fields: true
    exclude: ["/**/covariance"]
    fields: {speed: {from: /twist/twist/linear/x, unit: m/s, convert_to: km/h}}
    identity: {frame: /header/frame_id, ns: "{namespace}"}
    event_id: {key: [robot, /header/stamp/sec]}
    dedup: {window: 1s}
    time: {from: /header/stamp, domain: utc}
    flag_unless: {INVALID: finite(speed)}
    reject_unless: {far: abs(pose_pose_position_x) < 1000}
    gap: publisher_sequence
    stale: 1s
  status:
    match: {source: robot, topics: [/diagnostics]}
    type: diagnostic_msgs/msg/DiagnosticArray
    explode: /status
    fields: {name: {from: ./name, required: true}, level: ./level}
sinks:
  lake: {type: parquet, url: /lake}
transforms:
  - {name: order, kind: order, dataset: odom}
  - {name: near, kind: filter, dataset: odom, keep: pose_pose_position_x > 0}
  - {name: sane, kind: validate, dataset: odom, columns: [speed], range: [-9, 9]}
"""
TREE = yaml.safe_load(RICH)
WORDS = (
    "/|/x|./x|./name|/status|/header|/header/stamp|/pose/covariance|*|**|/**|json|cdr|utc|tai|ms|1s"
    "|9223372036s|sensor_msgs/msg/Imu|std_msgs/msg/Empty|tf2_msgs/msg/TFMessage|string|timestamp"
    "|list<double>|object_ref|m|degC|{device}|{topic.-999}|finite(x)|x in (1|((((|1/0 < 1|level"
)


def _paths(tree: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    found = [path] if path else []
    for key, value in items:
        found += _paths(value, (*path, key))
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(_paths(TREE)),
            st.one_of(
                st.sampled_from(WORDS.split("|")),
                st.none(),
                st.booleans(),
                st.integers(-1, 200),
                st.text(max_size=6),
                st.just({}),
                st.just([]),
                st.just({"from": "/x"}),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_mistake_is_a_problem_and_never_another_exception(
    changes: list[tuple[tuple[object, ...], object]],
) -> None:
    """Planning sees half-broken documents too; what it accepts loads again to the same plans."""
    tree = copy.deepcopy(TREE)
    for path, value in changes:
        node = tree
        try:
            for part in path[:-1]:
                node = node[part]
            node[path[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError):
            continue
    try:
        loaded = load_text(render_tree(tree), {})
    except ConfigError as exc:
        readable = [str(problem) for problem in exc.problems]
    else:
        again = load_text(loaded.merged_yaml, {})
        assert again.config == loaded.config
        readable = ["valid"]
    assert all(readable)
    assert readable
