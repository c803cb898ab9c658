# SPDX-License-Identifier: Apache-2.0
"""When nodes are brought up, and when not (spec 1.6, 7.1)."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="thadam_ros.node needs rclpy")

from thadam_ros.errors import ConfigError, FatalError, LockHeldError
from thadam_ros.node.supervisor import LOCK_RETRY_S, Supervisor


class SteppedClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def boottime_ns(self) -> int:
        return int(self.now_s * 1e9)

    def boot_id(self) -> bytes:
        return bytes(16)


class ScriptedNode:
    """A node whose configure fails with what the test sets."""

    def __init__(self) -> None:
        self.cause: BaseException | None = None
        self.next_retry_ns = 0
        self.state_label = "unconfigured"
        self.refusal: BaseException | None = None
        self.configured = 0

    def trigger_configure(self) -> None:
        self.configured += 1
        self.cause = self.refusal
        if self.refusal is None:
            self.state_label = "inactive"

    def trigger_activate(self) -> None:
        self.state_label = "active"

    def fail(self, cause: BaseException) -> None:
        self.state_label, self.cause = "unconfigured", cause


class Bench:
    """A supervisor of two nodes."""

    def __init__(self, every_s: float = 100.0, draw: float = 0.5) -> None:
        self.clock = SteppedClock()
        self.signature = 1
        self.first, self.second = ScriptedNode(), ScriptedNode()
        self.supervisor = Supervisor(
            [(self.first, lambda: every_s), (self.second, lambda: every_s)],
            self.clock,
            lambda: self.signature,
            draw=lambda: draw,
        )

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.now_s += seconds
        self.supervisor.tick()


def test_a_node_that_fails_at_start_never_stops_the_others() -> None:
    """Autostart goes on after a refusal."""
    bench = Bench()
    bench.first.refusal = FatalError("no")
    bench.supervisor.autostart()
    assert bench.first.state_label == "unconfigured"
    assert bench.second.state_label == "active"


def test_a_failed_node_is_tried_again_after_a_random_part_of_its_period() -> None:
    """Full jitter; the time of the next try is told; then it comes up."""
    bench = Bench(every_s=100.0, draw=0.5)
    bench.supervisor.autostart()
    bench.tick()
    bench.first.fail(FatalError("the store refuses the password"))
    bench.tick()
    assert bench.first.next_retry_ns == bench.clock.time_ns() + 50_000_000_000
    bench.tick(49.0)
    assert bench.first.state_label == "unconfigured"
    bench.tick(2.0)
    assert bench.first.state_label == "active"
    bench.tick()
    assert bench.first.next_retry_ns == 0


def test_a_period_of_zero_is_never() -> None:
    """retry_failed_every: 0 leaves recovery to a hand."""
    bench = Bench(every_s=0.0)
    bench.supervisor.autostart()
    bench.first.fail(FatalError("no"))
    for _ in range(5):
        bench.tick(1e6)
    assert bench.first.configured == 1


def test_a_wrong_configuration_waits_for_a_change() -> None:
    """Time does not correct a document."""
    bench = Bench()
    bench.first.refusal = ConfigError([])
    bench.supervisor.autostart()
    for _ in range(5):
        bench.tick(1e6)
    assert bench.first.configured == 1
    bench.signature, bench.first.refusal = 2, None
    bench.tick()
    assert bench.first.state_label == "active"


def test_a_held_lock_is_looked_at_soon() -> None:
    """The predecessor of a respawned process is usually just ending."""
    bench = Bench(every_s=300.0, draw=1.0)
    bench.first.refusal = LockHeldError("held")
    bench.supervisor.autostart()
    bench.first.refusal = None
    bench.tick()
    bench.tick(LOCK_RETRY_S + 0.1)
    assert bench.first.state_label == "active"


@pytest.mark.parametrize("label", ["inactive", "unconfigured"])
def test_what_an_operator_stops_stays_stopped(label: str) -> None:
    """A deactivated or cleaned-up node is not wanted any more."""
    bench = Bench()
    bench.supervisor.autostart()
    bench.tick()
    bench.first.state_label = label
    for _ in range(3):
        bench.tick(1e6)
    assert bench.first.state_label == label
    bench.first.fail(FatalError("later"))
    for _ in range(3):
        bench.tick(1e6)
    assert bench.first.state_label == "unconfigured"


def test_nothing_is_brought_up_without_autostart_or_hand() -> None:
    """A refused configure by hand is answered, not repeated; an activated node is wanted."""
    bench = Bench()
    bench.first.fail(FatalError("refused by hand"))
    for _ in range(3):
        bench.tick(1e6)
    assert bench.first.configured == 0
    bench.second.state_label = "active"
    bench.tick()
    bench.second.fail(FatalError("broke"))
    bench.tick()
    bench.tick(1e6)
    assert bench.second.state_label == "active"


def test_a_stopped_supervisor_brings_nothing_up() -> None:
    """While the process ends no node comes back."""
    bench = Bench()
    bench.supervisor.autostart()
    bench.first.fail(FatalError("no"))
    bench.supervisor.stop()
    for _ in range(3):
        bench.tick(1e6)
    assert bench.first.configured == 1
