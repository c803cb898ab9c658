# SPDX-License-Identifier: Apache-2.0
"""Rules of ``edge:``, ``wal:``, ``sources:``, ``quarantine:`` and of the document as a whole."""

from __future__ import annotations

from thadam_ros.config.checks.references import topic_problem, unknown
from thadam_ros.config.quantities import SIZE_UNITS, from_base_units
from thadam_ros.config.schema import Config
from thadam_ros.errors import Problem

#: A replay window of this share of the budget or more leaves capture no room (spec 2).
_REPLAY_SHARE_MAX = 0.8


def check_presence(config: Config) -> list[Problem]:
    """At least one source, one dataset and one sink."""
    return [
        Problem(key, None, f"is empty; configure at least one {key[:-1]}")
        for key in ("sources", "datasets", "sinks")
        if not getattr(config, key)
    ]


def check_wal(config: Config) -> list[Problem]:
    """Budgets that leave room for capture."""
    wal, problems = config.wal, []
    budget, window = wal.budget_bytes, wal.replay_window_bytes
    if budget is not None and budget < 2 * wal.segment_bytes:
        least = from_base_units(2 * wal.segment_bytes, SIZE_UNITS)
        message = f"does not hold two segments of segment_bytes; at least {least}"
        problems.append(Problem("wal.budget", from_base_units(budget, SIZE_UNITS), message))
    if budget is not None and window is not None and window >= _REPLAY_SHARE_MAX * budget:
        most = from_base_units(int(_REPLAY_SHARE_MAX * budget), SIZE_UNITS)
        message = f"must be below 80 % of wal.budget, so below {most}"
        problems.append(Problem("wal.replay_window", from_base_units(window, SIZE_UNITS), message))
    return problems


def check_sources(config: Config) -> list[Problem]:
    """Topic syntax per source type, URL schemes, one way to give a password."""
    problems: list[Problem] = []
    for name, source in config.sources.items():
        path = f"sources.{name}"
        patterns: list[tuple[str, str]] = []
        if source.ros2 is not None:
            patterns += [(f"{path}.also[{i}]", t) for i, t in enumerate(source.ros2.also)]
            patterns += [(f"{path}.exclude[{i}]", t) for i, t in enumerate(source.ros2.exclude)]
            patterns += [(f"{path}.topics.{t}", t) for t in source.ros2.topics]
        if source.mqtt is not None:
            patterns += [(f"{path}.also[{i}]", t) for i, t in enumerate(source.mqtt.also)]
            problems += check_url(f"{path}.url", source.mqtt.url, ("mqtt", "mqtts"))
            problems += check_password(
                path, source.mqtt.user, source.mqtt.password_env, source.mqtt.password_file
            )
        for where, pattern in patterns:
            message = topic_problem(pattern, source.type)
            if message is not None:
                problems.append(Problem(where, pattern, message))
    return problems


def check_quarantine(config: Config) -> list[Problem]:
    """Rejects are delivered by a parquet sink."""
    target = config.quarantine.deliver_to
    if target is None:
        return []
    parquet = [n for n, s in config.sinks.items() if s.type == "parquet"]
    if target not in config.sinks:
        return [unknown("quarantine.deliver_to", target, "parquet sink", parquet)]
    if target not in parquet:
        kind = config.sinks[target].type
        valid = ", ".join(parquet) or "none is configured"
        message = f"is a sink of type {kind}; rejects go to a parquet sink, valid: {valid}"
        return [Problem("quarantine.deliver_to", target, message)]
    return []


def check_url(path: str, url: str, schemes: tuple[str, ...]) -> list[Problem]:
    """A URL has one of the schemes and a host."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in schemes and rest.strip("/"):
        return []
    valid = ", ".join(f"{s}://host" for s in schemes)
    return [Problem(path, url, f"is not a URL for this type; valid: {valid}")]


def check_password(
    path: str, user: object, password_env: object, password_file: object
) -> list[Problem]:
    """A password comes from one place and belongs to a user."""
    if password_env and password_file:
        message = "is given beside password_env; keep one of them"
        return [Problem(f"{path}.password_file", password_file, message)]
    if (password_env or password_file) and not user:
        return [Problem(f"{path}.user", None, "is missing; a password needs a user")]
    return []
