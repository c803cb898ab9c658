# SPDX-License-Identifier: Apache-2.0
"""Which QoS to ask for, given what publishers offer (spec 7.2).

A subscription gets nothing from a publisher that offers less than it asks for, and loses
guarantees when it asks for less than is offered. Where message infos name the publisher, a topic
therefore gets **one subscription for each (reliability, durability) that is offered**, and a
message counts only when it comes through the subscription of its publisher's own class: a latched
sample is captured although another publisher is volatile, a reliable one stays reliable beside a
best-effort one, and no publisher that appears later forces an existing subscription to be made
anew. Where infos do not name the publisher, one subscription asks for the least that is offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)

from thadam_ros.config.schema import TopicOptions
from thadam_ros.errors import Problem

#: Messages a subscription may hold before anything is known of its rate: 2 s of a 1 kHz topic.
DEPTH_UNKNOWN = 2_000
DEPTH_MIN = 50
DEPTH_BYTES_MAX = 16 << 20
DEPTH_SECONDS = 2.0

_RELIABILITIES = ("reliable", "best_effort")
_DURABILITIES = ("transient_local", "volatile")


class QosClass(NamedTuple):
    """What a publisher offers, or a subscription asks for, as far as it decides about matching."""

    reliability: str  # reliable | best_effort
    durability: str  # transient_local | volatile

    def satisfies(self, requested: QosClass) -> bool:
        """Tell whether a publisher that offers this reaches a subscription that asks for that."""
        return not (
            (requested.reliability == "reliable" and self.reliability != "reliable")
            or (requested.durability == "transient_local" and self.durability != "transient_local")
        )


#: Asked for where nothing is known of the publishers; it matches all of them.
WEAKEST = QosClass("best_effort", "volatile")


def offered_class(profile: QoSProfile) -> QosClass:
    """Return the class of a publisher's profile from the graph; unknown policies count as least."""
    reliable = profile.reliability == QoSReliabilityPolicy.RELIABLE
    latched = profile.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL
    return QosClass(
        "reliable" if reliable else "best_effort", "transient_local" if latched else "volatile"
    )


def requested_class(offered: QosClass, options: TopicOptions) -> QosClass:
    """Return what to ask of a publisher, overrides applied."""
    return QosClass(
        options.reliability or offered.reliability, options.durability or offered.durability
    )


def requested_classes(
    offered: Iterable[QosClass], options: TopicOptions, split: bool
) -> tuple[QosClass, ...]:
    """Return the classes to subscribe with, strongest first; one for each offered when ``split``.

    Without publishers the weakest class is asked for.
    """
    wanted = {requested_class(one, options) for one in offered}
    if not wanted:
        wanted = {requested_class(WEAKEST, options)}
    if not split:
        wanted = {
            QosClass(
                "reliable" if all(w.reliability == "reliable" for w in wanted) else "best_effort",
                "transient_local"
                if all(w.durability == "transient_local" for w in wanted)
                else "volatile",
            )
        }
    return tuple(
        sorted(wanted, key=lambda w: (w.reliability != "reliable", w.durability == "volatile"))
    )


def default_depth(rate_hz: float | None, mean_bytes: float | None) -> int:
    """Return max(50, 2 s of the topic's rate) within 16 MiB (spec 7.2).

    Args:
        rate_hz: Measured messages per second; None before anything was measured.
        mean_bytes: Measured mean payload; None before anything was measured.
    """
    depth = DEPTH_UNKNOWN if rate_hz is None else max(DEPTH_MIN, round(DEPTH_SECONDS * rate_hz))
    if mean_bytes:
        depth = min(depth, int(DEPTH_BYTES_MAX / mean_bytes))
    return max(1, depth)


def to_profile(requested: QosClass, depth: int) -> QoSProfile:
    """Return the profile of a subscription."""
    return QoSProfile(
        history=QoSHistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=QoSReliabilityPolicy.RELIABLE
        if requested.reliability == "reliable"
        else QoSReliabilityPolicy.BEST_EFFORT,
        durability=QoSDurabilityPolicy.TRANSIENT_LOCAL
        if requested.durability == "transient_local"
        else QoSDurabilityPolicy.VOLATILE,
    )


def parse_qos_overrides(
    parameters: Mapping[str, object],
) -> tuple[dict[str, TopicOptions], list[Problem]]:
    """Read ``qos_overrides.<topic>.subscription.<policy>`` parameters.

    Args:
        parameters: Full parameter names and values; others are ignored.

    Returns:
        Options by fully qualified topic, and the mistakes.
    """
    found: dict[str, dict[str, object]] = {}
    problems: list[Problem] = []
    for name, value in parameters.items():
        if not name.startswith("qos_overrides."):
            continue
        topic, separator, policy = name[len("qos_overrides.") :].rpartition(".subscription.")
        if not separator:
            continue  # a publisher's override is not ours
        problem = _check_policy(name, policy, value)
        if problem is None:
            found.setdefault(topic, {})[policy] = value
        else:
            problems.append(problem)
    options = {
        topic: TopicOptions(
            reliability=_text(values.get("reliability")),
            durability=_text(values.get("durability")),
            depth=_number(values.get("depth")),
        )
        for topic, values in found.items()
    }
    return options, problems


def merge_options(base: TopicOptions, override: TopicOptions) -> TopicOptions:
    """Return ``base`` with the QoS that ``override`` names."""
    return TopicOptions(
        reliability=override.reliability or base.reliability,
        durability=override.durability or base.durability,
        depth=override.depth or base.depth,
        max_rate_hz=base.max_rate_hz,
        max_payload_bytes=base.max_payload_bytes,
    )


def _check_policy(name: str, policy: str, value: object) -> Problem | None:
    valid: dict[str, tuple[str, ...]] = {
        "reliability": _RELIABILITIES,
        "durability": _DURABILITIES,
        "history": ("keep_last",),
    }
    if policy == "depth":
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return Problem(name, value, "must be an integer of at least 1")
        return None
    if policy not in valid:
        return Problem(name, value, f"policy must be one of depth, {', '.join(valid)}")
    if value not in valid[policy]:
        return Problem(name, value, f"must be one of {', '.join(valid[policy])}")
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
