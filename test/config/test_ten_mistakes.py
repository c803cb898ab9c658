# SPDX-License-Identifier: Apache-2.0
"""Promises of the loader to somebody whose document is wrong in ten places (spec 3.7)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thadam_ros.config.parameter_files import parse_parameter_file
from thadam_ros.errors import Problem

from .documents import parameter_problems, problems_of

DOCUMENT = """\
schema: 1
edge: {data_dir: var/lib/thadam, identity: {robot: r7}}
wal:
  commit_interval: 200
  when_ful: stop_capture
sources:
  robot: {type: ros2, capture: machted}
  cell: {type: mqtt, url: "mqtt://broker:1883", client_id: edge, user: edge, password: hunter2}
datasets:
  imu:
    match: {source: robto, topics: [imu/data]}
    type: sensor_msgs/msg/Imu
    fields:
      x: {from: /linear_acceleration/x, unit: m/s**2, convert_to: kg}
    identity: {robot: "{namespace}"}
  temperature:
    match: {source: cell, topics: [plant/+/temp]}
    decode: json
    fields: {temp: {from: /t, type: duoble}}
    dedup: {window: 10min}
sinks:
  lake: {type: parquet, url: /lake, datasets: [imu, temprature]}
quarantine: {deliver_to: lake, format: ndjson}
"""

#: path -> (value shown, what is valid, suggestion)
EXPECTED: Mapping[str, tuple[object, str, str | None]] = {
    "edge.data_dir": ("var/lib/thadam", "absolute", None),
    "wal.commit_interval": (200, "ms", None),
    "wal.when_ful": ("stop_capture", "when_full", "when_full"),
    "sources.robot.capture": ("machted", "matched, all", "matched"),
    "sources.cell.password": (None, "password_env or password_file", None),
    "datasets.imu.match.source": ("robto", "cell, robot", "robot"),
    "datasets.imu.fields.x.convert_to": ("kg", "both must measure the same thing", None),
    "datasets.imu.identity.robot": ("{namespace}", "choose another name", None),
    "datasets.temperature.fields.temp.type": ("duoble", "double", "double"),
    "datasets.temperature.event_id.key": (None, "dedup needs", None),
    "sinks.lake.datasets[1]": ("temprature", "imu, temperature", "temperature"),
    "quarantine.format": ("ndjson", "parquet", None),
}


def _check(found: list[Problem], expected: Mapping[str, tuple[object, str, str | None]]) -> None:
    by_path = {problem.path: problem for problem in found}
    assert sorted(by_path) == sorted(expected)
    assert len(found) == len(expected), "a mistake is named twice"
    for path, (value, valid, suggestion) in expected.items():
        problem = by_path[path]
        assert problem.value == value, path
        assert valid in problem.message, problem.message
        assert problem.suggestion == suggestion, path
        assert path in str(problem)
    assert not any("hunter2" in str(problem) for problem in found)


def test_every_mistake_of_a_document_is_named_at_once() -> None:
    """Path, value, what is valid and the line, for twelve mistakes of different kinds."""
    found = problems_of(DOCUMENT)
    _check(found, EXPECTED)
    lines = {p.path: p.line for p in found}
    assert lines["wal.when_ful"] == 5
    assert lines["sources.cell.password"] == 8
    assert lines["sinks.lake.datasets[1]"] == 22


def test_every_mistake_in_ros_parameters_is_named_at_once() -> None:
    """The same mistakes spelled as parameters give the same problems."""
    _check(parameter_problems(_flat()), EXPECTED)


def test_mistakes_that_only_parameters_can_make_are_named_at_once() -> None:
    """Lists of names that do not fit, a value where a map is, a mistyped branch."""
    flat = _flat(
        """\
schema: 1
edge: {data_dir: /var/lib/thadam}
source_names: [robot]
sources: {robot: {type: ros2}}
dataset_names: [imu, joint_state]
datasets:
  imu:
    match: {source: robot, topics: [imu/data]}
    type: sensor_msgs/msg/Imu
    all_fields: true
  odom:
    match: {source: robot, topics: [odom]}
    type: nav_msgs/msg/Odometry
    all_fields: true
sink_names: lake
sinks: {lake: {type: parquet, url: /lake}}
transfrom_names: [order]
"""
    )
    flat["edge.data_dir.path"] = "/x"
    found = {p.path: p for p in parameter_problems(flat)}
    assert sorted(found) == [
        "dataset_names",
        "datasets.odom",
        "edge.data_dir",
        "sink_names",
        "sinks.lake",
        "transfrom_names",
    ]
    assert found["dataset_names"].value == "joint_state"
    assert "imu" in found["dataset_names"].message
    assert found["transfrom_names"].suggestion == "transform_names"
    assert "edge.data_dir.path" in found["edge.data_dir"].message


def _flat(text: str = "") -> dict[str, object]:
    names = "source_names: [robot, cell]\ndataset_names: [imu, temperature]\nsink_names: [lake]\n"
    document = text or DOCUMENT + names
    indented = "".join(f"    {line}\n" for line in document.splitlines())
    file = parse_parameter_file(f"/**:\n  ros__parameters:\n{indented}")
    assert not file.problems
    return file.flat


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("data_dri: /x", "data_dir"),
        ("data-dir: /x", "data_dir"),
        ("datadir: /x", "data_dir"),
        ("DATA_DIR: /x", "data_dir"),
        ("lockfile: /x", "lock_file"),
    ],
)
def test_a_mistyped_key_is_refused_with_the_nearest_valid_one(wrong: str, right: str) -> None:
    """Unknown keys never pass, and the nearest name is offered."""
    found = problems_of(
        f"edge: {{data_dir: /d, {wrong}}}\nsources: {{}}\ndatasets: {{}}\nsinks: {{}}\n"
    )
    unknown = [p for p in found if p.path == f"edge.{wrong.split(':')[0]}"]
    assert [p.suggestion for p in unknown] == [right]
