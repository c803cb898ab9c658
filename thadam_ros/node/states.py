# SPDX-License-Identifier: Apache-2.0
"""From exceptions and lifecycle states to component states (spec 1.6)."""

from __future__ import annotations

from thadam_ros.errors import (
    ConfigError,
    FatalError,
    FormatError,
    LockHeldError,
    SchemaRefusedError,
    StorageFullError,
    TransientError,
)
from thadam_ros.model.states import ComponentState, State
from thadam_ros.runtime.redact import redact
from thadam_ros.runtime.retention import WalRetentionStatistics
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.wal.retention import RetentionStatistics
from thadam_ros.wal.statistics import WalStatistics

#: Type of the cause -> reason code and next action; the first match counts.
_CAUSES: tuple[tuple[type[BaseException], str, str], ...] = (
    (ConfigError, "config", "correct the configuration, then configure again"),
    (LockHeldError, "lock_held", "stop the other process, then configure again"),
    (FormatError, "format_version", "use the version that wrote the files, or move them away"),
    (SchemaRefusedError, "sink_refused", "raise the dataset's version, then configure again"),
    (StorageFullError, "storage_full", "free space, then configure again"),
    (TransientError, "sink_unreachable", "it is tried again"),
    (FatalError, "sink_refused", "correct the cause, then configure and activate again"),
    (OSError, "storage_error", "look at the disk, then configure again"),
)


def failed_state(
    tracker: StateTracker, cause: BaseException, next_retry_ns: int = 0
) -> ComponentState:
    """Return *Failed* with the cause and the next action."""
    code, action = "bug", "configure and activate again; please report it"
    for kind, reason_code, what in _CAUSES:
        if isinstance(cause, kind):
            code, action = reason_code, what
            break
    if isinstance(cause, ConfigError):
        count = len(cause.problems)
        summary = f"{count} problem(s), first: {cause.problems[0]}" if count else "refused"
    else:
        summary = redact(cause)
    return tracker.update(State.FAILED, code, f"{summary}; {action}", redact(cause), next_retry_ns)


def wal_state(
    tracker: StateTracker, wal: WalStatistics, retained: WalRetentionStatistics | None = None
) -> ComponentState:
    """Return the state of an open WAL."""
    if wal.failed or not wal.alive:
        return tracker.update(
            State.FAILED,
            "fsync_failed",
            "nothing can be made durable any more; look at the disk, then configure again",
            wal.first_error,
        )
    if wal.storage_full:
        return tracker.update(
            State.DEGRADED,
            "storage_full",
            "the disk takes no more; free space, it resumes by itself",
            wal.last_error,
        )
    if wal.held_up_by:
        return tracker.update(State.DEGRADED, "wal_full", _held_up(wal, retained))
    if retained is not None and retained.last_error:
        return tracker.update(
            State.DEGRADED,
            "storage_error",
            "old WAL segments cannot be deleted; it is tried again by itself",
            retained.last_error,
        )
    if retained is not None and retained.log.dropped_segments and _still_short(retained.log):
        return tracker.update(State.DEGRADED, "wal_full", _dropped(retained.log))
    if wal.damaged_ranges:
        return tracker.update(
            State.DEGRADED,
            "wal_damage",
            f"{wal.damaged_ranges} damaged range(s) were skipped; see thadam wal fsck",
        )
    return tracker.update(State.RUNNING, "ok", "messages become durable as configured")


def _held_up(wal: WalStatistics, retained: WalRetentionStatistics | None) -> str:
    if wal.held_up_by == "min_free":
        reached = (
            f"only {wal.filesystem_free_bytes} bytes are free on the disk and wal.min_free keeps "
            f"{wal.min_free_bytes}"
        )
    else:
        reached = f"the WAL takes {wal.wal_bytes} bytes and wal.budget is {wal.budget_bytes}"
    pins = retained.log.pinned_by if retained is not None else ()
    who = f"; sink {', '.join(pins)} has not settled the oldest segment" if pins else ""
    return f"capture refuses messages: {reached}{who}; it resumes by itself when there is room"


def _still_short(log: RetentionStatistics) -> bool:
    """Tell whether a sink that is behind will lose more; what it lost stays in the counters."""
    return log.pressed and bool(log.pinned_by)


def _dropped(log: RetentionStatistics) -> str:
    frames = ", ".join(f"{sink} {drops.frames}" for sink, drops in sorted(log.drops.items()))
    return (
        f"{log.dropped_segments} segment(s) were dropped before every sink had settled them "
        f"(wal.when_full: drop_oldest); frames lost per sink: {frames}"
    )


def budget_details(wal: WalStatistics, retained: WalRetentionStatistics | None) -> dict[str, str]:
    """Return what the WAL takes, refused and let go, as key values."""
    details = {
        "wal_bytes": str(wal.wal_bytes),
        "budget_bytes": str(wal.budget_bytes),
        "min_free_bytes": str(wal.min_free_bytes),
        "filesystem_free_bytes": str(wal.filesystem_free_bytes),
        "deleted_segments": str(wal.deleted_segments),
        "deleted_bytes": str(wal.deleted_bytes),
    }
    details.update((f"refused.{k}", str(n)) for k, n in sorted(wal.refused_by_cause.items()))
    if retained is None:
        return details
    log = retained.log
    details.update(
        dropped_segments=str(log.dropped_segments),
        dropped_bytes=str(log.dropped_bytes),
        retention_errors=str(retained.errors),
    )
    if log.pinned_by:
        details["pinned_by"] = ", ".join(log.pinned_by)
    for sink, drops in sorted(log.drops.items()):
        newest = drops.ranges[-1]
        details[f"dropped.{sink}"] = (
            f"frames={drops.frames} segments={drops.segments} ranges={len(drops.ranges)} "
            f"newest={newest.first}..{newest.last}"
        )
    for removed in retained.removed_sinks:
        details[f"removed.{removed.name}"] = f"{removed.after}..{removed.through}"
    return details
