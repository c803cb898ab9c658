# SPDX-License-Identifier: Apache-2.0
"""Starts one edge: the process with ``thadam`` and one ``thadam_<sink>`` node per sink.

``ros2 launch thadam_ros edge.launch.py --show-args`` describes the arguments.

They are handed over as ROS arguments of the process, not as launch_ros ``parameters``: those would
reach only ``<namespace>/thadam``, while ``-p`` reaches every node of the process. Parameter files
go through unexpanded; ``$(env ...)`` in them is expanded by the loader of thadam_ros alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity

NODE_NAME = "thadam"
PACKAGE = "thadam_ros"
EXECUTABLE = "thadam_edge"
RESPAWN_DELAY_S = 2.0


class Argument(NamedTuple):
    """One launch argument; an empty value leaves the matter to ``params_file``."""

    default: str
    description: str
    choices: tuple[str, ...] | None = None


BOOLEAN = ("true", "false")
BOOLEAN_OR_EMPTY = ("", "true", "false")

ARGUMENTS: dict[str, Argument] = {
    "namespace": Argument("", "Namespace of the nodes; relative topics resolve in it."),
    "config_file": Argument(
        "", "thadam.yaml with sources, datasets and sinks. Empty: as params_file says."
    ),
    "params_file": Argument(
        "", "ROS parameter file ('/**:'); its values override those of config_file."
    ),
    "data_dir": Argument(
        "", "Folder of the write-ahead log, cursors and quarantine. Empty: as configured."
    ),
    "use_sim_time": Argument(
        "",
        "Source stamps are simulated time; ingest time stays the system's. Empty: as configured.",
        BOOLEAN_OR_EMPTY,
    ),
    "autostart": Argument(
        "true", "Configure and activate every node of the process at its start.", BOOLEAN
    ),
    "isolate_chains": Argument(
        "",
        "Run each sink's chain as a process of its own. Empty: as configured.",
        BOOLEAN_OR_EMPTY,
    ),
    "log_level": Argument(
        "info", "Log level of the process, or of one logger, as in 'thadam:=debug'."
    ),
    "use_respawn": Argument(
        "false", f"Start the process again {RESPAWN_DELAY_S:g} s after it ended.", BOOLEAN
    ),
    "metrics_port": Argument(
        "", "Port of the Prometheus metrics on 127.0.0.1; 0 = off, all that this version takes."
    ),
}

#: Launch argument -> parameter of the process, and whether its value is text.
PARAMETERS: dict[str, tuple[str, bool]] = {
    "config_file": ("config_file", True),
    "data_dir": ("edge.data_dir", True),
    "use_sim_time": ("use_sim_time", False),
    "autostart": ("autostart", False),
    "isolate_chains": ("isolate_chains", False),
    "metrics_port": ("metrics_port", False),
}


def ros_arguments(values: Mapping[str, str]) -> list[str]:
    """What follows ``--ros-args`` on the process's command line.

    The parameter file stands first, so that the arguments override its ``/**:`` section. Text is
    quoted: ``data_dir:=2024`` stays text for rcl's YAML parser.

    Args:
        values: Launch argument -> value; empty or absent ones say nothing.
    """
    arguments: list[str] = []
    if values.get("log_level"):
        arguments += ["--log-level", values["log_level"]]
    if values.get("params_file"):
        arguments += ["--params-file", values["params_file"]]
    for argument, (parameter, is_text) in PARAMETERS.items():
        value = values.get(argument, "")
        if value:
            arguments += ["-p", f"{parameter}:={json.dumps(value) if is_text else value}"]
    return arguments


def make_node(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """The process, from the values that the arguments have when launch gets here."""
    from launch_ros.actions import Node

    values = {name: context.launch_configurations.get(name, "") for name in ARGUMENTS}
    return [
        Node(
            package=PACKAGE,
            executable=EXECUTABLE,
            name=NODE_NAME,
            namespace=values["namespace"],
            ros_arguments=ros_arguments(values),
            respawn=values["use_respawn"] == "true",
            respawn_delay=RESPAWN_DELAY_S,
            output="both",
            emulate_tty=True,
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """Called by ros2 launch. Imports stand inside: the rest is tested without launch installed."""
    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument, OpaqueFunction

    declared = [
        DeclareLaunchArgument(
            name,
            default_value=argument.default,
            description=argument.description,
            choices=argument.choices,
        )
        for name, argument in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=make_node)])
