# SPDX-License-Identifier: Apache-2.0
"""The demo as a user runs it: whole, interrupted, refused."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import duckdb
import pytest

from thadam_ros.node.demo.expectations import JOINTS

DEADLINE_S = 180.0
#: Inherited by everything the demo starts.
MARK = "THADAM_DEMO_TEST"


class Demo:
    """One run in a process of its own."""

    def __init__(self, output: Path, *arguments: str) -> None:
        self.mark = uuid.uuid4().hex
        self.output = output
        self.process = subprocess.Popen(
            [sys.executable, "-m", "thadam_ros.node.demo", *arguments],
            env={**os.environ, MARK: self.mark, "THADAM_DEMO_OUTPUT": str(output)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self) -> str:
        """Wait for the end and return what was printed."""
        try:
            text, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return text

    def left_behind(self) -> list[str]:
        """Return the command lines of processes the run started and that still live."""
        found = []
        wanted = f"{MARK}={self.mark}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.mark.ros
def test_demo_accounts_for_every_message_and_its_queries_run(tmp_path: Path) -> None:
    """Exit code 0: balance, flags, codes and counts are as computed."""
    demo = Demo(tmp_path / "out", "--seconds", "12", "--seed", "4")
    text = demo.finish()
    assert demo.process.returncode == 0, text
    assert demo.left_behind() == []
    for said in ("DEGRADED", "running again", "KILLING", "Balance sheet", "checks are as computed"):
        assert said in text
    assert "WRONG" not in text
    queries = (tmp_path / "out" / "last" / "queries.sql").read_text(encoding="utf-8")
    results = [duckdb.sql(query).fetchall() for query in queries.split(";") if query.strip()]
    datasets = {row[0] for row in results[0]}
    assert {"imu", "joint_state", "tf", "cloud"} <= datasets
    assert ("imu", "INVALID") in {(row[0], row[1]) for row in results[1]}
    assert {row[0] for row in results[2]} == {*JOINTS, "gripper"}
    assert results[3]


@pytest.mark.ros
def test_own_bag_is_played_and_accounted_for(tmp_path: Path, bags_dir: Path) -> None:
    """93 of 94 types of a real bag; one was recorded with another definition."""
    bag = bags_dir / "all_types_sqlite"
    demo = Demo(tmp_path / "out", "--seconds", "12", "--bag", str(bag))
    text = demo.finish()
    assert demo.process.returncode == 0, text
    assert demo.left_behind() == []
    assert "93 topics are played" in text
    assert "sensor_msgs/msg/Range) is not played: the bag was recorded with another" in text
    assert "checks are as computed" in text


@pytest.mark.ros
@pytest.mark.parametrize(
    "number", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 10))]
)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["sigint", "sigterm"])
def test_interrupted_demo_leaves_nothing_running(
    tmp_path: Path, number: int, sent: signal.Signals
) -> None:
    """At any moment: before, between and after the children's start."""
    moment_s = random.Random(100 * sent + number).uniform(0.0, 14.0) if number else 0.25
    demo = Demo(tmp_path / "out", "--seconds", "12")
    end = time.monotonic() + moment_s
    while time.monotonic() < end and demo.process.poll() is None:
        time.sleep(0.01)
    demo.process.send_signal(sent)
    text = demo.finish()
    assert demo.left_behind() == []
    # Before the handlers stand, the interpreter dies of the signal itself.
    assert demo.process.returncode in (130, -sent), f"after {moment_s:.2f} s: {text}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "3"], "--seconds: 3 is too short"),
        (["--sink", "kafka"], "--sink: 'kafka' is not in this version; valid: parquet"),
        (["--bag", "/nowhere.mcap"], "--bag: /nowhere.mcap does not exist"),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    """Exit code 2, and nothing is written."""
    demo = Demo(tmp_path / "out", *arguments)
    text = demo.finish()
    assert demo.process.returncode == 2
    assert said in text
    assert not (tmp_path / "out").exists()


def test_second_demo_does_not_take_the_folder_of_the_first(tmp_path: Path) -> None:
    """Exit code 3, a sentence, and the first one's files stay."""
    output = tmp_path / "out"
    (output / "last").mkdir(parents=True)
    (output / "last" / "ledger.jsonl").touch()
    with open(output / "LOCK", "wb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        demo = Demo(output, "--seconds", "12")
        text = demo.finish()
    assert demo.process.returncode == 3
    assert "another demo is writing to" in text
    assert (output / "last" / "ledger.jsonl").exists()
