# SPDX-License-Identifier: Apache-2.0
"""Status files as a reader sees them: what works, what does not, who speaks (spec 1.5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from thadam_ros.model.clock import Clock
from thadam_ros.runtime.status_files import COUNTERS, STATUS_FORMAT

#: States from worst to best.
SEVERITY: Final = ("failed", "degraded", "starting", "stopped", "running")


@dataclass(frozen=True, slots=True)
class ComponentView:
    """One component as its status file tells it.

    Attributes:
        alive: The process that wrote it still runs, on this boot.
        age_s: Wall-clock seconds since it was written.
        numbers: Counters by name; 0 where the file has none.
    """

    name: str
    kind: str
    state: str
    reason_code: str
    reason: str
    cause: str
    pid: int
    alive: bool
    age_s: float
    numbers: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)


def read_status(
    directory: str, clock: Clock, is_running: Callable[[int], bool] | None = None
) -> tuple[list[ComponentView], list[str]]:
    """Return the components by severity, then name, and one sentence per unreadable file.

    Raises:
        FileNotFoundError: If there is no such folder.
        OSError: From the filesystem.
    """
    running = is_running or process_runs
    views: list[ComponentView] = []
    unreadable: list[str] = []
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".json"):
            continue
        path = os.path.join(directory, name)
        try:
            with open(path, "rb") as file:
                document = orjson.loads(file.read())
            views.append(_view(document, clock, running))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError) as exc:
            unreadable.append(f"{path} cannot be read: {exc}")
    return sorted(views, key=lambda v: (_rank(v), v.name)), unreadable


def _rank(view: ComponentView) -> int:
    rank = SEVERITY.index(view.state) if view.state in SEVERITY else 0
    return rank if view.alive else min(rank, SEVERITY.index("stopped"))


def _view(document: Any, clock: Clock, running: Callable[[int], bool]) -> ComponentView:
    if not isinstance(document, dict):
        raise TypeError("it is not a JSON object")
    version = document.get("format")
    if version != STATUS_FORMAT:
        raise ValueError(f"its format is {version}, this software reads {STATUS_FORMAT}")
    pid = int(document["pid"])
    same_boot = document.get("boot_id") == clock.boot_id().hex()
    return ComponentView(
        name=str(document["name"]),
        kind=str(document["kind"]),
        state=str(document["state"]),
        reason_code=str(document["reason_code"]),
        reason=str(document["reason"]),
        cause=str(document.get("cause", "")),
        pid=pid,
        alive=same_boot and running(pid),
        age_s=max(0.0, (clock.time_ns() - int(document["written_ns"])) / 1e9),
        numbers={name: float(document.get(name, 0)) for name in COUNTERS},
        details={str(k): str(v) for k, v in dict(document.get("details", {})).items()},
    )


def process_runs(pid: int) -> bool:
    """Tell whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def headline(views: Sequence[ComponentView], unreadable: Sequence[str] = ()) -> str:
    """Return one sentence: the worst cause and the next action."""
    if not views:
        return unreadable[0] if unreadable else "nothing has run here yet; start an edge first"
    if not any(view.alive for view in views):
        cleanly = all(view.state == "stopped" for view in views)
        if cleanly:
            return "not running: it was stopped; start it to go on"
        pids = ", ".join(str(pid) for pid in sorted({view.pid for view in views}))
        return (
            f"not running: process {pids} is gone without a goodbye; start it again, it goes on "
            "where it was"
        )
    gone = [v for v in views if not v.alive and v.state not in ("stopped",)]
    worst = views[0]
    if worst.alive and worst.state in ("failed", "degraded"):
        cause = f" ({worst.cause})" if worst.cause else ""
        return f"{worst.name} is {worst.state}: {worst.reason}{cause}"
    if gone:
        return f"{gone[0].name} is not running: process {gone[0].pid} is gone; start it again"
    if worst.state == "starting":
        return f"{worst.name} is starting: {worst.reason}"
    return f"all {len(views)} components work"


def is_fine(views: Sequence[ComponentView], unreadable: Sequence[str] = ()) -> bool:
    """Tell whether every component runs."""
    return (
        bool(views)
        and not unreadable
        and all(view.alive and view.state in ("running", "starting") for view in views)
    )
