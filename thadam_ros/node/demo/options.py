# SPDX-License-Identifier: Apache-2.0
"""The demo's command line and where it writes."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from thadam_ros.errors import LockHeldError
from thadam_ros.node.demo.expectations import SECONDS_MIN

#: Sinks this version can run the demo on.
SINKS = ("parquet",)
_FOLDER = "demo_output"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        bag: Somebody's own bag, None for the simulated robot.
        output: Folder of this run; absolute.
    """

    seconds: float
    seed: int
    bag: Path | None
    keep: bool
    output: Path


def parse_options(argv: Sequence[str]) -> Options:
    """Parse the command line; leaves with exit code 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Captures a simulated robot, breaks a sink, kills the process, and accounts"
        " for every message. Exit code 0: everything is as computed; 1: it is not; 2: wrong"
        " arguments; 3: it could not run; 130: interrupted.",
    )
    parser.add_argument(
        "--seconds", type=float, default=25.0, help=f"length of the run, at least {SECONDS_MIN:g}"
    )
    parser.add_argument("--seed", type=int, default=1, help="moves the robot's single defects")
    parser.add_argument("--bag", type=Path, help="play this rosbag2 bag instead of the robot")
    parser.add_argument("--sink", default="parquet", help="type of the sinks: parquet")
    parser.add_argument(
        "--keep", action="store_true", help="write into a folder of its own, never replaced"
    )
    found = parser.parse_args(argv)
    if not found.seconds >= SECONDS_MIN:
        parser.error(f"argument --seconds: {found.seconds:g} is too short; {SECONDS_MIN:g} or more")
    if found.sink not in SINKS:
        parser.error(
            f"argument --sink: {found.sink!r} is not in this version; valid: {', '.join(SINKS)}"
        )
    if found.bag is not None and not found.bag.exists():
        parser.error(f"argument --bag: {found.bag} does not exist")
    bag = None if found.bag is None else found.bag.resolve()
    return Options(found.seconds, found.seed, bag, found.keep, _output(found.keep))


def _output(keep: bool) -> Path:
    root = Path(os.environ.get("THADAM_DEMO_OUTPUT") or _checkout() / _FOLDER).absolute()
    return root / (time.strftime("%Y%m%d-%H%M%S") if keep else "last")


def _checkout() -> Path:
    """Return the source tree when the demo runs in one, else the current folder."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "scripts" / "demo").is_file() else Path.cwd()


def prepare_output(options: Options) -> None:
    """Make the folder of this run; the last one's goes unless it was kept.

    Raises:
        LockHeldError: Another demo is writing there.
        OSError: From the filesystem.
    """
    parent = options.output.parent
    parent.mkdir(parents=True, exist_ok=True)
    (parent / "COLCON_IGNORE").touch()
    if not options.keep:
        _take_lock(parent / "LOCK")
    remove_output(options)
    options.output.mkdir()


def _take_lock(path: Path) -> None:
    """Hold a lock until the process ends, however it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(fd)
        raise LockHeldError(
            f"another demo is writing to {path.parent}; wait for it, or give this one --keep"
        ) from exc


def remove_output(options: Options) -> None:
    """Remove the folder of a run that is not kept."""
    if not options.keep and options.output.exists():
        shutil.rmtree(options.output)
