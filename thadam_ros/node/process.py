# SPDX-License-Identifier: Apache-2.0
"""One process of lifecycle nodes: executor, autostart, supervision, shutdown (spec 1.4, 7.1).

The main thread only waits for signals; an executor runs in a thread of its own. The first SIGINT or
SIGTERM stops: no more supervision, ``thadam`` makes everything durable, the chains drain in
parallel, the last status is published. All of that has one deadline, inside the time that launch
waits before it kills. A second signal leaves at once; what is durable stays durable either way.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node

from thadam_ros.node.chain_node import ChainNode
from thadam_ros.node.managed_node import ManagedNode
from thadam_ros.node.speaker import Speaker
from thadam_ros.node.steady import steady_clock
from thadam_ros.node.supervisor import Supervisor

#: From the first signal to the end; launch sends SIGTERM 5 s after SIGINT.
DEADLINE_S = 4.0
#: Part of it kept for the last status and the threads' ends.
_RESERVE_S = 0.5

EXIT_FINE = 0
EXIT_STUCK = 1
EXIT_USAGE = 2
EXIT_FAILED = 3


class Children(Protocol):
    """Child processes, as :class:`thadam_ros.node.isolation.ChainProcesses` keeps them."""

    def tick(self) -> None: ...

    def stop(self, timeout_s: float) -> None: ...


class Process:
    """Runs nodes until a signal or until one cannot release what it holds."""

    def __init__(
        self,
        context: Context,
        first: ManagedNode | None,
        others: Sequence[ManagedNode],
        supervisor: Supervisor,
        speaker: Speaker,
        *,
        autostart: bool,
        children: Children | None,
    ) -> None:
        """Prepare.

        Args:
            first: Stopped before the others: ``thadam``, whose WAL the chains drain.
            others: Stopped in parallel.
            children: Processes to look after.
        """
        self._context = context
        self._first = first
        self._others = list(others)
        self._nodes = [node for node in (first, *others) if node is not None]
        self._supervisor = supervisor
        self._speaker = speaker
        self._autostart = autostart
        self._children = children
        self._wake = threading.Event()
        self._signals = 0
        self._exit_code = EXIT_FINE
        self._spinning = True
        self.executor_errors = 0
        # Two per node: a transition and a chain step may both take their time.
        self._executor = MultiThreadedExecutor(
            num_threads=2 * len(self._nodes) + 3, context=context
        )
        self._thread = threading.Thread(target=self._spin, name="executor")

    def run(self) -> int:
        """Run to the end; return the exit code. Called from the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        for node in self._nodes:
            node.on_finalized = self._on_finalized
            node.on_change = self._speaker.changed
            self._executor.add_node(node)
        self._add_timers(self._nodes[0])
        self._thread.start()
        # A timeout: a signal that another thread's C code swallowed is still seen.
        while not self._wake.wait(0.5):
            if not self._thread.is_alive():
                self._exit_code = EXIT_FAILED
                break
        return self._shut_down()

    # While it runs.

    def _add_timers(self, node: Node) -> None:
        group = MutuallyExclusiveCallbackGroup()
        clock = steady_clock()
        node.create_timer(1.0, self._tick, callback_group=group, clock=clock)
        if self._autostart:
            self._starter = node.create_timer(
                0.0, self._start_once, callback_group=group, clock=clock
            )

    def _start_once(self) -> None:
        self._starter.cancel()
        self._guarded(self._supervisor.autostart)

    def _tick(self) -> None:
        self._guarded(self._supervisor.tick)
        if self._children is not None:
            self._guarded(self._children.tick)
        for node in self._nodes:
            watch = getattr(node, "watch", None)
            if watch is not None:
                self._guarded(watch)

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - it would end the executor
            self._nodes[0].get_logger().error(f"supervision: {exc!r}")

    def _spin(self) -> None:
        while self._spinning:
            try:
                self._executor.spin_once(timeout_sec=0.5)
            except _rclpy.InvalidHandle:
                continue  # something was destroyed while the executor looked at it
            except ExternalShutdownException:
                break
            except BaseException as exc:  # noqa: BLE001 - a callback's bug must not stop the rest
                self.executor_errors += 1
                self._nodes[0].get_logger().error(f"a callback raised: {exc!r}")
                time.sleep(0.05)  # one that raises again and again must not eat the processor

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self._wake.set()

    def _on_finalized(self) -> None:
        self._exit_code = EXIT_FAILED
        self._wake.set()

    # The end.

    def _shut_down(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        self._supervisor.stop()
        stuck = self._stop_nodes(deadline - _RESERVE_S)
        self._last_words()
        self._spinning = False
        self._executor.wake()
        self._thread.join(max(0.1, deadline - time.monotonic()))
        stuck.extend(self._running_threads(deadline))
        if stuck:
            names = ", ".join(sorted(set(stuck)))
            print(f"thadam: {len(set(stuck))} thread(s) did not stop: {names}", file=sys.stderr)
            sys.stderr.flush()
            sys.stdout.flush()
            # The WAL's last fsync is behind us, or it hangs and nobody can help it.
            os._exit(self._exit_code or EXIT_STUCK)
        self._executor.shutdown(0.1)
        for node in reversed(self._nodes):
            node.destroy_node()
        self._context.try_shutdown()
        return self._exit_code

    def _stop_nodes(self, deadline: float) -> list[str]:
        if self._first is not None:
            self._stop_in_parallel([self._first], deadline)
        left = max(0.5, deadline - time.monotonic())
        for node in self._others:
            if isinstance(node, ChainNode):
                node.drain_limit_s = left
        stopping = None
        if self._children is not None:
            stopping = threading.Thread(
                target=self._children.stop, args=(left,), name="stop children"
            )
            stopping.start()
        stuck = self._stop_in_parallel(self._others, deadline)
        if stopping is not None:
            stopping.join(max(0.0, deadline - time.monotonic()) + _RESERVE_S / 2)
        return stuck

    def _stop_in_parallel(self, nodes: Sequence[ManagedNode], deadline: float) -> list[str]:
        threads = [
            threading.Thread(target=self._stop_node, args=(node,), name=f"stop {node.get_name()}")
            for node in nodes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in threads if thread.is_alive()]

    def _stop_node(self, node: ManagedNode) -> None:
        """Take one node down, waiting for a transition that runs now."""
        while node.state_label not in ("unconfigured", "finalized"):
            try:
                if node.state_label == "active":
                    node.trigger_deactivate()
                elif node.state_label == "inactive":
                    node.trigger_cleanup()
            except BaseException as exc:  # noqa: BLE001 - the others must still be stopped
                node.get_logger().error(f"stopping: {exc!r}")
                return
            time.sleep(0.01)

    def _last_words(self) -> None:
        try:
            self._speaker.speak()
        except BaseException as exc:  # noqa: BLE001 - the end must come anyway
            self._nodes[0].get_logger().error(f"the last status was not published: {exc!r}")

    def _running_threads(self, deadline: float) -> list[str]:
        """Join what is not a daemon; return the names of what does not end."""
        ours = [
            thread
            for thread in threading.enumerate()
            if thread is not threading.current_thread()
            and not thread.daemon
            # The executor's pool ends with its shutdown.
            and not thread.name.startswith("ThreadPoolExecutor")
        ]
        for thread in ours:
            thread.join(max(0.05, deadline - time.monotonic()))
        return [thread.name for thread in ours if thread.is_alive()]
