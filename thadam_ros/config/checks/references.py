# SPDX-License-Identifier: Apache-2.0
"""What several checks need: naming unknown references and matching topic syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from thadam_ros.config.kinds import nearest
from thadam_ros.errors import Problem

_ROS_SEGMENT: Final = r"(\*\*|[A-Za-z0-9_*]+)"
_ROS_TOPIC: Final = re.compile(rf"(~?/)?{_ROS_SEGMENT}(/{_ROS_SEGMENT})*")


def unknown(path: str, name: str, noun: str, valid: Iterable[str]) -> Problem:
    """Return the problem of a name that refers to nothing."""
    names = sorted(valid)
    listed = ", ".join(names) or "none is configured"
    return Problem(path, name, f"is not a configured {noun}; valid: {listed}", nearest(name, names))


def topic_problem(pattern: str, source_type: str) -> str | None:
    """Return what is wrong with a topic pattern of a source type, or None."""
    if source_type == "ros2":
        if _ROS_TOPIC.fullmatch(pattern) is None:
            return (
                "is not a ROS topic name; valid: letters, digits, _ and /, with * inside one "
                "segment and ** over segments"
            )
        if "***" in pattern:
            return "has three * in a row; valid: * inside one segment, ** over segments"
        return None
    segments = pattern.split("/")
    for index, segment in enumerate(segments):
        if "#" in segment and (segment != "#" or index != len(segments) - 1):
            return "has # before the end; valid: # alone as the last level of an MQTT topic"
        if "+" in segment and segment != "+":
            return "has + inside a level; valid: + alone as one level of an MQTT topic"
        if "*" in segment:
            return "has *, which MQTT does not know; valid: + for one level, # for the rest"
    return None


def is_inside(path: str, folder: str) -> bool:
    """Tell whether ``path`` is ``folder`` or lies in it, by name."""
    inner, outer = _parts(path), _parts(folder)
    return inner[: len(outer)] == outer


def _parts(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts
