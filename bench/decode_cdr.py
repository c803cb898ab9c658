# SPDX-License-Identifier: Apache-2.0
"""CDR columns against rosbags' generated decoder on the same bytes, one core, one process.

The chain benches hold the targets of spec 8.2 (decode, pandas and Parquet together); this one
watches the decoder's own share of them, so its target is that of the chain: what is slower here
cannot be made up elsewhere. Sides alternate, each figure is the median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_typestore

from thadam_ros.decode.cdr_columns import CdrColumnDecoder
from thadam_ros.decode.definition import MessageSchema, parse_definition

_MESSAGES = 2_000
_IMU_POINTERS = (
    *(f"/orientation/{axis}" for axis in "xyzw"),
    *(f"/angular_velocity/{axis}" for axis in "xyz"),
    *(f"/linear_acceleration/{axis}" for axis in "xyz"),
)


def _header(types: dict[str, Any], number: int, frame: str) -> object:
    stamp = types["builtin_interfaces/msg/Time"](1_700_000_000 + number // 100, number)
    return types["std_msgs/msg/Header"](stamp, frame)


def _vector(types: dict[str, Any], name: str, values: np.ndarray) -> object:
    return types[f"geometry_msgs/msg/{name}"](*values.tolist())


def _imu(types: dict[str, Any], rng: np.random.Generator, number: int) -> object:
    return types["sensor_msgs/msg/Imu"](
        _header(types, number, "imu_link"),
        _vector(types, "Quaternion", rng.normal(size=4)),
        rng.normal(size=9),
        _vector(types, "Vector3", rng.normal(size=3)),
        rng.normal(size=9),
        _vector(types, "Vector3", rng.normal(size=3)),
        rng.normal(size=9),
    )


def _joint_state(types: dict[str, Any], rng: np.random.Generator, number: int) -> object:
    names = [f"joint_{i}_{'ab' * (i % 3)}" for i in range(7)]
    values = (rng.normal(size=7) for _ in range(3))
    return types["sensor_msgs/msg/JointState"](_header(types, number, "base"), names, *values)


def _odometry(types: dict[str, Any], rng: np.random.Generator, number: int) -> object:
    pose = types["geometry_msgs/msg/Pose"](
        _vector(types, "Point", rng.normal(size=3)),
        _vector(types, "Quaternion", rng.normal(size=4)),
    )
    twist = types["geometry_msgs/msg/Twist"](
        _vector(types, "Vector3", rng.normal(size=3)), _vector(types, "Vector3", rng.normal(size=3))
    )
    return types["nav_msgs/msg/Odometry"](
        _header(types, number, "odom"),
        "base_link",
        types["geometry_msgs/msg/PoseWithCovariance"](pose, rng.normal(size=36)),
        types["geometry_msgs/msg/TwistWithCovariance"](twist, rng.normal(size=36)),
    )


def _diagnostics(types: dict[str, Any], rng: np.random.Generator, number: int) -> object:
    pair = types["diagnostic_msgs/msg/KeyValue"]
    statuses = [
        types["diagnostic_msgs/msg/DiagnosticStatus"](
            int(rng.integers(0, 4)),
            f"driver/{unit}",
            "ok" if rng.random() < 0.9 else f"error {rng.integers(0, 10**6)}",
            f"hw-{unit}",
            [pair(f"key_{k}", str(rng.integers(0, 10**6))) for k in range(int(rng.integers(2, 7)))],
        )
        for unit in range(int(rng.integers(2, 6)))
    ]
    return types["diagnostic_msgs/msg/DiagnosticArray"](_header(types, number, ""), statuses)


_Maker = Callable[[dict[str, Any], np.random.Generator, int], object]
_CASES: tuple[tuple[str, _Maker, tuple[str, ...] | None, float], ...] = (
    ("sensor_msgs/msg/Imu", _imu, _IMU_POINTERS, 10.0),
    ("sensor_msgs/msg/JointState", _joint_state, None, 5.0),
    ("nav_msgs/msg/Odometry", _odometry, None, 5.0),
    ("diagnostic_msgs/msg/DiagnosticArray", _diagnostics, None, 5.0),
)


def _schema(store: Any, type_name: str) -> MessageSchema:
    text, _ = store.generate_msgdef(type_name, ros_version=2)
    return parse_definition(text, type_name)


def _compare(store: Any, case: int, seconds: float) -> dict[str, float]:
    type_name, make, pointers, target = _CASES[case]
    rng = np.random.default_rng(20 + case)
    raw = [
        bytes(store.serialize_cdr(make(store.types, rng, number), type_name))
        for number in range(_MESSAGES)
    ]
    schema = _schema(store, type_name)
    wanted = pointers or tuple(pointer for pointer, _ in schema.leaves())
    decoder = CdrColumnDecoder(schema, wanted)
    payload = np.frombuffer(b"".join(raw), np.uint8)
    ends = np.cumsum([len(message) for message in raw])
    starts = ends - np.array([len(message) for message in raw])

    def ours() -> None:
        decoder.decode(payload, starts, ends)

    def theirs() -> None:
        for message in raw:
            store.deserialize_cdr(message, type_name)

    timings: dict[str, list[float]] = {"ours": [], "theirs": []}
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(timings["ours"]) < 3:
        for side, call in (("ours", ours), ("theirs", theirs)):
            begin = time.perf_counter()
            call()
            timings[side].append(time.perf_counter() - begin)
    mine, other = (statistics.median(timings[side]) for side in ("ours", "theirs"))
    return {
        "ratio": other / mine,
        "target": target,
        "us_per_message": mine / _MESSAGES * 1e6,
        "rosbags_us_per_message": other / _MESSAGES * 1e6,
    }


def run(seconds: float) -> dict[str, Any]:
    """Measure for about ``seconds``; the ratio is the worst of the four types over its target."""
    store = get_typestore(Stores.ROS2_KILTED)
    details = {
        _CASES[case][0]: _compare(store, case, seconds / len(_CASES)) for case in range(len(_CASES))
    }
    worst = min(details.values(), key=lambda d: d["ratio"] / d["target"])
    return {
        "name": "decode: CDR columns against rosbags",
        "ratio": worst["ratio"],
        "target": worst["target"],
        "floor": 0.6 * worst["target"],
        "details": details,
    }


if __name__ == "__main__":
    import json

    print(json.dumps(run(8.0), indent=2))
