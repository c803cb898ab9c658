# SPDX-License-Identifier: Apache-2.0
"""Real bags over live ROS 2 into the write-ahead log, byte for byte (issue: main job, 3)."""

from __future__ import annotations

import importlib
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")
pytest.importorskip("thadam_ros.msg", reason="needs the built workspace")

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from thadam_ros.model.message import Frame, TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.reader import WalReader

from .edge_process import EdgeProcess, write_document
from .support import wait_until

_SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
BAGS = Path(os.environ.get("THADAM_SHARED_DATA", _SHARED)) / "bags"
NAMES = (
    "all_types_mcap",
    "all_types_sqlite",
    "array_msgs",
    "base_msgs",
    "big_array",
    "cdr_test_mcap",
    "cdr_test_sqlite",
    "float64_50k",
    "mag_temp",
)

#: A type that no package offers; its bytes travel under the name of another.
STAND_IN = {"test_msgs/BigArray": "std_msgs/msg/Float64MultiArray"}

DOCUMENT = """\
schema: 1
edge: {{data_dir: {data}, clock: always_synced}}
wal: {{commit_interval: 50ms}}
sources:
  robot:
    type: ros2
    capture: all
    topics: {{"**": {{depth: 60000}}}}
datasets:
  nothing:
    match: {{source: robot, topics: [/nobody/publishes/this]}}
    type: std_msgs/msg/String
    all_fields: true
sinks:
  lake: {{type: parquet, url: {folder}/lake}}
"""

pytestmark = pytest.mark.skipif(not BAGS.is_dir(), reason=f"no shared bags at {BAGS}")


def read_bag(name: str) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """Return topic -> type, and every message in recorded order."""
    folder = BAGS / name
    paths = [folder] if (folder / "metadata.yaml").exists() else sorted(folder.glob("*.mcap"))
    with AnyReader(paths, default_typestore=get_typestore(Stores.LATEST)) as reader:
        types = {c.topic: c.msgtype for c in reader.connections if c.msgcount}
        return types, [(c.topic, bytes(raw)) for c, _, raw in reader.messages()]


def message_class(type_name: str) -> Any:
    package, _, name = STAND_IN.get(type_name, type_name).replace("/msg/", "/").partition("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


class WalFollower:
    """Reads a WAL while it is written, through the reader that chains use."""

    def __init__(self, directory: Path) -> None:
        self._reader = WalReader(str(directory), fs=OsFileSystem())
        self.records: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.declared: dict[str, TopicDeclaration] = {}
        self.count = 0

    def follow(self) -> int:
        """Read what is durable; return the number of records so far."""
        while frames := self._reader.read(64, 64 << 20):
            for frame in frames:
                self._take(frame)
        return self.count

    def _take(self, frame: Frame) -> None:
        payload, offsets = frame.payload.tobytes(), frame.offsets.tolist()
        sequences = frame.sequences.tolist()
        for index, ref in enumerate(frame.topic_refs.tolist()):
            topic = frame.topics[ref]
            self.declared[topic.name] = topic
            body = payload[offsets[index] : offsets[index + 1]]
            self.records[topic.name].append((sequences[index] - 1, body))
        self.count += len(frame)

    def close(self) -> None:
        assert not self._reader.damage
        assert not self._reader.gaps
        self._reader.close()


def on_the_wire(payload: bytes) -> bytes:
    """RTPS pads every payload to a multiple of four bytes; a bag may have been written without."""
    return payload + bytes(-len(payload) % 4)


@pytest.mark.parametrize("name", NAMES)
def test_a_bag_arrives_byte_for_byte_and_in_order_per_topic(
    name: str, client_node: Node, domain_id: int, tmp_path: Path
) -> None:
    """Published as ready CDR after endpoints matched, reliable: nothing is missing or changed."""
    types, messages = read_bag(name)
    try:
        classes = {topic: message_class(kind) for topic, kind in types.items()}
    except ImportError as exc:
        pytest.skip(f"a message package is not installed: {exc}")
    document = write_document(tmp_path, DOCUMENT)
    process = EdgeProcess(domain_id, "-p", f'config_file:="{document}"')
    try:
        publishers = {
            topic: client_node.create_publisher(kind, topic, QoSProfile(depth=1000))
            for topic, kind in classes.items()
        }
        for topic, publisher in publishers.items():
            wait_until(publisher.get_subscription_count, f"{topic} is captured", 60.0)
        follower = WalFollower(tmp_path / "data" / "wal")
        for number, (topic, payload) in enumerate(messages, 1):
            publishers[topic].publish(payload)
            if number % 500 == 0 or number == len(messages):
                # Neither the publisher's queue nor ours may overwrite what is still on its way.
                wait_until(lambda n=number: follower.follow() >= n, f"{number} records", 60.0)
        assert process.stop() == 0, process.output
        follower.follow()
        follower.close()
    finally:
        process.close()
    expected: dict[str, list[bytes]] = defaultdict(list)
    for topic, payload in messages:
        expected[topic].append(on_the_wire(payload))
    assert set(follower.records) == set(expected)
    for topic, payloads in expected.items():
        arrived = follower.records[topic]
        assert [body for _, body in arrived] == payloads, topic
        first = arrived[0][0]
        assert [number for number, _ in arrived] == list(range(first, first + len(arrived)))
        declared = follower.declared[topic]
        wanted = STAND_IN.get(types[topic], types[topic])
        assert declared.type_name.replace("/msg/", "/") == wanted.replace("/msg/", "/")
        assert declared.definition
        assert declared.type_hash.startswith("RIHS01_")
