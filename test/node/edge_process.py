# SPDX-License-Identifier: Apache-2.0
"""The real process, started with the command line that launch produces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .support import wait_until

ROOT = Path(__file__).resolve().parents[2]

DOCUMENT = """\
schema: 1
edge:
  data_dir: {data}
  identity: {{site: s1, robot: r1}}
  clock: always_synced
wal: {{commit_interval: 50ms}}
sources:
  robot: {{type: ros2}}
datasets:
  imu:
    match: {{source: robot, topics: [imu/data]}}
    type: sensor_msgs/msg/Imu
    all_fields: true
    exclude: ["/*_covariance"]
    time: {{from: /header/stamp, domain: utc}}
sinks:
  lake: {{type: parquet, url: {folder}/lake, rotation: {{max_age: 300ms}}}}
  mirror: {{type: parquet, url: {folder}/mirror, rotation: {{max_age: 300ms}}}}
"""


def write_document(folder: Path, document: str = DOCUMENT) -> Path:
    """Write a configuration whose data and sinks live below ``folder``."""
    path = folder / "thadam.yaml"
    path.write_text(document.format(data=folder / "data", folder=folder), encoding="utf-8")
    return path


class EdgeProcess:
    """``thadam_edge`` in a process of its own."""

    def __init__(
        self,
        domain_id: int,
        *ros: str,
        own: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.lines: list[str] = []
        arguments = ["--ros-args", *ros] if ros else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "thadam_ros.node.main", *own, *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "ROS_DOMAIN_ID": str(domain_id),
                "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self, timeout_s: float = 30.0) -> int:
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is None:
                self.close()
            self._reader.join(5.0)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(5.0)


class StatusListener:
    """Keeps the newest ``~/status`` and ``/diagnostics``."""

    def __init__(self, node: Any, name: str = "/thadam") -> None:
        from diagnostic_msgs.msg import DiagnosticArray
        from rclpy.qos import QoSDurabilityPolicy, QoSProfile

        from thadam_ros.msg import EdgeState

        latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        self.last: Any = None
        self.diagnostics: dict[str, Any] = {}
        node.create_subscription(EdgeState, f"{name}/status", self._on_status, latched)
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def _on_status(self, message: Any) -> None:
        self.last = message

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            self.diagnostics[status.name] = status

    def component(self, name: str) -> Any:
        """Return the newest state of a component, None before it was heard of."""
        if self.last is None:
            return None
        return next((c for c in self.last.components if c.name == name), None)

    def detail(self, name: str, key: str) -> str:
        """Return a detail of a component, empty when it has none."""
        component = self.component(name)
        details = component.details if component is not None else []
        return next((d.value for d in details if d.key == key), "")

    def wait_for(self, name: str, reason_code: str) -> Any:
        """Wait until a component has a reason code; return its state."""

        def found() -> Any:
            component = self.component(name)
            return component if component and component.reason_code == reason_code else None

        return wait_until(found, f"{name} is {reason_code}")
