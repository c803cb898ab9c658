# SPDX-License-Identifier: Apache-2.0
"""The simulated robot: publishes a :class:`RobotPlan` and writes its ledger (spec 7.7)."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from thadam_ros.node.demo.expectations import (
    SECONDS_MIN,
    STAMP_ZERO,
    RobotPlan,
    Stream,
    make_plan,
)
from thadam_ros.node.demo.ledger import LedgerWriter
from thadam_ros.node.demo.messages import make_payload
from thadam_ros.node.demo.publishing import LedgerPublisher, make_qos, message_class
from thadam_ros.node.demo.shipped import shipped_config

#: Longest wait for the subscriptions of a stream; then it publishes to whoever is there.
MATCH_DEADLINE_S = 60.0
_POLL_S = 0.01


@dataclass(slots=True)
class _Running:
    """A stream at work.

    Attributes:
        base_s: Monotonic time of the stream's first message, None while it waits for its match.
        give_up_s: Monotonic time at which the wait ends anyway.
    """

    stream: Stream
    publisher: LedgerPublisher
    give_up_s: float
    base_s: float | None = None
    base_ns: int = 0
    number: int = 1

    def due(self) -> float:
        """Return the monotonic time of the next message."""
        assert self.base_s is not None
        return self.base_s + self.stream.due_s(self.number) - self.stream.first_s

    def stamp_ns(self) -> int:
        """Return what the header of the next message says."""
        planned_ns = self.stream.planned_stamp_ns(self.number)
        if planned_ns == 0 and STAMP_ZERO in self.stream.kinds(self.number):
            return 0
        return self.base_ns + planned_ns - int(self.stream.first_s * 1e9)


class Robot:
    """Publishes a plan from one thread; nothing is spun, publishing needs no executor."""

    def __init__(self, plan: RobotPlan, ledger: LedgerWriter, nodes: dict[str, Node]) -> None:
        self._plan = plan
        self._ledger = ledger
        self._nodes = nodes
        self._next_index = 0
        self.stopped = False

    def run(self) -> None:
        """Publish everything, latched streams first; returns early once ``stopped`` is set."""
        for stream in self._plan.streams:
            if stream.latched:
                self._publish_latched(stream)
        running = [
            self._start(stream)
            for stream in self._plan.streams
            if not stream.latched and stream.first_s == 0.0
        ]
        self._wait_for_all(running)
        start_s = time.monotonic()
        self._ledger.start(time.time_ns())
        later = [s for s in self._plan.streams if not s.latched and s.first_s > 0.0]
        while not self.stopped and (running or later):
            now = time.monotonic()
            while later and now >= start_s + later[0].first_s:
                running.append(self._start(later.pop(0)))
            self._begin_matched(running, now)
            self._publish_due(running, now)
            running = [r for r in running if r.number <= r.stream.count]
            self._pause(running)
        if not self.stopped:
            self._ledger.end(time.time_ns())

    def _start(self, stream: Stream) -> _Running:
        publisher = LedgerPublisher(
            self._nodes[stream.node],
            self._ledger,
            index=self._next_index,
            stream=stream.key,
            topic=stream.topic,
            message_type=message_class(stream.type_name),
            type_name=stream.type_name,
            qos=make_qos(reliable=stream.reliable, latched=stream.latched, depth=_depth(stream)),
        )
        self._next_index += 1
        return _Running(stream, publisher, time.monotonic() + MATCH_DEADLINE_S)

    def _publish_latched(self, stream: Stream) -> None:
        running = self._start(stream)
        running.base_s, running.base_ns = time.monotonic(), time.time_ns()
        while running.number <= stream.count:
            self._publish(running)

    def _wait_for_all(self, running: list[_Running]) -> None:
        while not self.stopped:
            now = time.monotonic()
            if all(r.publisher.is_matched() or now > r.give_up_s for r in running):
                return
            time.sleep(_POLL_S)

    def _begin_matched(self, running: list[_Running], now: float) -> None:
        for one in running:
            if one.base_s is None and (one.publisher.is_matched() or now > one.give_up_s):
                one.base_s, one.base_ns = now, time.time_ns()

    def _publish_due(self, running: list[_Running], now: float) -> None:
        for one in running:
            # One message a turn: a stream that is late must not hold up the others.
            if one.base_s is not None and one.number <= one.stream.count and one.due() <= now:
                self._publish(one)

    def _publish(self, one: _Running) -> None:
        stamp_ns = one.stamp_ns()
        payload = make_payload(one.stream, one.number, stamp_ns, self._plan.seed)
        one.publisher.publish(payload, stamp_ns)
        one.number += 1

    def _pause(self, running: list[_Running]) -> None:
        due = [r.due() if r.base_s is not None else time.monotonic() + _POLL_S for r in running]
        pause = min(due, default=time.monotonic() + _POLL_S) - time.monotonic()
        if pause > 0:
            time.sleep(min(pause, _POLL_S))


def _depth(stream: Stream) -> int:
    """Return a history that outlasts a subscriber's pause of a few seconds."""
    if stream.latched:
        return stream.count
    return max(100, int(5 * stream.rate_hz)) if stream.reliable else 5


def _make_nodes(argv: Sequence[str]) -> dict[str, Node]:
    """Return the nodes of the robot's three drivers.

    The camera is a DDS participant of its own, as on a robot: the fragments of its clouds would
    fill the buffers that the small reliable messages need.
    """
    drive = Context()
    rclpy.init(args=list(argv), context=drive, signal_handler_options=SignalHandlerOptions.NO)
    robot = Node("demo_robot", context=drive)
    camera = Context()
    # Launch renames nodes by `-r __node:=`; only the first may listen to it.
    rclpy.init(args=[], context=camera, signal_handler_options=SignalHandlerOptions.NO)
    namespace = robot.get_namespace()
    return {
        "robot": robot,
        "gripper": Node(
            "demo_gripper", context=drive, namespace=namespace, use_global_arguments=False
        ),
        "camera": Node("demo_camera", context=camera, namespace=namespace),
    }


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="thadam_demo_robot", description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help=f"at least {SECONDS_MIN:g}")
    parser.add_argument("--seed", type=int, default=1, help="moves the defects that occur once")
    parser.add_argument("--ledger", default=os.devnull, help="file for what was published")
    parser.add_argument(
        "--stay", action="store_true", help="keep the publishers until SIGTERM or SIGINT"
    )
    return parser.parse_args(remove_ros_args(list(argv))[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the robot; returns 130 when it was interrupted."""
    argv = list(sys.argv if argv is None else argv)
    options = _parse(argv)
    try:
        plan = make_plan(options.seconds, options.seed)
    except ValueError as exc:
        print(f"thadam_demo_robot: --seconds: {exc}", file=sys.stderr)
        return 2
    # The older name is what distributions before Kilted read; a user's own profile stays.
    profile = str(shipped_config("demo_fastdds.xml"))
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        os.environ.setdefault(name, profile)
    nodes = _make_nodes(argv)
    ledger = LedgerWriter(options.ledger)
    robot = Robot(plan, ledger, nodes)

    def stop(signum: int, frame: object) -> None:
        robot.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    robot.run()
    interrupted = robot.stopped
    while options.stay and not robot.stopped:
        time.sleep(0.05)
    ledger.close()
    for node in nodes.values():
        node.destroy_node()
        node.context.try_shutdown()
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
