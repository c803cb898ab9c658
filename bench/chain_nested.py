# SPDX-License-Identifier: Apache-2.0
"""Chain over nested and variable types against the same baseline as the Imu bench."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.chain_support import (
    STORE,
    bag_messages,
    compare,
    header,
    quaternion,
    vector,
)

_HEAD = """
schema: 1
edge: {data_dir: $(env BENCH_DIR)/data, clock: always_synced, identity: {robot: r1}}
sources: {robot: {type: ros2}}
sinks:
  lake: {type: parquet, url: $(env BENCH_DIR)/lake, rotation: {max_age: 1h}}
"""

JOINT_STATE = (
    _HEAD
    + """
datasets:
  joint_state:
    match: {source: robot, topics: [/t]}
    type: sensor_msgs/msg/JointState
    time: {from: /header/stamp, domain: utc, max_skew: 1h}
    explode: {zip: [/name, /position, /velocity, /effort], empty_as_null: true}
    fields: {joint: ./name, position: ./position, velocity: ./velocity, effort: ./effort}
"""
)
ODOMETRY = (
    _HEAD
    + """
datasets:
  odometry:
    match: {source: robot, topics: [/t]}
    type: nav_msgs/msg/Odometry
    time: {from: /header/stamp, domain: utc, max_skew: 1h}
    fields:
      frame_id: /header/frame_id
      child_frame_id: /child_frame_id
      x: /pose/pose/position/x
      y: /pose/pose/position/y
      qz: /pose/pose/orientation/z
      qw: /pose/pose/orientation/w
      vx: /twist/twist/linear/x
      wz: /twist/twist/angular/z
"""
)
DIAGNOSTICS = (
    _HEAD
    + """
datasets:
  diagnostics:
    match: {source: robot, topics: [/t]}
    type: diagnostic_msgs/msg/DiagnosticArray
    time: {from: /header/stamp, domain: utc, max_skew: 1h}
    explode: /status
    fields: {level: ./level, name: ./name, message: ./message, hardware_id: ./hardware_id}
"""
)


def _joint_state(index: int, rng: np.random.Generator) -> Any:
    names = [f"joint_{joint}" for joint in range(6)]
    velocity = rng.normal(size=6) if index % 3 else np.zeros(0)
    return STORE.types["sensor_msgs/msg/JointState"](
        header(index), names, rng.normal(size=6), velocity, rng.normal(size=6)
    )


def _odometry(index: int, rng: np.random.Generator) -> Any:
    types, covariance = STORE.types, np.zeros(36)
    point = types["geometry_msgs/msg/Point"](*rng.normal(size=3).tolist())
    pose = types["geometry_msgs/msg/Pose"](point, quaternion(rng))
    twist = types["geometry_msgs/msg/Twist"](vector(rng), vector(rng))
    return types["nav_msgs/msg/Odometry"](
        header(index),
        "base_link" if index % 2 else "base_footprint",
        types["geometry_msgs/msg/PoseWithCovariance"](pose, covariance),
        types["geometry_msgs/msg/TwistWithCovariance"](twist, covariance),
    )


def _diagnostics(index: int, rng: np.random.Generator) -> Any:
    types = STORE.types
    status = [
        types["diagnostic_msgs/msg/DiagnosticStatus"](
            int(rng.integers(0, 3)),
            f"component {component}",
            "works" if (index + component) % 4 else "is slower than it should be",
            f"hw-{component}",
            [types["diagnostic_msgs/msg/KeyValue"](f"key {k}", str(index * k)) for k in range(3)],
        )
        for component in range(1 + index % 5)
    ]
    return types["diagnostic_msgs/msg/DiagnosticArray"](header(index), status)


def _stamp(message: Any) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)


def _joint_rows(message: Any) -> list[dict[str, object]]:
    velocity = message.velocity if len(message.velocity) else [None] * len(message.name)
    return [
        {"source_time": _stamp(message), "joint": n, "position": p, "velocity": v, "effort": e}
        for n, p, v, e in zip(message.name, message.position, velocity, message.effort, strict=True)
    ]


def _odometry_rows(message: Any) -> list[dict[str, object]]:
    pose, twist = message.pose.pose, message.twist.twist
    return [
        {
            "source_time": _stamp(message),
            "frame_id": message.header.frame_id,
            "child_frame_id": message.child_frame_id,
            "x": pose.position.x,
            "y": pose.position.y,
            "qz": pose.orientation.z,
            "qw": pose.orientation.w,
            "vx": twist.linear.x,
            "wz": twist.angular.z,
        }
    ]


def _diagnostic_rows(message: Any) -> list[dict[str, object]]:
    return [
        {
            "source_time": _stamp(message),
            "level": status.level,
            "name": status.name,
            "message": status.message,
            "hardware_id": status.hardware_id,
        }
        for status in message.status
    ]


CASES: tuple[tuple[str, str, str, Callable[..., Any], Callable[..., Any]], ...] = (
    ("JointState", "sensor_msgs/msg/JointState", JOINT_STATE, _joint_state, _joint_rows),
    ("Odometry", "nav_msgs/msg/Odometry", ODOMETRY, _odometry, _odometry_rows),
    (
        "DiagnosticArray",
        "diagnostic_msgs/msg/DiagnosticArray",
        DIAGNOSTICS,
        _diagnostics,
        _diagnostic_rows,
    ),
)


def run(seconds: float) -> dict[str, object]:
    """Measure each type; the ratio reported is the lowest of the three."""
    count = max(20_000, int(seconds * 4_000))
    rng = np.random.default_rng(2)
    details: dict[str, object] = {"messages_per_type": count}
    ratios = []
    for name, type_name, document, make, to_rows in CASES:
        some = [make(index, rng) for index in range(1_000)]
        wal = bag_messages("/t", type_name, [some[i % 1_000] for i in range(count)])

        found = compare(document, wal, type_name, to_rows)
        if not found["rows"]:
            raise RuntimeError(f"no rows of {name} delivered")
        ratios.append(found["ratio"])
        details[name] = found
    return {
        "name": "chain nested types -> Parquet",
        "ratio": min(ratios),
        "target": 5.0,
        "floor": 3.0,
        "details": details,
    }
