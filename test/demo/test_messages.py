# SPDX-License-Identifier: Apache-2.0
"""The robot's messages, read back by rosbags."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from thadam_ros.node.demo import expectations as exp
from thadam_ros.node.demo.messages import make_payload

PLAN = exp.make_plan(25, 1)
STORE = get_typestore(Stores.ROS2_JAZZY)
STAMP_NS = 1_700_000_000_123_456_789


def payload_of(key: str, number: int) -> bytes:
    """A message with a fixed stamp."""
    return make_payload(PLAN.stream(key), number, STAMP_NS, PLAN.seed)


def read(key: str, number: int) -> Any:
    """A message, decoded independently."""
    return STORE.deserialize_cdr(payload_of(key, number), PLAN.stream(key).type_name)


def number_of(key: str, kind: str) -> int:
    """The one message of a kind."""
    return next(n for n, kinds in PLAN.stream(key).singles.items() if kind in kinds)


@pytest.mark.parametrize("key", [stream.key for stream in PLAN.streams])
def test_same_number_gives_the_same_bytes(key: str) -> None:
    """Deterministic: nothing is drawn, nothing depends on time but the stamp."""
    assert payload_of(key, 1) == payload_of(key, 1)


@pytest.mark.parametrize("key", [s.key for s in PLAN.streams if s.key not in ("description",)])
def test_stamp_stands_where_the_dataset_reads_it(key: str) -> None:
    """In the header, or in each transform's."""
    message = read(key, 1)
    header = message.transforms[0].header if key.startswith("tf") else message.header
    assert header.stamp.sec * 10**9 + header.stamp.nanosec == STAMP_NS


def test_every_defect_is_in_the_message_that_the_plan_names() -> None:
    """And its neighbours are sound."""
    assert math.isnan(read("imu", exp.IMU_NAN_EVERY).linear_acceleration.x)
    assert math.isfinite(read("imu", exp.IMU_NAN_EVERY + 1).linear_acceleration.x)
    assert read("imu", exp.IMU_RANGE_EVERY).linear_acceleration.z == 500.0
    five = number_of("joints", exp.FIVE_POSITIONS)
    assert [len(read("joints", n).position) for n in (five - 1, five)] == [6, 5]
    assert len(read("joints", five).velocity) == 0
    zero = number_of("odometry", exp.ZERO_QUATERNION)
    orientation = read("odometry", zero).pose.pose.orientation
    assert orientation.z == orientation.w == 0.0
    truncated = number_of("odometry", exp.TRUNCATED)
    assert len(payload_of("odometry", truncated)) == 60 < len(payload_of("odometry", zero))
    assert read("temperature", exp.TEMPERATURE_ASLEEP_EVERY).variance < 0


def test_battery_repetition_is_its_predecessor_byte_for_byte() -> None:
    """Also in its stamp, which the plan gives."""
    battery, repeated = PLAN.stream("battery"), exp.BATTERY_REPEAT_EVERY
    stamps = [battery.planned_stamp_ns(n) for n in (repeated - 1, repeated)]
    assert stamps[0] == stamps[1]
    assert payload_of("battery", repeated) == payload_of("battery", repeated - 1)
    assert payload_of("battery", repeated) != payload_of("battery", repeated + 1)


def test_scan_and_cloud_have_the_sizes_that_are_checked() -> None:
    """Infinite ranges per scan, one mebibyte per cloud."""
    for number in (1, 2, 77):
        assert int(np.isinf(read("scan", number).ranges).sum()) == exp.SCAN_INFINITIES
    assert len(read("cloud", 1).data) == 1 << 20
