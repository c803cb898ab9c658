# SPDX-License-Identifier: Apache-2.0
"""Keeps the since-time of a component's state (spec 1.6)."""

from __future__ import annotations

from thadam_ros.model.clock import Clock
from thadam_ros.model.states import ComponentState, State


class StateTracker:
    """Replaces the state as a whole; ``since`` moves only with the state or its reason code."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.current = ComponentState(since_ns=clock.time_ns())

    def update(
        self, state: State, code: str, reason: str, cause: str = "", next_retry_ns: int = 0
    ) -> ComponentState:
        """Set the state and return it."""
        before = self.current
        same = before.state is state and before.reason_code == code
        since = before.since_ns if same else self._clock.time_ns()
        self.current = ComponentState(state, code, reason, cause, since, next_retry_ns)
        return self.current
