# SPDX-License-Identifier: Apache-2.0
"""The process's command line: its own options, and the ROS arguments of each node (spec 7.1)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_ROS = "--ros-args"
_END = "--"
_REMAP = ("-r", "--remap")
_NAME_RULES = ("__node:=", "__name:=")


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed command line.

    Attributes:
        chain: Run this sink's chain alone (``isolate_chains``), None for the whole edge.
        lock_path: Lock file of the datasets, where the document's place does not decide.
        ros: All arguments for rclpy, program name first.
    """

    chain: str | None
    lock_path: str | None
    ros: tuple[str, ...]


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse ``sys.argv``.

    Raises:
        SystemExit: For unknown options (code 2) and ``--help`` (code 0).
    """
    own, ros = split_ros(argv[1:])
    parser = argparse.ArgumentParser(
        prog="thadam_edge",
        description="Captures topics, makes them durable and delivers them to the configured sinks."
        " Everything else is a ROS parameter: --ros-args -p config_file:=/path/to/thadam.yaml",
        epilog="Exit codes: 0 stopped on request, 1 a thread did not stop in time, 2 wrong command"
        " line, 3 could not run or could not release what it held.",
    )
    parser.add_argument("--chain", metavar="SINK", help="run only the chain of this sink")
    parser.add_argument("--lock-path", metavar="FILE", help="lock file of the datasets")
    parsed = parser.parse_args(own)
    return Arguments(parsed.chain, parsed.lock_path, (argv[0], *ros))


def split_ros(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into other arguments and ROS arguments (``--ros-args ... [--]`` sections)."""
    own: list[str] = []
    ros: list[str] = []
    inside = False
    for argument in argv:
        if argument == _ROS:
            inside = True
            ros.append(argument)
        elif inside:
            ros.append(argument)
            inside = argument != _END
        else:
            own.append(argument)
    return own, ros


def without_name_remaps(ros: Sequence[str]) -> list[str]:
    """Return ROS arguments without unprefixed ``__node`` rules, which would rename every node.

    Namespace, topic remaps and parameter files stay: they apply to all nodes of the process.
    """
    kept: list[str] = []
    skip = False
    for position, argument in enumerate(ros):
        if skip:
            skip = False
            continue
        following = ros[position + 1] if position + 1 < len(ros) else ""
        if argument in _REMAP and following.startswith(_NAME_RULES):
            skip = True
            continue
        if argument.startswith("--remap=") and argument[len("--remap=") :].startswith(_NAME_RULES):
            continue
        kept.append(argument)
    return kept
