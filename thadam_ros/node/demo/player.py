# SPDX-License-Identifier: Apache-2.0
"""Plays a bag as ready CDR and writes the same ledger as the robot."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rosbags.highlevel import AnyReader
from rosbags.interfaces import QosDurability
from rosbags.typesys import Stores, get_typestore

from thadam_ros.files.bag_reader import bag_files
from thadam_ros.node.demo.ledger import LedgerWriter
from thadam_ros.node.demo.publishing import LedgerPublisher, make_qos, message_class

MATCH_DEADLINE_S = 60.0
_DEPTH = 1_000
_POLL_S = 0.01


class Player:
    """Publishes the messages of some topics in their order, from one thread."""

    def __init__(self, reader: AnyReader, topics: Sequence[str], seconds: float) -> None:
        wanted = set(topics)
        self._reader = reader
        self._connections = [c for c in reader.connections if c.topic in wanted]
        self._seconds = seconds
        self.stopped = False

    def run(self, node: Node, ledger: LedgerWriter) -> None:
        """Publish; returns early once ``stopped`` is set."""
        publishers = self._publishers(node, ledger)
        give_up = time.monotonic() + MATCH_DEADLINE_S
        while not self.stopped and time.monotonic() < give_up:
            if all(publisher.is_matched() for publisher in publishers.values()):
                break
            time.sleep(_POLL_S)
        ledger.start(time.time_ns())
        begin = time.monotonic()
        for due_s, topic, payload in self._schedule():
            while not self.stopped and (pause := begin + due_s - time.monotonic()) > 0:
                time.sleep(min(pause, _POLL_S))
            if self.stopped:
                return
            publishers[topic].publish(payload, 0)
        ledger.end(time.time_ns())

    def _publishers(self, node: Node, ledger: LedgerWriter) -> dict[str, LedgerPublisher]:
        publishers: dict[str, LedgerPublisher] = {}
        for connection in self._connections:
            if connection.topic in publishers:
                continue
            parts = connection.msgtype.split("/")
            type_name = f"{parts[0]}/msg/{parts[-1]}"
            latched = any(_is_latched(c) for c in self._connections if c.topic == connection.topic)
            publishers[connection.topic] = LedgerPublisher(
                node,
                ledger,
                index=len(publishers),
                stream=connection.topic,
                topic=connection.topic,
                message_type=message_class(type_name),
                type_name=type_name,
                qos=make_qos(reliable=True, latched=latched, depth=_DEPTH),
            )
        return publishers

    def _schedule(self) -> Iterator[tuple[float, str, bytes]]:
        """Yield (seconds after the start, topic, payload).

        A longer bag is played at its own pace up to the run's length, a shorter one is stretched:
        what the demo breaks in between needs its time.
        """
        length_s = max(1e-3, (self._reader.end_time - self._reader.start_time) / 1e9)
        stretch = max(1.0, self._seconds / length_s)
        for connection, time_ns, raw in self._reader.messages(self._connections):
            due_s = (time_ns - self._reader.start_time) / 1e9 * stretch
            if due_s > self._seconds:
                return
            yield due_s, connection.topic, bytes(raw)


def _is_latched(connection: Any) -> bool:
    profiles = getattr(connection.ext, "offered_qos_profiles", ())
    return any(profile.durability == QosDurability.TRANSIENT_LOCAL for profile in profiles)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the player; returns 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog="player", description=__doc__)
    parser.add_argument("bag", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--ledger", default=os.devnull)
    parser.add_argument("--stay", action="store_true")
    options = parser.parse_args(argv)
    with AnyReader(
        bag_files(options.bag), default_typestore=get_typestore(Stores.LATEST)
    ) as reader:
        if not reader.is2:
            print(f"{options.bag} is a ROS 1 bag; its messages are no CDR", file=sys.stderr)
            return 2
        player = Player(reader, options.topics, options.seconds)

        def stop(signum: int, frame: object) -> None:
            player.stopped = True

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        node = Node("demo_player")
        ledger = LedgerWriter(options.ledger)
        player.run(node, ledger)
        interrupted = player.stopped
        while options.stay and not player.stopped:
            time.sleep(0.05)
        ledger.close()
        node.destroy_node()
        rclpy.shutdown()
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
