# SPDX-License-Identifier: Apache-2.0
"""Where verbs are found.

Verbs without ROS are entries of :data:`VERBS`. Verbs that need ROS live under ``node/verbs`` and
are never imported from here by name: they are looked up in this order,

1. entry points of the group ``thadam_ros.verbs`` (``pip install``, and colcon, whose build writes
   the same metadata);
2. files of the folder ``node/verbs`` beside this package (a source tree, or an install without
   metadata). Only names are read; a module is imported when it was asked for.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from thadam_ros.errors import ThadamError

ENTRY_POINT_GROUP: Final = "thadam_ros.verbs"

#: Verb -> module. One line per verb.
VERBS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "init": "thadam_ros.cli.verbs.init",
        "validate": "thadam_ros.cli.verbs.validate",
        "status": "thadam_ros.cli.verbs.status",
        "wal": "thadam_ros.cli.verbs.wal",
        "quarantine": "thadam_ros.cli.verbs.quarantine",
        "inspect": "thadam_ros.cli.verbs.inspect",
    }
)

#: Modules beside the ROS verbs that serve other verbs.
HELPERS: Final = frozenset({"init_graph"})

#: Top-level modules whose absence means "no ROS here".
ROS_MODULES: Final = frozenset(
    {
        "rclpy",
        "rcl_interfaces",
        "builtin_interfaces",
        "lifecycle_msgs",
        "diagnostic_msgs",
        "std_msgs",
        "std_srvs",
        "ament_index_python",
        "rosidl_runtime_py",
        "rosidl_parser",
    }
)


class Verb(Protocol):
    """What a verb's module offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments; ``--json`` is there already."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; return the exit code."""


class NeedsRosError(ThadamError):
    """Something that needs ROS was asked for where there is none."""


def ros_modules() -> dict[str, str]:
    """Return name -> module of everything found under ``node/verbs``, without importing it."""
    found = {
        path.stem: f"thadam_ros.node.verbs.{path.stem}"
        for path in sorted(Path(__file__).parents[1].glob("node/verbs/[a-z]*.py"))
    }
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        found[entry.name] = entry.value.partition(":")[0]
    return found


def ros_verbs() -> dict[str, str]:
    """Return verb -> module of the verbs that need ROS."""
    return {
        name: module
        for name, module in ros_modules().items()
        if name not in HELPERS and name not in VERBS
    }


def load_ros_module(name: str, what: str) -> Any:
    """Import a module found under ``node/verbs``.

    Args:
        what: What the caller wants of it, for the message.

    Raises:
        NeedsRosError: If ROS, or the module itself, is missing.
    """
    module = ros_modules().get(name)
    if module is None:
        raise NeedsRosError(
            f"{what} is not part of this installation; build thadam_ros in a ROS 2 workspace"
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        missing = exc.name or ""
        if missing.split(".")[0] not in ROS_MODULES and missing != "thadam_ros.msg":
            raise
        raise NeedsRosError(
            f"{what} needs ROS 2 (the Python module {missing} is missing); source a workspace "
            "that holds thadam_ros first, such as: . install/setup.bash"
        ) from exc


def load_verb(name: str) -> Verb:
    """Import the module of a verb.

    Raises:
        KeyError: If there is no such verb.
        NeedsRosError: If it needs ROS and there is none.
    """
    if name in VERBS:
        module: Any = importlib.import_module(VERBS[name])
        verb: Verb = module
        return verb
    if name not in ros_verbs():
        raise KeyError(name)
    found: Verb = load_ros_module(name, f"thadam {name}")
    return found
