# SPDX-License-Identifier: Apache-2.0
"""Starts an edge and the simulated robot of the demo in the same namespace.

It takes every argument of ``edge.launch.py``; ``config_file`` and ``data_dir`` default to the
demo's. The robot is the deterministic one of ``scripts/demo``, which adds the balance sheet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity

PACKAGE = "thadam_ros"
ROBOT_EXECUTABLE = "thadam_demo_robot"
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
    from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    share = Path(get_package_share_directory(PACKAGE))
    edge = str(share / "launch" / "edge.launch.py")
    return LaunchDescription(
        [
            # Declared before the include, so these defaults win over those of edge.launch.py.
            DeclareLaunchArgument(
                "config_file",
                default_value=str(share / "config" / "demo.yaml"),
                description="Configuration of the edge; by default the demo's.",
            ),
            DeclareLaunchArgument(
                "data_dir",
                default_value=str(Path.home() / ".ros" / "thadam_demo"),
                description="Folder of the write-ahead log, cursors and quarantine.",
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(edge)),
            OpaqueFunction(function=make_robot),
        ]
    )
