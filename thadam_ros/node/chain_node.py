# SPDX-License-Identifier: Apache-2.0
"""``thadam_<sink>``: the lifecycle node of one chain (spec 7.1).

The chain is stepped by an executor's thread, in a group of its own: a timer polls, and a guard
condition wakes it when the WAL made frames durable or the lane settled something. One turn works
for at most a tenth of a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup

from thadam_ros.config.parameters import PROCESS_PARAMETERS
from thadam_ros.model.clock import Clock
from thadam_ros.model.states import ComponentStatistics, Kind, State
from thadam_ros.node.configuration import ConfigSource, changed_sinks, require_no_obstacles
from thadam_ros.node.managed_node import ManagedNode
from thadam_ros.node.parameters import ParameterTable, drain_timeout_s
from thadam_ros.node.states import failed_state
from thadam_ros.node.steady import steady_clock
from thadam_ros.runtime.chain_runner import ChainRunner, StepResult
from thadam_ros.runtime.loading import LoadedConfig
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.storage.filesystem import FileSystem

#: The net under the wake-ups of the WAL writer in the same process.
POLL_S = 0.25
#: In a process of its own nobody wakes the chain.
POLL_ALONE_S = 0.1
_TURN_S = 0.1
#: Used when a chain's process does not know better.
DRAIN_TIMEOUT_S = 3.0


class ChainNode(ManagedNode):
    """Opens one chain on ``configure``, steps it while *active*.

    Attributes:
        drain_timeout: How long a deactivation may deliver, seconds.
        drain_limit_s: Upper bound of it, while the process stops.
        sinks: Names of the process's chains; the configuration must name the same sinks.
    """

    def __init__(
        self,
        sink: str,
        source: ConfigSource,
        fs: FileSystem,
        clock: Clock,
        *,
        alone: bool = False,
        **node: Any,
    ) -> None:
        """Create the node.

        Args:
            alone: No ``thadam`` runs in this process: the node holds the whole configuration.
        """
        super().__init__(f"thadam_{sink}", **node)
        self.sink = sink
        self._source = source
        self._fs = fs
        self._wall_clock = clock
        self.drain_timeout: Callable[[], float] = lambda: DRAIN_TIMEOUT_S
        self.drain_limit_s = float("inf")
        self.sinks: tuple[str, ...] | None = None
        self.next_retry_ns = 0
        self.loaded: LoadedConfig | None = None
        self.runner: ChainRunner | None = None
        self._open = False
        self._working = False
        self._turn = threading.Lock()
        self._tracker = StateTracker(clock)
        self.parameters = ParameterTable(self, self._why_no_change)
        if alone:
            self.parameters.declare(PROCESS_PARAMETERS.values())
            self.drain_timeout = lambda: drain_timeout_s(self.parameters)
        source.add(self.parameters.given if alone else self._given)
        self._declare_own()
        group = MutuallyExclusiveCallbackGroup()
        self._guard = self.create_guard_condition(self._work, callback_group=group)
        period = POLL_ALONE_S if alone else POLL_S
        self._poll = self.create_timer(
            period, self._work, callback_group=group, clock=steady_clock()
        )
        self._poll.cancel()

    @property
    def autostart(self) -> bool:
        """Whether a process of this chain alone brings it up by itself."""
        return bool(self.parameters.value("autostart"))

    def retry_every(self) -> float:
        """Return the longest wait, s, before a failed chain is brought up again; 0 is never."""
        loaded = self.loaded
        if loaded is None or self.sink not in loaded.config.sinks:
            return 300.0
        return loaded.config.sinks[self.sink].retry_failed_every_ns / 1e9

    def wake(self) -> None:
        """Say that another step may do something; from any thread."""
        if self._working:
            self._guard.trigger()

    # Lifecycle.

    def prepare(self) -> None:
        loaded = self._source.load()
        if self.sink not in loaded.config.sinks:
            raise changed_sinks([self.sink], loaded.config.sinks)
        if self.sinks is not None and set(loaded.config.sinks) != set(self.sinks):
            raise changed_sinks(self.sinks, loaded.config.sinks)
        sink = loaded.config.sinks[self.sink]
        mine = (f"sinks.{self.sink}.", *(f"datasets.{d}" for d in loaded.datasets_of(sink)))
        require_no_obstacles(loaded, lambda path: f"{path}.".startswith(mine))
        self._declare_own()
        self.loaded = loaded
        if self.runner is not None:
            # A publishing thread that hung may have ended since: then its lock is given back.
            self.runner.close(0.0)
        self.runner = ChainRunner(
            sink, loaded, fs=self._fs, clock=self._wall_clock, on_fatal=self.fault_reporter()
        )
        self._open_runner()

    def start(self) -> None:
        self._open_runner()
        self._working = True
        self._poll.reset()
        self._guard.trigger()

    def stop(self, drain: bool) -> None:
        self._working = False
        self._poll.cancel()
        self._close_runner(min(self.drain_timeout(), self.drain_limit_s) if drain else 0.0)

    def release(self) -> None:
        self._working = False
        self._close_runner(0.0)
        if not getattr(self.runner, "joined", True):
            raise RuntimeError(f"the publishing thread of sink {self.sink} does not stop")

    def _open_runner(self) -> None:
        if self.runner is not None and not self._open:
            self.runner.open(self.wake)
            self._open = True

    def _close_runner(self, timeout_s: float) -> None:
        if self.runner is None or not self._open:
            return
        # A turn that runs now ends by itself soon: it sees that nothing is to be done any more.
        with self._turn:
            drained = self.runner.close(timeout_s)
            self._open = False
        if timeout_s and not drained:
            self.get_logger().warning(
                f"not everything was delivered within {timeout_s:g} s; the rest stays in the WAL"
            )

    # Working.

    def _work(self) -> None:
        """Executor thread: step until nothing is left or the turn is over."""
        if not self._working:
            return
        with self._turn:
            runner, end = self.runner, time.monotonic() + _TURN_S
            while runner is not None and self._working and self._open:
                if runner.step() is not StepResult.PROGRESS:
                    return
                if time.monotonic() >= end:
                    self._guard.trigger()
                    return

    # Speaking.

    def statistics(self) -> list[ComponentStatistics]:
        """Return the statistics of the chain and of its quarantine."""
        runner, cause = self.runner, self.cause
        if cause is not None and self.state_label in ("unconfigured", "inactive", "finalized"):
            state = failed_state(self._tracker, cause, self.next_retry_ns)
        elif runner is None:
            state = self._tracker.update(State.STOPPED, "stopped", "not configured")
        else:
            name = self.get_fully_qualified_name()
            return [replace(statistics, node=name) for statistics in runner.statistics()]
        return [
            ComponentStatistics(
                name=f"chain.{self.sink}",
                kind=Kind.CHAIN,
                state=state,
                node=self.get_fully_qualified_name(),
                details={"lifecycle": self.state_label},
            )
        ]

    def _declare_own(self) -> None:
        prefix = f"sinks.{self.sink}."
        self.parameters.declare(s for s in self._source.specs() if s.name.startswith(prefix))

    def _given(self) -> dict[str, object]:
        prefix = f"sinks.{self.sink}."
        return {k: v for k, v in self.parameters.given().items() if k.startswith(prefix)}

    def _why_no_change(self) -> str | None:
        label = self.state_label
        if label == "unconfigured":
            return None
        return f"{self.get_name()} is {label}: configure reads the parameters; clean up first"
