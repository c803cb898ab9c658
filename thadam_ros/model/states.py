# SPDX-License-Identifier: Apache-2.0
"""Component states and the frozen statistics every surface reads (spec 1.6, 7.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """State of a component."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    FAILED = "failed"
    STOPPED = "stopped"


class Kind(Enum):
    """Kind of a component."""

    WAL = "wal"
    SOURCE = "source"
    CHAIN = "chain"
    QUARANTINE = "quarantine"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class ComponentState:
    """State of one component, immutable; replaced as a whole.

    Attributes:
        reason_code: A key of :data:`thadam_ros.model.codes.STATE_REASONS`.
        reason: One sentence: the cause and the next action.
        cause: Redacted exception text, or empty.
        since_ns: Wall clock of the last change of state or reason code.
        next_retry_ns: Wall clock of the next try, 0 when none is planned.
    """

    state: State = State.STARTING
    reason_code: str = "starting"
    reason: str = "not yet ready"
    cause: str = ""
    since_ns: int = 0
    next_retry_ns: int = 0


@dataclass(frozen=True, slots=True)
class ComponentStatistics:
    """Snapshot of one component; counters count since process start.

    Attributes:
        name: ``wal``, ``source.<name>``, ``chain.<sink>``, ``quarantine.<sink>``.
        backlog_age_s: Age of the oldest waiting frame, seconds.
        details: Further key values, names stable, units last.
    """

    name: str
    kind: Kind
    state: ComponentState
    node: str = ""
    restarts: int = 0
    backlog_frames: int = 0
    backlog_bytes: int = 0
    backlog_age_s: float = 0.0
    received: int = 0
    delivered: int = 0
    lost: int = 0
    refused: int = 0
    rejected: int = 0
    deduplicated: int = 0
    filtered: int = 0
    unmatched: int = 0
    flagged: int = 0
    details: Mapping[str, str] = field(default_factory=dict)
