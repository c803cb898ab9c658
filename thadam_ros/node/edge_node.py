# SPDX-License-Identifier: Apache-2.0
"""``thadam``: the lifecycle node of capture and the write-ahead log (spec 7.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.impl.logging_severity import LoggingSeverity
from rclpy.logging import set_logger_level

from thadam_ros.config.parameters import PROCESS_PARAMETERS
from thadam_ros.config.schema import SourceConfig, TopicOptions
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.errors import ConfigError, FatalError, Problem
from thadam_ros.model.clock import Clock
from thadam_ros.model.states import ComponentStatistics, Kind, State
from thadam_ros.node.capabilities import Capabilities, probe_capabilities, probe_message_info
from thadam_ros.node.capture import RosCapture
from thadam_ros.node.configuration import ConfigSource, changed_sinks, require_no_obstacles
from thadam_ros.node.counters import TopicCounters
from thadam_ros.node.managed_node import ManagedNode
from thadam_ros.node.parameters import ParameterTable, drain_timeout_s
from thadam_ros.node.qos import parse_qos_overrides
from thadam_ros.node.states import failed_state
from thadam_ros.node.topics import TopicSelector
from thadam_ros.node.types import TypeResolver
from thadam_ros.runtime.edge import keep_wal, open_wal, save_merged_config
from thadam_ros.runtime.loading import LoadedConfig, save_lock
from thadam_ros.runtime.retention import WalRetention
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.runtime.wal_state import wal_details, wal_state
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.statistics import WalStatistics
from thadam_ros.wal.writer import WalWriter

#: How long a stop may take to hand over what waits in the middleware.
_CAPTURE_STOP_S = 2.0
_FLUSH_S = 2.0


class EdgeNode(ManagedNode):
    """Opens the WAL on ``configure``, captures while *active*.

    Attributes:
        loaded: The configuration in force, None while unconfigured.
        merged_path: The merged configuration on disk, empty before the first ``configure``.
        on_durable: Called in the WAL's writer thread when frames became durable.
        own_topics: Tells what this process publishes; such topics are not captured.
    """

    def __init__(self, source: ConfigSource, fs: FileSystem, clock: Clock, **node: Any) -> None:
        super().__init__("thadam", **node)
        self._source = source
        self._fs = fs
        self._wall_clock = clock
        self.loaded: LoadedConfig | None = None
        self.merged_path = ""
        self.wal: WalWriter | None = None
        self.retention: WalRetention | None = None
        self.captures: tuple[RosCapture, ...] = ()
        self.on_durable: Callable[[], None] = lambda: None
        self.own_topics: Callable[[], Sequence[str]] = lambda: ()
        #: Names of the chain nodes of this process; the configuration must name the same sinks.
        self.sinks: tuple[str, ...] | None = None
        self.next_retry_ns = 0
        self._wal_tracker = StateTracker(clock)
        self._capabilities: Capabilities | None = None
        self._last_wal: WalStatistics | None = None
        self._watched_failure = threading.Event()
        #: Source -> topic -> counters since process start.
        self._counters: dict[str, dict[str, TopicCounters]] = {}
        self.parameters = ParameterTable(self, self._why_no_change)
        self.parameters.declare(PROCESS_PARAMETERS.values())
        source.add(self.parameters.given)
        self._declare_tree()

    @property
    def autostart(self) -> bool:
        """Whether the process brings its nodes up by itself."""
        return bool(self.parameters.value("autostart"))

    @property
    def isolate_chains(self) -> bool:
        """Whether each chain runs in a process of its own."""
        return bool(self.parameters.value("isolate_chains"))

    def drain_timeout(self) -> float:
        """Return how long a chain's deactivation may deliver, seconds.

        Raises:
            ConfigError: If the parameter is no duration.
        """
        return drain_timeout_s(self.parameters)

    @property
    def capturing(self) -> bool:
        """Whether messages are being made durable now."""
        return (
            self.state_label == "active"
            and not any(capture.paused for capture in self.captures)
            and self._wal_works()
        )

    # Lifecycle.

    def prepare(self) -> None:
        self._apply_log_level()
        self._source.use_sim_time = bool(self.get_parameter("use_sim_time").value)
        problems = self._problems_of_process()
        try:
            loaded = self._source.load()
        except ConfigError as exc:
            raise ConfigError([*exc.problems, *problems]) from exc
        if problems:
            raise ConfigError(problems)
        if self.sinks is not None and set(loaded.config.sinks) != set(self.sinks):
            raise changed_sinks(self.sinks, loaded.config.sinks)
        _refuse_what_is_missing(loaded)
        require_no_obstacles(loaded, lambda path: not path.startswith(("sinks.", "datasets.")))
        self._declare_tree()
        for note in loaded.notes:
            self.get_logger().info(note)
        save_lock(loaded, self._fs)
        self.merged_path = save_merged_config(loaded, self._fs)
        self.wal = open_wal(
            loaded, fs=self._fs, clock=self._wall_clock, on_durable=lambda: self.on_durable()
        )
        self.retention = keep_wal(loaded, self.wal, fs=self._fs, report=self.get_logger().warning)
        self.loaded = loaded
        self._watched_failure.clear()
        if self._capabilities is None:
            self._capabilities = probe_message_info(self, probe_capabilities())
            self.get_logger().info(f"capabilities: {self._capabilities}")
        self.captures = self._make_captures(loaded)

    def start(self) -> None:
        if self.loaded is not None and any(capture.ended for capture in self.captures):
            # A capture runs once; the counters go on.
            self.captures = self._make_captures(self.loaded)
        for capture in self.captures:
            capture.start()

    def stop(self, drain: bool) -> None:
        stuck = [c.source_name for c in self.captures if not c.stop(_CAPTURE_STOP_S)]
        if drain and self.wal is not None and not self.wal.flush(_FLUSH_S):
            self.get_logger().warning("the WAL did not become durable in time; it goes on")
        if stuck:
            raise RuntimeError(f"the capturing thread of {', '.join(stuck)} does not stop")

    def release(self) -> None:
        # The captures stay: what they counted can still be read.
        if self.retention is not None:
            self.retention.close()
        wal, self.wal = self.wal, None
        self.loaded = None
        if wal is not None:
            wal.close()
            self._last_wal = wal.statistics()

    def watch(self) -> None:
        """Leave *active* when the WAL can take nothing any more; called now and then."""
        wal = self.wal
        if wal is None or self._watched_failure.is_set():
            return
        statistics = wal.statistics()
        if statistics.failed or not statistics.alive:
            self._watched_failure.set()
            self.report_fault(FatalError(f"the WAL failed: {statistics.first_error}"))

    def pause(self, paused: bool) -> bool:
        """Refuse and count messages; False when nothing captures."""
        if self.state_label != "active":
            return False
        for capture in self.captures:
            capture.pause(paused)
        return True

    # Speaking.

    def statistics(self) -> list[ComponentStatistics]:
        """Return the statistics of the WAL and of every source."""
        found = [self._wal_statistics()]
        found.extend(capture.statistics() for capture in self.captures)
        return found

    def _wal_works(self) -> bool:
        wal = self.wal
        if wal is None:
            return False
        statistics = wal.statistics()
        return (
            statistics.alive
            and not statistics.failed
            and not statistics.storage_full
            and not statistics.held_up_by
        )

    def _wal_statistics(self) -> ComponentStatistics:
        wal, cause = self.wal, self.cause
        statistics = wal.statistics() if wal is not None else self._last_wal
        tracker = self._wal_tracker
        retained = self.retention.statistics() if self.retention is not None else None
        if cause is not None and self.state_label in ("unconfigured", "inactive", "finalized"):
            state = failed_state(tracker, cause, self.next_retry_ns)
        elif wal is None or statistics is None:
            state = tracker.update(State.STOPPED, "stopped", "not configured")
        else:
            state = wal_state(tracker, statistics, retained)
        details: dict[str, str] = {"lifecycle": self.state_label}
        records = lost = refused = 0
        if statistics is not None:
            records, lost = statistics.records, statistics.lost_records
            refused = statistics.refused_records
            details.update(wal_details(statistics, retained))
        if isinstance(cause, ConfigError):
            details.update((f"problem.{i}", str(p)) for i, p in enumerate(cause.problems))
        return ComponentStatistics(
            name="wal",
            kind=Kind.WAL,
            state=state,
            node=self.get_fully_qualified_name(),
            received=records + lost,
            delivered=records,
            lost=lost,
            refused=refused,
            details=details,
        )

    # Making things.

    def _make_captures(self, loaded: LoadedConfig) -> tuple[RosCapture, ...]:
        sources = loaded.config.sources.values()
        return tuple(self._make_capture(source) for source in sources if source.ros2)

    def _make_capture(self, source: SourceConfig) -> RosCapture:
        assert source.ros2 is not None
        assert self.loaded is not None
        assert self.wal is not None
        assert self._capabilities is not None
        options, _ = self._qos_overrides()
        selector = TopicSelector(
            source.name,
            source.ros2,
            self.loaded.config.datasets.values(),
            self.get_namespace(),
            self.resolve_topic_name,
            options,
        )
        return RosCapture(
            self,
            source.name,
            selector,
            self.wal,
            # A new catalog for each question: a package may be installed meanwhile.
            TypeResolver(self, lambda name: TypeCatalog().definition(name), self._capabilities),
            self._capabilities,
            own_topics=self.own_topics,
            on_fatal=self.fault_reporter(),
            clock=self._wall_clock,
            counters=self._counters.setdefault(source.name, {}),
        )

    def _qos_overrides(self) -> tuple[dict[str, TopicOptions], list[Problem]]:
        return parse_qos_overrides(self.parameters.overrides)

    def _problems_of_process(self) -> list[Problem]:
        _, problems = self._qos_overrides()
        try:
            self.drain_timeout()
        except ConfigError as exc:
            problems.extend(exc.problems)
        port = self.parameters.value("metrics_port")
        if port:
            problems.append(
                Problem("metrics_port", port, "metrics are not in this version; leave it 0")
            )
        return problems

    def _apply_log_level(self) -> None:
        level = self.parameters.given().get("log_level")
        if isinstance(level, str) and level:
            severity = LoggingSeverity.__members__.get(level.upper())
            if severity is None:
                valid = ", ".join(name.lower() for name in LoggingSeverity.__members__)
                raise ConfigError([Problem("log_level", level, f"must be one of {valid}")])
            set_logger_level(self.get_logger().name, severity)

    def _declare_tree(self) -> None:
        # Settings of one sink belong to its chain's node.
        own = [spec for spec in self._source.specs() if not spec.name.startswith("sinks.")]
        self.parameters.declare(own)

    def _why_no_change(self) -> str | None:
        label = self.state_label
        if label == "unconfigured":
            return None
        return f"{self.get_name()} is {label}: configure reads the parameters; clean up first"


def _refuse_what_is_missing(loaded: LoadedConfig) -> None:
    """Refuse parts of the schema that no code of this version serves."""
    message = "is not in this version; leave it out"
    config = loaded.config
    problems = [
        Problem(f"sources.{name}.type", source.type, message)
        for name, source in config.sources.items()
        if source.ros2 is None
    ]
    problems.extend(Problem(f"files.{name}", None, message) for name in config.files)
    if problems:
        raise ConfigError(problems)
