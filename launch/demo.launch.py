# SPDX-License-Identifier: Apache-2.0
"""Starts an edge and the simulated robot of the demo in the same namespace.

It takes every argument of ``edge.launch.py``; ``config_file`` defaults to the demo's, which writes
below ``$THADAM_DEMO_DIR`` (default: ``~/.ros/thadam_demo``). The robot is the deterministic one of
``scripts/demo``, which adds the balance sheet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity

PACKAGE = "thadam_ros"
ROBOT_EXECUTABLE = "thadam_demo_robot"
DEFAULT_DIR = Path.home() / ".ros" / "thadam_demo"
ROBOT_NAME = "thadam_demo_robot"


def make_robot(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """The robot's process."""
    from launch_ros.actions import Node

    return [
        Node(
            package=PACKAGE,
            executable=ROBOT_EXECUTABLE,
            name=ROBOT_NAME,
            namespace=context.launch_configurations.get("namespace", ""),
            output="both",
            emulate_tty=True,
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """Called by ros2 launch."""
    from ament_index_python.packages import get_package_share_directory
    from launch import LaunchDescription
    from launch.actions import (
        DeclareLaunchArgument,
        IncludeLaunchDescription,
        OpaqueFunction,
        SetEnvironmentVariable,
    )
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    share = Path(get_package_share_directory(PACKAGE))
    edge = str(share / "launch" / "edge.launch.py")
    return LaunchDescription(
        [
            # Declared before the include, so this default wins over that of edge.launch.py.
            DeclareLaunchArgument(
                "config_file",
                default_value=str(share / "config" / "demo.yaml"),
                description="Configuration of the edge; by default the demo's.",
            ),
            SetEnvironmentVariable(
                "THADAM_DEMO_DIR", os.environ.get("THADAM_DEMO_DIR") or str(DEFAULT_DIR)
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(edge)),
            OpaqueFunction(function=make_robot),
        ]
    )
