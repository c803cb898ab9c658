# SPDX-License-Identifier: Apache-2.0
"""Publishes the state of the process, whatever its lifecycle nodes are doing (spec 7.1).

Plain publishers and a timer in a group of their own: they speak in every lifecycle state, also
while a transition runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

from thadam_ros.model.clock import Clock
from thadam_ros.node.status import Snapshot, edge_state_type, to_diagnostics, to_edge_state
from thadam_ros.node.steady import steady_clock
from thadam_ros.runtime.status_files import write_status

PERIOD_S = 1.0
#: Changes are looked for this often; transitions are told at once.
LOOK_S = 0.5


class Speaker:
    """Publishes ``/diagnostics`` and, for the edge, ``~/status``; writes the status files."""

    def __init__(
        self,
        node: Node,
        collect: Callable[[], Snapshot],
        status_directory: Callable[[], str | None],
        clock: Clock,
        *,
        edge: bool,
    ) -> None:
        """Create the publishers and start the timer.

        Args:
            collect: Takes a snapshot; called from an executor's thread.
            status_directory: Folder of the status files, None while it is not known.
            edge: Whether this node speaks for the whole edge (``~/status``).
        """
        self._node = node
        self._collect = collect
        self._status_directory = status_directory
        self._clock = clock
        self._lock = threading.Lock()
        self._last_states: object = None
        self._last_at = float("-inf")
        self._file_error = ""
        self.errors = 0
        self._diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._status = None
        if edge:
            latched = QoSProfile(
                depth=1,
                reliability=QoSReliabilityPolicy.RELIABLE,
                durability=QoSDurabilityPolicy.TRANSIENT_LOCAL,
            )
            self._status = node.create_publisher(edge_state_type(), "~/status", latched)
        group = MutuallyExclusiveCallbackGroup()
        node.create_timer(LOOK_S, self._tick, callback_group=group, clock=steady_clock())
        self._guard = node.create_guard_condition(self._tick, callback_group=group)

    def changed(self) -> None:
        """Publish soon; from any thread."""
        try:
            self._guard.trigger()
        except _rclpy.InvalidHandle:
            return  # the node is being destroyed: nobody listens any more

    def speak(self) -> None:
        """Publish now, changed or not."""
        with self._lock:
            self._publish(self._collect())

    def _tick(self) -> None:
        try:
            with self._lock:
                due = time.monotonic() - self._last_at >= PERIOD_S
                snapshot = self._collect()
                if due or snapshot.states() != self._last_states:
                    self._publish(snapshot)
        except BaseException as exc:  # noqa: BLE001 - speaking must not end the executor
            self.errors += 1
            self._node.get_logger().error(f"status cannot be published: {exc!r}")

    def _publish(self, snapshot: Snapshot) -> None:
        self._last_states, self._last_at = snapshot.states(), time.monotonic()
        self._diagnostics.publish(to_diagnostics(snapshot))
        if self._status is not None:
            self._status.publish(to_edge_state(snapshot))
        directory = self._status_directory()
        if directory is None:
            return
        try:
            for component in snapshot.own():
                write_status(directory, component, self._clock)
            self._file_error = ""
        except OSError as exc:
            self.errors += 1
            if str(exc) != self._file_error:
                self._file_error = str(exc)
                self._node.get_logger().warning(f"status files cannot be written: {exc}")
