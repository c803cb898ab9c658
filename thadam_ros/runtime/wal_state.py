# SPDX-License-Identifier: Apache-2.0
"""State and details of an open WAL, for every surface that speaks of it (spec 1.6, 2)."""

from __future__ import annotations

from thadam_ros.model.states import ComponentState, State
from thadam_ros.runtime.retention import WalRetentionStatistics
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.wal.retention import RetentionStatistics
from thadam_ros.wal.statistics import WalStatistics


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


def wal_details(
    wal: WalStatistics, retained: WalRetentionStatistics | None = None
) -> dict[str, str]:
    """Return the figures of a WAL, what it refused and what it let go, as key values."""
    details = {
        "durable": str(wal.durable),
        "frames": str(wal.frames),
        "bytes": str(wal.bytes),
        "segments": str(wal.segments),
        "pending_bytes": str(wal.pending_bytes),
        "commits": str(wal.commits),
        "commit_faults": str(wal.commit_faults),
        "storage_refusals": str(wal.storage_refusals),
        "damaged_ranges": str(wal.damaged_ranges),
        "torn_ranges": str(wal.torn_ranges),
        "last_commit_ms": f"{wal.last_commit_ns / 1e6:.1f}",
        "longest_commit_ms": f"{wal.longest_commit_ns / 1e6:.1f}",
        "wal_bytes": str(wal.wal_bytes),
        "budget_bytes": str(wal.budget_bytes),
        "min_free_bytes": str(wal.min_free_bytes),
        "filesystem_free_bytes": str(wal.filesystem_free_bytes),
        "deleted_segments": str(wal.deleted_segments),
        "deleted_bytes": str(wal.deleted_bytes),
    }
    details.update((f"refused.{k}", str(n)) for k, n in sorted(wal.refused_by_cause.items()))
    if retained is not None:
        details.update(_retention_details(retained))
    return details


def _retention_details(retained: WalRetentionStatistics) -> dict[str, str]:
    log = retained.log
    details = {
        "dropped_segments": str(log.dropped_segments),
        "dropped_bytes": str(log.dropped_bytes),
        "retention_errors": str(retained.errors),
    }
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
