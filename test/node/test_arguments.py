# SPDX-License-Identifier: Apache-2.0
"""The command line that launch produces, node by node (spec 7.1)."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="thadam_ros.node needs rclpy")

from thadam_ros.node.arguments import parse_arguments, split_ros, without_name_remaps


def test_name_rules_without_a_prefix_are_left_out_and_the_rest_stays() -> None:
    """Namespace, topic remaps, prefixed rules and files reach every node."""
    ros = [
        "--ros-args", "-r", "__node:=thadam", "-r", "__ns:=/r1", "--remap", "__name:=x",
        "-r", "imu:=/imu", "-r", "thadam_lake:__node:=lake", "--params-file", "/f",
    ]  # fmt: skip
    assert without_name_remaps(ros) == [
        "--ros-args", "-r", "__ns:=/r1", "-r", "imu:=/imu",
        "-r", "thadam_lake:__node:=lake", "--params-file", "/f",
    ]  # fmt: skip


def test_own_options_stand_outside_of_ros_sections() -> None:
    """Sections begin with --ros-args and end with -- or with the line."""
    own, ros = split_ros(["--chain", "lake", "--ros-args", "-p", "a:=1", "--", "--lock-path", "/l"])
    assert own == ["--chain", "lake", "--lock-path", "/l"]
    assert ros == ["--ros-args", "-p", "a:=1", "--"]


def test_the_program_name_stays_first() -> None:
    """rclpy expects it there."""
    parsed = parse_arguments(["thadam_edge", "--chain", "lake", "--ros-args", "-r", "__ns:=/r1"])
    assert parsed.chain == "lake"
    assert parsed.ros == ("thadam_edge", "--ros-args", "-r", "__ns:=/r1")
    assert parse_arguments(["thadam_edge"]).chain is None
