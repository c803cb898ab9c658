# SPDX-License-Identifier: Apache-2.0
"""The clock of all timers here."""

from __future__ import annotations

from rclpy.clock import Clock, ClockType  # type: ignore[attr-defined]


def steady_clock() -> Clock:
    """Return a steady clock.

    With ``use_sim_time`` a node's own clock stands still until somebody publishes ``/clock``;
    nothing here may wait for that (spec 7.2).
    """
    return Clock(clock_type=ClockType.STEADY_TIME)
