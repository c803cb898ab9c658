# SPDX-License-Identifier: Apache-2.0
"""``status/<component>.json``: statistics for other processes (spec 1.5)."""

from __future__ import annotations

import os
from typing import Any

import orjson

from thadam_ros.model.clock import Clock
from thadam_ros.model.states import ComponentStatistics
from thadam_ros.storage.atomic import TEMP_SUFFIX

STATUS_FORMAT = 1

#: Fields that are written as they are.
COUNTERS = (
    "restarts",
    "backlog_frames",
    "backlog_bytes",
    "backlog_age_s",
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


def status_document(statistics: ComponentStatistics, clock: Clock) -> dict[str, Any]:
    """Return the JSON document of one component."""
    state = statistics.state
    document: dict[str, Any] = {
        "format": STATUS_FORMAT,
        "pid": os.getpid(),
        "boot_id": clock.boot_id().hex(),
        "written_ns": clock.time_ns(),
        "name": statistics.name,
        "node": statistics.node,
        "kind": statistics.kind.value,
        "state": state.state.value,
        "reason_code": state.reason_code,
        "reason": state.reason,
        "cause": state.cause,
        "since_ns": state.since_ns,
        "next_retry_ns": state.next_retry_ns,
        "details": dict(statistics.details),
    }
    for name in COUNTERS:
        document[name] = getattr(statistics, name)
    return document


def write_status(directory: str, statistics: ComponentStatistics, clock: Clock) -> None:
    """Rewrite one component's status file atomically.

    It is news, not data: no fsync, since after a power loss the boot id tells it is stale anyway.

    Raises:
        OSError: From the filesystem.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"{statistics.name}.json")
    temp = f"{path}{TEMP_SUFFIX}"
    with open(temp, "wb") as file:
        file.write(orjson.dumps(status_document(statistics, clock)))
    os.replace(temp, path)
