# SPDX-License-Identifier: Apache-2.0
"""A robot's mix of big, fast and many topics: every loss is counted on its topic."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")
pytest.importorskip("thadam_ros.msg", reason="needs the built workspace")

from rclpy.node import Node

from .edge_process import EdgeProcess, StatusListener, write_document
from .support import wait_until

DOCUMENT = """\
schema: 1
edge: {{data_dir: {data}, clock: always_synced}}
wal: {{budget: 20GiB, min_free: 64MiB}}
sources:
  robot: {{type: ros2, also: ["/mix/**"]}}
datasets:
  small:
    match: {{source: robot, topics: ["/mix/small_*"]}}
    type: sensor_msgs/msg/Imu
    all_fields: true
    exclude: ["/*_covariance"]
  tf:
    match: {{source: robot, topics: [/mix/tf]}}
    type: geometry_msgs/msg/TransformStamped
    all_fields: true
sinks:
  lake: {{type: parquet, url: {folder}/lake, rotation: {{max_age: 1s}}}}
"""


def counts(status: StatusListener) -> dict[str, tuple[int, int, int]]:
    """Return topic -> (received, lost, refused), as ~/status says."""
    source = status.component("source.robot")
    if source is None:
        return {}
    found = {}
    for detail in source.details:
        if detail.key.startswith("/mix/"):
            values = dict(re.findall(r"(\w+)=(\S+)", detail.value))
            found[detail.key] = tuple(int(values[k]) for k in ("received", "lost", "refused"))
    return found


class Mix:
    """The publishing process and what ~/status says of its topics."""

    def __init__(self, domain_id: int, status: StatusListener) -> None:
        self._status = status
        self.published: dict[str, int] = {}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("mix_publisher.py"))],
            env={**os.environ, "ROS_DOMAIN_ID": str(domain_id)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        self.published = json.loads(self.process.stdout.readline())

    def settled_counts(self) -> dict[str, tuple[int, int, int]]:
        """Return the counts of a status that was taken after everything had time to arrive."""
        for _ in range(2):
            stamp = self._status.last.stamp if self._status.last else None
            wait_until(
                lambda s=stamp: self._status.last and self._status.last.stamp != s, "a status"
            )
        return counts(self._status)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30.0)


@pytest.mark.parametrize(
    "seconds", [6.0, pytest.param(120.0, marks=pytest.mark.long)], ids=["ci", "long"]
)
def test_what_is_not_captured_is_counted_lost_on_its_topic(
    client_node: Node, domain_id: int, tmp_path: Path, seconds: float
) -> None:
    """published = received + lost for every single topic, whatever the machine can stand."""
    status = StatusListener(client_node)
    process = EdgeProcess(domain_id, "-p", f'config_file:="{write_document(tmp_path, DOCUMENT)}"')
    mix = Mix(domain_id, status)
    try:
        mix.ask("one")
        end = time.monotonic() + 60.0
        # What was published before the first message that arrives is nobody's loss.
        while not (len(known := mix.settled_counts()) == 44 and all(k[0] for k in known.values())):
            assert time.monotonic() < end, known
            mix.ask("one")
        before = {t: n - sum(known[t][:2]) for t, n in mix.published.items()}
        mix.ask(f"run {seconds}")
        end = time.monotonic() + 60.0
        while True:
            known = mix.settled_counts()
            missing = {t: n - before[t] - sum(known[t][:2]) for t, n in mix.published.items()}
            if not any(missing.values()):
                break
            assert time.monotonic() < end, missing
            # A loss at the very end shows only in the number of the next message.
            mix.ask("one")
        lost = {topic: n for topic, (_, n, _) in known.items() if n}
        print(f"{sum(mix.published.values())} messages in {seconds:g} s, lost: {lost or 'none'}")
        assert all(refused == 0 for _, _, refused in known.values())
        assert process.stop() == 0, process.output
    finally:
        mix.close()
        process.close()
