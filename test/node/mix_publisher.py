# SPDX-License-Identifier: Apache-2.0
"""A robot's mix of topics: images 2 x 6 MB/s, clouds of 1 MB at 10 Hz, /tf, 40 small topics.

Started by ``test_robot_mix.py``, which writes requests to stdin: ``one`` sends one more message on
every topic, ``run SECONDS`` all of them at their rates. Each is answered with the counts so far.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import rclpy
from geometry_msgs.msg import TransformStamped
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image, Imu, PointCloud2

MATCH_DEADLINE_S = 60.0


@dataclass
class Stream:
    """One topic: what is published, how often, how many so far."""

    publisher: Any
    payload: bytes
    rate_hz: float
    sent: int = 0

    def send(self) -> None:
        self.publisher.publish(self.payload)
        self.sent += 1


def make_streams(node: Node) -> list[Stream]:
    image, cloud = Image(), PointCloud2()
    image.data = bytes(200_000)
    cloud.data = bytes(1_000_000)
    lossy = QoSProfile(depth=10, reliability=QoSReliabilityPolicy.BEST_EFFORT)
    steady = QoSProfile(depth=500)

    def stream(kind: Any, topic: str, message: Any, rate_hz: float, qos: Any) -> Stream:
        payload = bytes(serialize_message(message))
        return Stream(node.create_publisher(kind, topic, qos), payload, rate_hz)

    streams = [stream(Image, f"/mix/image_{i}", image, 30.0, lossy) for i in range(2)]
    streams.append(stream(PointCloud2, "/mix/points", cloud, 10.0, lossy))
    streams.append(stream(TransformStamped, "/mix/tf", TransformStamped(), 200.0, steady))
    streams.extend(stream(Imu, f"/mix/small_{i}", Imu(), 20.0, steady) for i in range(40))
    return streams


def run(streams: list[Stream], seconds: float) -> None:
    """Publish everything at its rate; a late turn is caught up."""
    before = [stream.sent for stream in streams]
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        for stream, base in zip(streams, before, strict=True):
            while stream.sent - base < int(elapsed * stream.rate_hz):
                stream.send()
        time.sleep(0.002)


def main() -> int:
    rclpy.init()
    node = Node("mix")
    streams = make_streams(node)
    give_up = time.monotonic() + MATCH_DEADLINE_S
    while not all(s.publisher.get_subscription_count() for s in streams):
        if time.monotonic() > give_up:
            print("not every topic is captured", file=sys.stderr)
            return 1
        time.sleep(0.01)
    for line in sys.stdin:
        if line.startswith("run "):
            run(streams, float(line.split()[1]))
        else:
            for stream in streams:
                stream.send()
        print(json.dumps({s.publisher.topic_name: s.sent for s in streams}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
