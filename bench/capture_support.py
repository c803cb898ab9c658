# SPDX-License-Identifier: Apache-2.0
"""Processes of the capture bench: a publisher, the bare wait set loop, and thadam itself.

``python -m bench.capture_support publish|bare ...`` runs one of the first two. The bare loop is
what rclpy can do at most: a wait set over raw subscriptions, every ready one drained, nothing kept
but a count. It shares no code with the product.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
DEPTH = 1000
IMU_BYTES = 324
_TICK_S = 0.002
_SETTLE_S = 0.3


def topic_names(count: int) -> list[str]:
    """Return the names of the bench's topics."""
    return [f"/bench/t{i}" for i in range(count)]


# Children: run with rclpy.


def _payload(size: int) -> tuple[Any, bytes]:
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Imu
    from std_msgs.msg import UInt8MultiArray

    if size <= 1000:
        return Imu, bytes(serialize_message(Imu()))
    message = UInt8MultiArray()
    message.data = bytes(size)
    return UInt8MultiArray, bytes(serialize_message(message))


def publish(options: argparse.Namespace) -> None:
    """Publish at a steady rate once every topic is matched; print what was sent."""
    import rclpy
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

    rclpy.init()
    node = Node("bench_publisher")
    kind, payload = _payload(options.bytes)
    publishers = [
        node.create_publisher(kind, name, QoSProfile(depth=DEPTH if options.bytes < 1e5 else 50))
        for name in topic_names(options.topics)
    ]
    while not all(p.get_subscription_count() for p in publishers):
        time.sleep(0.01)
    # The other side needs a moment more than this one to consider itself matched.
    time.sleep(0.5)
    print("READY", flush=True)
    sys.stdin.readline()
    sent, begin = 0, time.perf_counter()
    end = begin + options.seconds
    while (now := time.perf_counter()) < end:
        due = int((now - begin) * options.rate)
        while sent < due:
            publishers[sent % len(publishers)].publish(payload)
            sent += 1
            if time.perf_counter() >= end:
                break
        time.sleep(_TICK_S)
    elapsed = time.perf_counter() - begin
    print(json.dumps({"sent": sent, "elapsed_s": elapsed, "bytes": len(payload)}), flush=True)
    sys.stdin.readline()
    # Shutting the context down takes its time and measures nothing.
    os._exit(0)


def bare(options: argparse.Namespace) -> NoReturn:
    """Take as fast as rclpy can; answer every line on stdin with the counts so far."""
    import threading

    import rclpy
    from rclpy.impl.implementation_singleton import rclpy_implementation as impl
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

    rclpy.init()
    node = Node("bench_bare")
    kind, _ = _payload(options.bytes)
    profile = QoSProfile(depth=DEPTH if options.bytes < 1e5 else 50)
    subscriptions = [
        node.create_subscription(kind, name, lambda message: None, profile, raw=True)
        for name in topic_names(options.topics)
    ]
    counts = {"received": 0, "bytes": 0}

    def answer() -> None:
        for _line in sys.stdin:
            print(json.dumps(counts), flush=True)
        os._exit(0)

    threading.Thread(target=answer, daemon=True).start()
    handles = [s.handle for s in subscriptions]
    by_pointer = {h.pointer: h.take_message for h in handles}
    context: Any = node.context.handle
    wait_set = impl.WaitSet(len(handles), 0, 0, 0, 0, 0, context)
    while True:
        wait_set.clear_entities()
        for handle in handles:
            wait_set.add_subscription(handle)
        wait_set.wait(200_000_000)
        for pointer in wait_set.get_ready_entities("subscription"):
            take = by_pointer[pointer]
            for _ in range(256):
                taken: Any = take(kind, True)
                if taken is None:
                    break
                counts["received"] += 1
                counts["bytes"] += len(taken[0])


# The bench's side.


class Taker:
    """A process that takes messages."""

    pid: int

    def received(self) -> int:
        """Return the number of messages taken since start."""
        raise NotImplementedError

    def close(self) -> None:
        """End the process."""


class BareTaker(Taker):
    """The bare loop in a process."""

    def __init__(self, topics: int, size: int) -> None:
        self._process = _child("bare", topics, size)
        self.pid = self._process.pid

    def received(self) -> int:
        answer: dict[str, int] = json.loads(_ask(self._process))
        return answer["received"]

    def close(self) -> None:
        _end(self._process)


class ThadamTaker(Taker):
    """``thadam_edge`` capturing the bench's topics, with or without a chain at work."""

    def __init__(self, topics: int, size: int, *, chain: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="thadam-bench-")
        folder = Path(self._folder.name)
        document = folder / "thadam.yaml"
        names = ", ".join(topic_names(topics))
        kind = "sensor_msgs/msg/Imu" if size <= 1000 else "std_msgs/msg/UInt8MultiArray"
        fields = "all_fields: true" if size <= 1000 else "fields: {offset: /layout/data_offset}"
        depth = "" if size <= 1000 else '\n    topics: {"**": {depth: 50}}'
        document.write_text(
            f"""schema: 1
edge: {{data_dir: {folder}/data, clock: always_synced}}
sources:
  robot:
    type: ros2{depth}
datasets:
  data:
    match: {{source: robot, topics: [{names}]}}
    type: {kind}
    {fields}
sinks:
  lake: {{type: parquet, url: {folder}/lake, rotation: {{max_age: 5s}}}}
"""
        )
        self._status = folder / "data" / "status" / "source.robot.json"
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "thadam_ros.node.main", "--ros-args", "-p",
             f'config_file:="{document}"', "-p", "autostart:=false"],
            cwd=ROOT, env=_environment(), stdout=self._log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        for name in ["thadam", *(["thadam_lake"] if chain else [])]:
            _bring_up(name)

    def received(self) -> int:
        """The count of a status file that was written after the call."""
        asked_ns = time.time_ns()
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline:
            try:
                document = json.loads(self._status.read_bytes())
            except (OSError, ValueError):
                document = {"written_ns": 0}
            if document["written_ns"] > asked_ns:
                return int(document["received"]) - int(document["refused"])
            time.sleep(0.05)
        raise RuntimeError("thadam writes no status any more")

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()


class Trial:
    """What one run of the publisher gave.

    Attributes:
        rate: Messages per second that were really published.
        lost: Messages that did not arrive.
        cpu_us: CPU microseconds of the taking process per message received.
        bytes_per_s: Payload bytes received per second of publishing.
    """

    def __init__(self, sent: int, elapsed_s: float, received: int, cpu_s: float, size: int) -> None:
        self.rate = sent / elapsed_s
        self.lost = sent - received
        self.cpu_us = cpu_s / max(1, received) * 1e6
        self.bytes_per_s = received * size / elapsed_s


def run_trial(taker: Taker, topics: int, size: int, rate: float, seconds: float) -> Trial:
    """Publish at ``rate`` and see what arrives."""
    publisher = _child("publish", topics, size, "--rate", str(rate), "--seconds", str(seconds))
    try:
        assert publisher.stdout is not None
        assert publisher.stdout.readline().strip() == "READY"
        before, cpu_before = taker.received(), _cpu_s(taker.pid)
        answer = json.loads(_ask(publisher))
        # The same pause for every taker: what is on its way arrives and is paid for.
        time.sleep(_SETTLE_S)
        cpu = _cpu_s(taker.pid) - cpu_before
        received = _settled(taker, before + answer["sent"]) - before
        return Trial(answer["sent"], answer["elapsed_s"], received, cpu, answer["bytes"])
    finally:
        _end(publisher)


def _settled(taker: Taker, expected: int) -> int:
    """Read until everything arrived or nothing new does."""
    last = -1
    for _ in range(20):
        now = taker.received()
        if now >= expected or now == last:
            return now
        last = now
        time.sleep(0.3)
    return last


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


def _child(what: str, topics: int, size: int, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.capture_support", what, "--topics", str(topics),
         "--bytes", str(size), *more],
        cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bring_up(name: str) -> None:
    """Configure and activate a node through its services."""
    import rclpy
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    context = Context()
    rclpy.init(context=context)
    node = Node("bench_manager", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    client: Any = node.create_client(ChangeState, f"/{name}/change_state")
    try:
        if not client.wait_for_service(30.0):
            raise RuntimeError(f"{name} did not start")
        for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            request = ChangeState.Request()
            request.transition.id = transition
            future = client.call_async(request)
            executor.spin_until_future_complete(future, 30.0)
            answer: Any = future.result() if future.done() else None
            if answer is None or not answer.success:
                raise RuntimeError(f"{name} cannot be brought up")
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def main(argv: Sequence[str] | None = None) -> None:
    """Run a child."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("publish", "bare"))
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=IMU_BYTES)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args(argv)
    {"publish": publish, "bare": bare}[options.what](options)


if __name__ == "__main__":
    main()
