# SPDX-License-Identifier: Apache-2.0
"""Documents that several tests start from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from thadam_ros.config.loader import load_document, load_parameters
from thadam_ros.config.schema import Config
from thadam_ros.errors import ConfigError, Problem

CHECKOUT = Path(__file__).resolve().parents[2]
ENV = {"SITE": "berlin", "ROBOT_ID": "r7"}

SMALL = """\
schema: 1
edge: {data_dir: /var/lib/thadam, identity: {robot: r7}}
sources:
  robot: {type: ros2}
  cell: {type: mqtt, url: "mqtt://broker:1883", client_id: edge}
datasets:
  imu:
    match: {source: robot, topics: [imu/data]}
    type: sensor_msgs/msg/Imu
    all_fields: true
    time: {from: /header/stamp, domain: utc}
  temperature:
    match: {source: cell, topics: [plant/+/temp]}
    decode: json
    fields: {temp: {from: /t, type: double}}
sinks:
  lake: {type: parquet, url: /lake}
"""


def problems_of(text: str, env: Mapping[str, str] | None = None) -> list[Problem]:
    """Return the problems of a document; none when it is valid."""
    try:
        load_document(text, ENV if env is None else env)
    except ConfigError as exc:
        return list(exc.problems)
    return []


def parameter_problems(flat: Mapping[str, object], base: str | None = None) -> list[Problem]:
    """Return the problems of ROS parameters."""
    try:
        load_parameters(flat, ENV, base)
    except ConfigError as exc:
        return list(exc.problems)
    return []


def small(*replacements: tuple[str, str]) -> str:
    """Return the small document with texts replaced, each of which must be there."""
    text = SMALL
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    return text


def load_small(*replacements: tuple[str, str]) -> Config:
    """Load the small document with texts replaced."""
    return load_document(small(*replacements), ENV)


def only_problem(text: str) -> Problem:
    """Return the one problem of a document; fails if there are others."""
    found = problems_of(text)
    assert len(found) == 1, [str(p) for p in found]
    return found[0]


def specification_examples() -> Path:
    """Return the folder of the specification's examples; skips where there is none."""
    data = os.environ.get("THADAM_SHARED_DATA")
    root = Path(data).parent if data else CHECKOUT.parent / "shared"
    folder = root / "spec" / "example"
    if not folder.is_dir():
        pytest.skip(f"no specification examples: {folder} does not exist")
    return folder
