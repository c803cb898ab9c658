# SPDX-License-Identifier: Apache-2.0
"""Publishes numbered messages on several topics and writes its own ledger, until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import struct
import sys
import time

import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import UInt64

from thadam_ros.node.demo.ledger import LedgerWriter
from thadam_ros.node.demo.publishing import LedgerPublisher, make_qos

MATCH_DEADLINE_S = 60.0
TYPE_NAME = "std_msgs/msg/UInt64"


def main() -> int:
    """Publish at an even rate, round robin over the topics; a late turn is caught up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--rate", type=float, required=True, help="messages a second, all topics")
    parser.add_argument("--topics", nargs="+", required=True)
    options = parser.parse_args()
    stopped = False

    def stop(signum: int, frame: object) -> None:
        nonlocal stopped
        stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = Node("kill_publisher")
    ledger = LedgerWriter(options.ledger)
    # Two seconds of history: a subscriber that stalls on a busy machine loses nothing.
    qos = make_qos(reliable=True, latched=False, depth=int(2 * options.rate))
    publishers = [
        LedgerPublisher(
            node,
            ledger,
            index=index,
            stream=topic,
            topic=topic,
            message_type=UInt64,
            type_name=TYPE_NAME,
            qos=qos,
        )
        for index, topic in enumerate(options.topics)
    ]
    give_up = time.monotonic() + MATCH_DEADLINE_S
    while not stopped and not all(p.is_matched() for p in publishers):
        if time.monotonic() > give_up:
            print("no subscription matched", file=sys.stderr)
            return 1
        time.sleep(0.01)
    ledger.start(time.time_ns())
    begin, count = time.monotonic(), 0
    while not stopped:
        due = int((time.monotonic() - begin) * options.rate)
        while count < due:
            publisher = publishers[count % len(publishers)]
            stamp_ns = time.time_ns()
            publisher.publish(
                b"\x00\x01\x00\x00" + struct.pack("<Q", publisher.number + 1), stamp_ns
            )
            count += 1
        time.sleep(0.001)
    ledger.end(time.time_ns())
    ledger.close()
    # A publisher that goes takes what is not acknowledged with it. Dead readers never do, so
    # the wait has an end.
    for publisher in publishers:
        publisher.wait_until_acknowledged(0.5)
    node.destroy_node()
    rclpy.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
