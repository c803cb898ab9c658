# SPDX-License-Identifier: Apache-2.0
"""Who publishes, and with which configuration the edge runs: the robot, or a bag."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from thadam_ros.node.demo.expectations import RobotPlan, make_plan
from thadam_ros.node.demo.options import Options
from thadam_ros.node.demo.shipped import shipped_config

NAMESPACE = "/r1"


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything a run needs to know about its publisher.

    Attributes:
        config: The edge's configuration.
        command: Starts the publisher.
        plan: The robot's plan; None for a bag, whose defects nobody computed.
        notes: Sentences to show.
    """

    config: Path
    command: tuple[str, ...]
    namespace: str
    plan: RobotPlan | None
    notes: tuple[str, ...] = ()


def make_stage(options: Options, ledger: Path) -> Stage:
    """Prepare the publisher.

    Raises:
        ThadamError, OSError: The bag cannot be read or gives no configuration.
    """
    if options.bag is not None:
        from thadam_ros.node.demo.bag_stage import make_bag_stage

        return make_bag_stage(options, ledger)
    command = (
        sys.executable,
        "-m",
        "thadam_ros.node.demo.robot",
        *("--seconds", f"{options.seconds:g}", "--seed", str(options.seed)),
        *("--ledger", str(ledger), "--stay"),
        *("--ros-args", "-r", f"__ns:={NAMESPACE}"),
    )
    plan = make_plan(options.seconds, options.seed)
    return Stage(shipped_config("demo.yaml"), command, NAMESPACE, plan)
