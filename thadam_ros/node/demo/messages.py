# SPDX-License-Identifier: Apache-2.0
"""The messages of the simulated robot, made from stream and number alone."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Quaternion, TransformStamped
from nav_msgs.msg import Odometry
from rclpy.serialization import serialize_message
from sensor_msgs.msg import (
    BatteryState,
    Imu,
    JointState,
    LaserScan,
    PointCloud2,
    PointField,
    Temperature,
)
from std_msgs.msg import Header, String
from tf2_msgs.msg import TFMessage

from thadam_ros.node.demo import expectations as exp

_TRUNCATED_BYTES = 60
_DESCRIPTION = '<?xml version="1.0"?>\n<robot name="demo"><link name="base_link"/></robot>\n'


def make_payload(stream: exp.Stream, number: int, stamp_ns: int, seed: int) -> bytes:
    """Return the serialized message ``number`` of a stream.

    Args:
        stamp_ns: What its header says; the caller applied the kinds that change it.
    """
    kinds = stream.kinds(number)
    message = _FACTORIES[stream.key](number, _time(stamp_ns), kinds, seed)
    payload = bytes(serialize_message(message))
    return payload[:_TRUNCATED_BYTES] if exp.TRUNCATED in kinds else payload


def _time(stamp_ns: int) -> Time:
    return Time(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def _wave(number: int, seed: int, period: float) -> float:
    return math.sin((number + 17 * seed) / period)


def _yaw(angle: float) -> Quaternion:
    return Quaternion(x=0.0, y=0.0, z=math.sin(angle / 2), w=math.cos(angle / 2))


def _transform(stamp: Time, parent: str, child: str, x: float) -> TransformStamped:
    transform = TransformStamped(header=Header(stamp=stamp, frame_id=parent), child_frame_id=child)
    transform.transform.translation.x = x
    return transform


def _tf_static(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> TFMessage:
    children = ("imu_link", "laser", "camera")
    return TFMessage(
        transforms=[_transform(stamp, "base_link", c, 0.1 * i) for i, c in enumerate(children)]
    )


def _description(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> String:
    return String(data=_DESCRIPTION)


def _imu(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> Imu:
    message = Imu(header=Header(stamp=stamp, frame_id="imu_link"))
    message.orientation = _yaw(_wave(number, seed, 400.0))
    message.angular_velocity.z = _wave(number, seed, 90.0)
    message.linear_acceleration.x = math.nan if exp.NAN in kinds else _wave(number, seed, 50.0)
    message.linear_acceleration.z = 500.0 if exp.RANGE in kinds else 9.81
    return message


def _battery(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> BatteryState:
    # A repetition is its predecessor byte for byte: same stamp (by the caller), same values.
    same = number - 1 if exp.REPEAT in kinds else number
    message = BatteryState(header=Header(stamp=stamp, frame_id="battery"))
    message.voltage = 24.0 + _wave(same, seed, 30.0)
    message.current = -1.5
    message.percentage = 0.8
    message.present = True
    message.serial_number = "demo-battery"
    return message


def _joints(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> JointState:
    # No velocity: many drivers leave it out, and the dataset says empty_as_null.
    positions = [_wave(number + 7 * i, seed, 100.0) for i in range(len(exp.JOINTS))]
    if exp.FIVE_POSITIONS in kinds:
        positions.pop()
    return JointState(
        header=Header(stamp=stamp),
        name=list(exp.JOINTS),
        position=positions,
        effort=[1.0] * len(exp.JOINTS),
    )


def _gripper(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> JointState:
    position = _wave(number, seed, 40.0)
    return JointState(
        header=Header(stamp=stamp), name=["gripper"], position=[position], effort=[0.2]
    )


def _odometry(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> Odometry:
    message = Odometry(header=Header(stamp=stamp, frame_id="odom"), child_frame_id="base_link")
    message.pose.pose.position.x = 0.01 * number
    message.pose.pose.orientation = _yaw(_wave(number, seed, 300.0))
    if exp.ZERO_QUATERNION in kinds:
        message.pose.pose.orientation = Quaternion(x=0.0, y=0.0, z=0.0, w=0.0)
    message.twist.twist.linear.x = 0.5
    return message


def _scan(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> LaserScan:
    ranges = [2.0 + _wave(number + i, seed, 60.0) for i in range(exp.SCAN_RANGES)]
    for i in range(exp.SCAN_INFINITIES):
        ranges[(number + 30 * i) % exp.SCAN_RANGES] = math.inf
    return LaserScan(
        header=Header(stamp=stamp, frame_id="laser"),
        angle_min=-math.pi,
        angle_max=math.pi,
        angle_increment=2 * math.pi / exp.SCAN_RANGES,
        range_min=0.05,
        range_max=30.0,
        ranges=ranges,
    )


def _diagnostics(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> DiagnosticArray:
    names = ("motors: left", "motors: right", "lidar: driver")
    return DiagnosticArray(
        header=Header(stamp=stamp),
        status=[
            DiagnosticStatus(
                level=DiagnosticStatus.WARN if number % 10 == 0 and i == 0 else DiagnosticStatus.OK,
                name=name,
                message="running",
                hardware_id="demo",
                values=[KeyValue(key="number", value=str(number))],
            )
            for i, name in enumerate(names)
        ],
    )


def _tf(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> TFMessage:
    return TFMessage(
        transforms=[
            _transform(stamp, "odom", "base_link", 0.01 * number),
            _transform(stamp, "map", "odom", _wave(number, seed, 500.0)),
        ]
    )


def _cloud(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> PointCloud2:
    names = ("x", "y", "z", "intensity")
    row_bytes = exp.CLOUD_POINTS * exp.CLOUD_POINT_BYTES
    data = array("B", bytes((number + seed) % 256 for _ in range(256)) * (row_bytes // 256))
    return PointCloud2(
        header=Header(stamp=stamp, frame_id="camera"),
        height=1,
        width=exp.CLOUD_POINTS,
        fields=[
            PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1)
            for i, name in enumerate(names)
        ],
        point_step=exp.CLOUD_POINT_BYTES,
        row_step=row_bytes,
        data=data,
        is_dense=True,
    )


def _temperature(number: int, stamp: Time, kinds: tuple[str, ...], seed: int) -> Temperature:
    return Temperature(
        header=Header(stamp=stamp, frame_id="base_link"),
        temperature=40.0 + _wave(number, seed, 20.0),
        variance=-1.0 if exp.ASLEEP in kinds else 0.1,
    )


_FACTORIES: Mapping[str, Callable[[int, Time, tuple[str, ...], int], Any]] = {
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
