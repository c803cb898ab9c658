# SPDX-License-Identifier: Apache-2.0
"""Chain, Imu CDR to Parquet, against rosbags + pandas on the same bytes and one core."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.chain_support import bag_messages, compare, imu

DOCUMENT = """
schema: 1
edge: {data_dir: $(env BENCH_DIR)/data, clock: always_synced, identity: {robot: r1}}
sources: {robot: {type: ros2}}
datasets:
  imu:
    match: {source: robot, topics: [/imu]}
    type: sensor_msgs/msg/Imu
    time: {from: /header/stamp, domain: utc, max_skew: 1h}
    fields:
      orientation_x: /orientation/x
      orientation_y: /orientation/y
      orientation_z: /orientation/z
      orientation_w: /orientation/w
      angular_velocity_x: /angular_velocity/x
      angular_velocity_y: /angular_velocity/y
      angular_velocity_z: /angular_velocity/z
      linear_acceleration_x: /linear_acceleration/x
      linear_acceleration_y: /linear_acceleration/y
      linear_acceleration_z: /linear_acceleration/z
sinks:
  lake: {type: parquet, url: $(env BENCH_DIR)/lake, rotation: {max_age: 1h}}
"""


def to_rows(message: Any) -> list[dict[str, object]]:
    """Return what a person would put into a DataFrame: ten columns and the stamp."""
    stamp = message.header.stamp
    row: dict[str, object] = {"source_time": stamp.sec * 10**9 + stamp.nanosec}
    for axis in "xyzw":
        row[f"orientation_{axis}"] = getattr(message.orientation, axis)
    for axis in "xyz":
        row[f"angular_velocity_{axis}"] = getattr(message.angular_velocity, axis)
        row[f"linear_acceleration_{axis}"] = getattr(message.linear_acceleration, axis)
    return [row]


def run(seconds: float) -> dict[str, object]:
    """Measure the ratio baseline / chain; ``seconds`` sizes the input (about that long in all)."""
    count = max(50_000, int(seconds * 20_000))
    rng = np.random.default_rng(1)
    some = [imu(index, rng) for index in range(2_000)]
    wal = bag_messages("/imu", "sensor_msgs/msg/Imu", [some[i % 2_000] for i in range(count)])

    found = compare(DOCUMENT, wal, "sensor_msgs/msg/Imu", to_rows)
    if found["rows"] != count:
        raise RuntimeError(f"{found['rows']} rows delivered of {count} messages")
    return {
        "name": "chain Imu -> Parquet",
        "ratio": found.pop("ratio"),
        "target": 10.0,
        "floor": 6.0,
        "details": {"messages": count, **found},
    }
