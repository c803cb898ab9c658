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
from thadam_ros.runtime.state_tracker import StateTracker

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
