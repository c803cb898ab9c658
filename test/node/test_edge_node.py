# SPDX-License-Identifier: Apache-2.0
"""``thadam`` when its disk fails (spec 1.6, 2, 7.1)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from rclpy.node import Node
from rclpy.parameter import Parameter
from std_msgs.msg import Int64

from thadam_ros.model.clock import SystemClock
from thadam_ros.model.states import State
from thadam_ros.node.configuration import ConfigSource
from thadam_ros.node.edge_node import EdgeNode
from thadam_ros.storage.filesystem import OsFileSystem

from .support import LifecycleClient, wait_until

DOCUMENT = """\
schema: 1
edge: {{data_dir: {folder}/data, clock: always_synced}}
wal: {{commit_interval: 20ms}}
sources: {{robot: {{type: ros2}}}}
datasets:
  numbers:
    match: {{source: robot, topics: [/numbers]}}
    type: std_msgs/msg/Int64
    all_fields: true
sinks:
  lake: {{type: parquet, url: {folder}/lake}}
"""


class BreakingFileSystem(OsFileSystem):
    """A disk that can begin to refuse fsync."""

    broken = False

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "the disk is gone")
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "the disk is gone")
        super().fsync(fd)


def test_a_failing_disk_leads_to_unconfigured_with_the_first_error(
    context: Any, spin: Callable[..., Any], client_node: Node, tmp_path: Path
) -> None:
    """Messages are refused and counted, the cause is kept, and a repaired disk works again."""
    document = tmp_path / "thadam.yaml"
    document.write_text(DOCUMENT.format(folder=tmp_path))
    disk = BreakingFileSystem()
    edge = EdgeNode(
        ConfigSource(disk),
        disk,
        SystemClock(),
        context=context,
        parameter_overrides=[Parameter("config_file", value=str(document))],
    )
    spin(edge)
    client = LifecycleClient(client_node, "/thadam")
    client.wait()
    assert client.configure()
    assert client.activate()
    publisher = client_node.create_publisher(Int64, "/numbers", 10)
    wait_until(publisher.get_subscription_count, "a subscription")
    publisher.publish(Int64(data=1))
    wait_until(lambda: edge.statistics()[0].delivered == 1, "a durable message")
    assert edge.capturing
    disk.broken = True
    publisher.publish(Int64(data=2))

    def left() -> bool:
        edge.watch()
        return client.state() == "unconfigured"

    wait_until(left, "unconfigured")
    assert not edge.capturing
    wal = edge.statistics()[0]
    assert wal.state.state is State.FAILED
    assert "the disk is gone" in wal.state.cause
    disk.broken = False
    assert client.configure()
    assert client.activate()
    publisher.publish(Int64(data=3))
    wait_until(lambda: edge.wal and edge.wal.statistics().records == 1, "a durable message")
    assert client.deactivate()
    assert client.cleanup()
