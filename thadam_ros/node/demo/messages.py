# SPDX-License-Identifier: Apache-2.0
"""The messages of the simulated robot, made from stream and number alone.

They are serialized by rosbags, not by rclpy: no ROS is needed, and the bytes are those of a driver
that publishes typed messages. (``rclpy.serialization`` leaves up to eight bytes of its size
estimate behind the message, which the datasets rightly flag as DECODE_ERROR.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore

from thadam_ros.node.demo import expectations as exp

_TRUNCATED_BYTES = 60
_DESCRIPTION = '<?xml version="1.0"?>\n<robot name="demo"><link name="base_link"/></robot>\n'
_STORE = get_typestore(Stores.ROS2_JAZZY)


def make_payload(stream: exp.Stream, number: int, stamp_ns: int, seed: int) -> bytes:
    """Return the serialized message ``number`` of a stream.

    Args:
        stamp_ns: What its header says; the caller applied the kinds that change it.
    """
    kinds = stream.kinds(number)
    message = _FACTORIES[stream.key](number, _time(stamp_ns), kinds, seed)
    payload = bytes(_STORE.serialize_cdr(message, stream.type_name))
    return payload[:_TRUNCATED_BYTES] if exp.TRUNCATED in kinds else payload


def _new(name: str, /, **fields: Any) -> Any:
    """Return a message ``package/Name``; fields that are not given are their type's zero."""
    package, short = name.split("/")
    full = f"{package}/msg/{short}"
    values = {key: _zero(kind) for key, kind in _STORE.fielddefs[full][1]}
    unknown = set(fields) - set(values)
    if unknown:
        raise TypeError(f"{full} has no {sorted(unknown)}")
    return _STORE.types[full](**{**values, **fields})


def _zero(kind: Any) -> Any:
    node, detail = kind
    if node == Nodetype.BASE:
        base = detail[0]
        return (
            "" if base == "string" else False if base == "bool" else np.dtype(base).type(0).item()
        )
    if node == Nodetype.NAME:
        package, _, short = detail.split("/")
        return _new(f"{package}/{short}")
    element, size = detail
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.zeros(size if node == Nodetype.ARRAY else 0, np.dtype(element[1][0]))
    return [_zero(element) for _ in range(size if node == Nodetype.ARRAY else 0)]


def _floats(values: list[float], kind: str) -> np.ndarray[Any, Any]:
    return np.array(values, np.dtype(kind))


def _time(stamp_ns: int) -> Any:
    sec, nanosec = divmod(stamp_ns, 1_000_000_000)
    return _new("builtin_interfaces/Time", sec=sec, nanosec=nanosec)


def _header(stamp: Any, frame_id: str = "") -> Any:
    return _new("std_msgs/Header", stamp=stamp, frame_id=frame_id)


def _wave(number: int, seed: int, period: float) -> float:
    return math.sin((number + 17 * seed) / period)


def _quaternion(x: float, y: float, z: float, w: float) -> Any:
    return _new("geometry_msgs/Quaternion", x=x, y=y, z=z, w=w)


def _yaw(angle: float) -> Any:
    return _quaternion(0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))


def _vector(x: float, y: float, z: float) -> Any:
    return _new("geometry_msgs/Vector3", x=x, y=y, z=z)


def _transform(stamp: Any, parent: str, child: str, x: float) -> Any:
    return _new(
        "geometry_msgs/TransformStamped",
        header=_header(stamp, parent),
        child_frame_id=child,
        transform=_new(
            "geometry_msgs/Transform", translation=_vector(x, 0.0, 0.0), rotation=_yaw(0.0)
        ),
    )


def _tf_static(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    children = ("imu_link", "laser", "camera")
    transforms = [_transform(stamp, "base_link", c, 0.1 * i) for i, c in enumerate(children)]
    return _new("tf2_msgs/TFMessage", transforms=transforms)


def _description(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    return _new("std_msgs/String", data=_DESCRIPTION)


def _imu(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    return _new(
        "sensor_msgs/Imu",
        header=_header(stamp, "imu_link"),
        orientation=_yaw(_wave(number, seed, 400.0)),
        angular_velocity=_vector(0.0, 0.0, _wave(number, seed, 90.0)),
        linear_acceleration=_vector(
            math.nan if exp.NAN in kinds else _wave(number, seed, 50.0),
            0.0,
            500.0 if exp.RANGE in kinds else 9.81,
        ),
    )


def _battery(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    # A repetition is its predecessor byte for byte: same stamp (by the caller), same values.
    same = number - 1 if exp.REPEAT in kinds else number
    return _new(
        "sensor_msgs/BatteryState",
        header=_header(stamp, "battery"),
        voltage=24.0 + _wave(same, seed, 30.0),
        current=-1.5,
        percentage=0.8,
        present=True,
        serial_number="demo-battery",
    )


def _joints(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    # No velocity: many drivers leave it out, and the dataset says empty_as_null.
    positions = [_wave(number + 7 * i, seed, 100.0) for i in range(len(exp.JOINTS))]
    if exp.FIVE_POSITIONS in kinds:
        positions.pop()
    return _new(
        "sensor_msgs/JointState",
        header=_header(stamp),
        name=list(exp.JOINTS),
        position=_floats(positions, "float64"),
        effort=_floats([1.0] * len(exp.JOINTS), "float64"),
    )


def _gripper(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    return _new(
        "sensor_msgs/JointState",
        header=_header(stamp),
        name=["gripper"],
        position=_floats([_wave(number, seed, 40.0)], "float64"),
        effort=_floats([0.2], "float64"),
    )


def _odometry(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    is_zero = exp.ZERO_QUATERNION in kinds
    pose = _new(
        "geometry_msgs/Pose",
        position=_new("geometry_msgs/Point", x=0.01 * number),
        orientation=_quaternion(0.0, 0.0, 0.0, 0.0)
        if is_zero
        else _yaw(_wave(number, seed, 300.0)),
    )
    twist = _new("geometry_msgs/Twist", linear=_vector(0.5, 0.0, 0.0))
    return _new(
        "nav_msgs/Odometry",
        header=_header(stamp, "odom"),
        child_frame_id="base_link",
        pose=_new("geometry_msgs/PoseWithCovariance", pose=pose),
        twist=_new("geometry_msgs/TwistWithCovariance", twist=twist),
    )


def _scan(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    ranges = [2.0 + _wave(number + i, seed, 60.0) for i in range(exp.SCAN_RANGES)]
    for i in range(exp.SCAN_INFINITIES):
        ranges[(number + 30 * i) % exp.SCAN_RANGES] = math.inf
    return _new(
        "sensor_msgs/LaserScan",
        header=_header(stamp, "laser"),
        angle_min=-math.pi,
        angle_max=math.pi,
        angle_increment=2 * math.pi / exp.SCAN_RANGES,
        range_min=0.05,
        range_max=30.0,
        ranges=_floats(ranges, "float32"),
    )


def _diagnostics(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    names = ("motors: left", "motors: right", "lidar: driver")
    value = _new("diagnostic_msgs/KeyValue", key="number", value=str(number))
    statuses = [
        _new(
            "diagnostic_msgs/DiagnosticStatus",
            level=int(number % 10 == 0 and i == 0),  # OK or WARN
            name=name,
            message="running",
            hardware_id="demo",
            values=[value],
        )
        for i, name in enumerate(names)
    ]
    return _new("diagnostic_msgs/DiagnosticArray", header=_header(stamp), status=statuses)


def _tf(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    transforms = [
        _transform(stamp, "odom", "base_link", 0.01 * number),
        _transform(stamp, "map", "odom", _wave(number, seed, 500.0)),
    ]
    return _new("tf2_msgs/TFMessage", transforms=transforms)


def _cloud(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    names = ("x", "y", "z", "intensity")
    row_bytes = exp.CLOUD_POINTS * exp.CLOUD_POINT_BYTES
    float32 = 7  # PointField.FLOAT32
    return _new(
        "sensor_msgs/PointCloud2",
        header=_header(stamp, "camera"),
        height=1,
        width=exp.CLOUD_POINTS,
        fields=[
            _new("sensor_msgs/PointField", name=name, offset=4 * i, datatype=float32, count=1)
            for i, name in enumerate(names)
        ],
        point_step=exp.CLOUD_POINT_BYTES,
        row_step=row_bytes,
        data=np.full(row_bytes, (number + seed) % 256, np.uint8),
        is_dense=True,
    )


def _temperature(number: int, stamp: Any, kinds: tuple[str, ...], seed: int) -> Any:
    return _new(
        "sensor_msgs/Temperature",
        header=_header(stamp, "base_link"),
        temperature=40.0 + _wave(number, seed, 20.0),
        variance=-1.0 if exp.ASLEEP in kinds else 0.1,
    )


_FACTORIES: Mapping[str, Callable[[int, Any, tuple[str, ...], int], Any]] = {
    "tf_static": _tf_static,
    "description": _description,
    "imu": _imu,
    "battery": _battery,
    "joints": _joints,
    "gripper": _gripper,
    "odometry": _odometry,
    "scan": _scan,
    "diagnostics": _diagnostics,
    "tf": _tf,
    "cloud": _cloud,
    "temperature": _temperature,
}
