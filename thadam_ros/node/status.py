# SPDX-License-Identifier: Apache-2.0
"""One snapshot of all components, and its ROS spellings (spec 7.3)."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from builtin_interfaces.msg import Duration, Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from thadam_ros import __version__
from thadam_ros.config.schema import Config
from thadam_ros.errors import FormatError
from thadam_ros.model.states import ComponentState, ComponentStatistics, Kind, State
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.budget import SegmentSizes, measure_budget
from thadam_ros.wal.statistics import WalStatistics

_NS = 1_000_000_000
_UINT64_MAX = (1 << 64) - 1

_LEVELS = {
    State.STARTING: DiagnosticStatus.OK,
    State.RUNNING: DiagnosticStatus.OK,
    State.DEGRADED: DiagnosticStatus.WARN,
    State.FAILED: DiagnosticStatus.ERROR,
    State.STOPPED: DiagnosticStatus.STALE,
}
_SEVERITY = {
    State.FAILED: 4,
    State.DEGRADED: 3,
    State.STARTING: 2,
    State.STOPPED: 1,
    State.RUNNING: 0,
}
_COUNTERS = (
    "restarts",
    "received",
    "delivered",
    "lost",
    "refused",
    "rejected",
    "deduplicated",
    "filtered",
    "unmatched",
    "flagged",
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The edge at one moment.

    Attributes:
        components: The WAL first, then by name.
        foreign: Names of components that another process speaks for: it publishes their
            diagnostics and writes their status files.
    """

    stamp_ns: int
    started_ns: int
    edge: str
    robot: str
    config_hash: str
    ready: bool
    reason: str
    clock_synced: bool
    wal_epoch: int
    wal_durable_position: int
    wal_bytes: int
    wal_budget_bytes: int
    filesystem_free_bytes: int
    components: tuple[ComponentStatistics, ...]
    foreign: frozenset[str] = frozenset()

    def own(self) -> tuple[ComponentStatistics, ...]:
        """Return the components of this process."""
        return tuple(c for c in self.components if c.name not in self.foreign)

    def states(self) -> tuple[object, ...]:
        """Return what counts as a change."""
        return (
            self.ready,
            self.config_hash,
            tuple((c.name, c.state.state, c.state.reason_code) for c in self.components),
        )


def identity_of(config: Config | None) -> tuple[str, str]:
    """Return (edge, robot): all constant identity levels, and the one that names the hardware."""
    host = socket.gethostname()
    if config is None or not config.edge.identity:
        return host, host
    values = list(config.edge.identity.values())
    return "/".join(values), config.edge.identity.get("robot", values[-1])


def in_order(components: Iterable[ComponentStatistics]) -> tuple[ComponentStatistics, ...]:
    """Return the WAL first, the rest by name."""
    return tuple(sorted(components, key=lambda c: (c.kind is not Kind.WAL, c.name)))


def readiness(
    components: Sequence[ComponentStatistics], capturing: bool, requires: Sequence[str]
) -> tuple[bool, str]:
    """Return whether the edge is ready, and the worst reason there is (spec 1.6).

    Args:
        capturing: Whether messages are being made durable.
        requires: ``edge.ready_requires``.
    """
    ready = capturing or "capture" not in requires
    if "sinks" in requires:
        ready = ready and not any(
            c.state.state is State.FAILED and c.kind is not Kind.WAL for c in components
        )
    worst = max(components, key=lambda c: _SEVERITY[c.state.state], default=None)
    if worst is None or worst.state.state is State.RUNNING:
        return ready, "everything works as configured" if ready else "not capturing"
    return ready, f"{worst.name}: {worst.state.reason}"


def disk_figures(config: Config | None, wal: WalStatistics | None) -> tuple[int, int, int]:
    """Return bytes of the WAL's segments, its budget, free bytes of its filesystem; 0 unknown.

    Args:
        wal: Of the open writer; without one the disk is looked at.
    """
    if wal is not None:
        return wal.wal_bytes, wal.budget_bytes, wal.filesystem_free_bytes
    if config is None:
        return 0, 0, 0
    fs, directory = OsFileSystem(), os.path.join(config.edge.data_dir, "wal")
    try:
        used = sum(size for _, size in SegmentSizes(fs, directory).measure())
        budget = measure_budget(fs, directory, config.wal)
        return used, budget.budget_bytes, fs.free_bytes(directory)
    except (OSError, FormatError):
        return 0, 0, 0


def wal_position(statistics: WalStatistics | None) -> int:
    """Return the last durable frame, -1 while there is none."""
    return -1 if statistics is None else statistics.durable.frame


def to_diagnostics(snapshot: Snapshot) -> DiagnosticArray:
    """Return one status per component of this process, named ``thadam: <component>``."""
    array = DiagnosticArray()
    array.header.stamp = _time(snapshot.stamp_ns)
    for component in snapshot.own():
        state = component.state
        values = {name: str(getattr(component, name)) for name in _COUNTERS}
        values.update(
            node=component.node,
            reason_code=state.reason_code,
            backlog_frames=str(component.backlog_frames),
            backlog_bytes=str(component.backlog_bytes),
            backlog_age_s=f"{component.backlog_age_s:.3f}",
        )
        if state.cause:
            values["cause"] = state.cause
        values.update(component.details)
        array.status.append(
            DiagnosticStatus(
                level=_LEVELS[state.state],
                name=f"thadam: {component.name}",
                message=state.reason,
                hardware_id=snapshot.robot,
                values=_key_values(values),
            )
        )
    return array


def edge_state_type() -> Any:
    """Return the class of ``~/status``, which exists in a built workspace only."""
    return importlib.import_module("thadam_ros.msg").EdgeState


def to_edge_state(snapshot: Snapshot) -> Any:
    """Return the ``EdgeState`` message."""
    return edge_state_type()(
        stamp=_time(snapshot.stamp_ns),
        edge=snapshot.edge,
        version=__version__,
        config_hash=snapshot.config_hash,
        ready=snapshot.ready,
        reason=snapshot.reason,
        started=_time(snapshot.started_ns),
        clock_synced=snapshot.clock_synced,
        wal_epoch=snapshot.wal_epoch,
        wal_durable_position=snapshot.wal_durable_position,
        wal_bytes=snapshot.wal_bytes,
        wal_budget_bytes=snapshot.wal_budget_bytes,
        filesystem_free_bytes=snapshot.filesystem_free_bytes,
        components=[_component(c) for c in snapshot.components],
    )


def _component(component: ComponentStatistics) -> Any:
    message: Any = importlib.import_module("thadam_ros.msg").ComponentState
    state = component.state
    return message(
        name=component.name,
        node=component.node,
        kind=getattr(message, f"KIND_{component.kind.name}"),
        state=getattr(message, f"STATE_{state.state.name}"),
        reason_code=state.reason_code,
        reason=state.reason,
        cause=state.cause,
        since=_time(state.since_ns),
        next_retry=_time(state.next_retry_ns),
        backlog_frames=component.backlog_frames,
        backlog_bytes=component.backlog_bytes,
        backlog_age=_duration(component.backlog_age_s),
        details=_key_values(component.details),
        **{name: min(getattr(component, name), _UINT64_MAX) for name in _COUNTERS},
    )


def component_from_status_file(path: str) -> ComponentStatistics | None:
    """Return what another process wrote about a component; None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            document: dict[str, Any] = orjson.loads(file.read())
        state = ComponentState(
            state=State(document["state"]),
            reason_code=document["reason_code"],
            reason=document["reason"],
            cause=document["cause"],
            since_ns=document["since_ns"],
            next_retry_ns=document["next_retry_ns"],
        )
        return ComponentStatistics(
            name=document["name"],
            kind=Kind(document["kind"]),
            state=state,
            node=document["node"],
            backlog_frames=document["backlog_frames"],
            backlog_bytes=document["backlog_bytes"],
            backlog_age_s=document["backlog_age_s"],
            details=document["details"],
            **{name: document[name] for name in _COUNTERS},
        )
    except (OSError, ValueError, KeyError, TypeError):
        # Being replaced, or of a version that knows other fields: the next look may do better.
        return None


def _key_values(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def _time(ns: int) -> Time:
    return Time(sec=ns // _NS, nanosec=ns % _NS)


def _duration(seconds: float) -> Duration:
    ns = round(seconds * _NS)
    return Duration(sec=ns // _NS, nanosec=ns % _NS)
