# SPDX-License-Identifier: Apache-2.0
"""A robot's mix through the real process: every message captured, or its loss counted.

Two image topics of 6 MB/s each, a 1 MB point cloud at 10 Hz, ``/tf`` at 200 Hz and 40 small
topics at 10 Hz, published by a process of its own; capture, WAL and a chain run meanwhile. The
publisher's counts are held against what the WAL holds and what capture counted as lost::

    python -m bench.robot_mix --seconds 120
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.reader import WalReader

ROOT = Path(__file__).resolve().parents[1]
START_DEADLINE_S = 90.0
DOCUMENT = """
schema: 1
edge: {{data_dir: {folder}/data, clock: always_synced}}
wal: {{budget: 8GiB, min_free: 256MiB}}
sources: {{robot: {{type: ros2, also: ["/camera/**", /points]}}}}
datasets:
  transforms:
    match: {{source: robot, topics: [/tf]}}
    type: tf2_msgs/msg/TFMessage
    explode: /transforms
    fields: {{child: ./child_frame_id, x: ./transform/translation/x}}
  small:
    match: {{source: robot, topics: ["/small/*"]}}
    type: std_msgs/msg/UInt64
    fields: {{data: /data}}
sinks:
  lake: {{type: parquet, url: {folder}/lake, rotation: {{max_age: 5s}}}}
"""


def streams() -> list[tuple[str, str, float, int]]:
    """Return (topic, type, Hz, payload bytes) of every stream."""
    image = "sensor_msgs/msg/Image"
    return [
        ("/camera/left", image, 30.0, 200_000),
        ("/camera/right", image, 30.0, 200_000),
        ("/points", "sensor_msgs/msg/PointCloud2", 10.0, 1_000_000),
        ("/tf", "tf2_msgs/msg/TFMessage", 200.0, 0),
        *((f"/small/t{n:02d}", "std_msgs/msg/UInt64", 10.0, 0) for n in range(40)),
    ]


def publish(seconds: float) -> dict[str, int]:
    """Publish the mix once every topic is matched; return topic -> messages published."""
    import rclpy
    from geometry_msgs.msg import TransformStamped
    from rclpy.qos import QoSProfile
    from rclpy.serialization import serialize_message

    rclpy.init()
    node = rclpy.create_node("robot_mix")
    publishers, payloads = [], []
    for topic, type_name, rate, size in streams():
        package, _, class_name = type_name.split("/")
        kind = getattr(importlib.import_module(f"{package}.msg"), class_name)
        message = kind()
        if size:
            message.data = bytes(size)
        elif topic == "/tf":
            message.transforms = [TransformStamped() for _ in range(3)]
        payloads.append(bytes(serialize_message(message)))
        # Two seconds of history: what a robot's own driver would keep for a reliable reader.
        publishers.append(node.create_publisher(kind, topic, QoSProfile(depth=int(2 * rate))))
    deadline = time.monotonic() + START_DEADLINE_S
    while not all(p.get_subscription_count() for p in publishers):
        if time.monotonic() > deadline:
            raise TimeoutError("not every topic was subscribed")
        time.sleep(0.02)
    rates = [rate for _, _, rate, _ in streams()]
    sent = [0] * len(publishers)
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        for index, rate in enumerate(rates):
            while sent[index] < int(elapsed * rate):
                publishers[index].publish(payloads[index])
                sent[index] += 1
        time.sleep(0.001)
    time.sleep(2.0)  # a publisher that goes takes what is not acknowledged with it
    rclpy.shutdown()
    return {topic: sent[index] for index, (topic, *_) in enumerate(streams())}


def captured(wal: Path) -> Counter[str]:
    """Count the records of every topic in the WAL."""
    counts: Counter[str] = Counter()
    reader = WalReader(str(wal), fs=OsFileSystem())
    try:
        while frames := reader.read(64, 64 << 20):
            for frame in frames:
                for ref in frame.topic_refs.tolist():
                    counts[frame.topics[ref].name] += 1
    finally:
        reader.close()
    return counts


def _asked_states(stop: threading.Event, seconds: list[float]) -> None:
    """Ask ``get_state`` of the capturing node again and again; keep how long each answer took."""
    import rclpy
    from lifecycle_msgs.srv import GetState

    rclpy.init()
    node = rclpy.create_node("robot_mix_asks")
    client = node.create_client(GetState, "/thadam/get_state")
    client.wait_for_service(START_DEADLINE_S)
    while not stop.wait(0.1):
        begin = time.monotonic()
        future = client.call_async(GetState.Request())
        rclpy.spin_until_future_complete(node, future, timeout_sec=10.0)
        seconds.append(time.monotonic() - begin if future.done() else float("inf"))
    rclpy.shutdown()


def _status(folder: Path) -> dict[str, Any]:
    path = folder / "data" / "status" / "source.robot.json"
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def _lost(folder: Path) -> dict[str, int]:
    """Return what capture counted as lost or refused per topic, from its last status."""
    losses = {}
    for name, text in _status(folder).get("details", {}).items():
        if name.startswith("/"):
            words = dict(part.split("=", 1) for part in text.split() if "=" in part)
            losses[name] = int(words.get("lost", 0)) + int(words.get("refused", 0))
    return losses


def run(seconds: float) -> dict[str, object]:
    """Run the mix; the ratio is captured messages over published ones (floor: all, or counted)."""
    with tempfile.TemporaryDirectory(prefix="thadam-mix-") as name:
        folder = Path(name)
        document = folder / "thadam.yaml"
        document.write_text(DOCUMENT.format(folder=folder), encoding="utf-8")
        import domain_coordinator

        with domain_coordinator.domain_id() as domain:
            return _run(folder, document, seconds, int(domain))


def _run(folder: Path, document: Path, seconds: float, domain: int) -> dict[str, object]:
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    os.environ.update(
        {k: environment[k] for k in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE")}
    )
    log = (folder / "edge.log").open("wb")
    edge = subprocess.Popen(
        [
            *(sys.executable, "-m", "thadam_ros.node.main", "--ros-args"),
            *("-p", "autostart:=true", "-p", f"config_file:={document}"),
        ],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    stop, answers = threading.Event(), []
    asker = threading.Thread(target=_asked_states, args=(stop, answers))
    try:
        asker.start()
        publisher = subprocess.run(
            [sys.executable, "-m", "bench.robot_mix", "--publish", "--seconds", str(seconds)],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            timeout=seconds + 2 * START_DEADLINE_S,
        )
        published = json.loads(publisher.stdout.splitlines()[-1])
    finally:
        stop.set()
        asker.join()
        edge.send_signal(signal.SIGINT)
        code = edge.wait(30.0)
        log.close()
    cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, lost = captured(folder / "data" / "wal"), _lost(folder)
    missing = {t: n - found[t] for t, n in published.items() if n != found[t]}
    uncounted = {t: n for t, n in missing.items() if n != lost.get(t, 0)}
    if code != 0:
        sys.stderr.write((folder / "edge.log").read_text(errors="replace")[-4000:])
    total = sum(published.values())
    return {
        "name": "robot mix, captured or counted as lost",
        "ratio": (total - sum(abs(n) for n in uncounted.values())) / total,
        "target": 1.0,
        "floor": 1.0,
        "details": {
            "seconds": seconds,
            "messages": total,
            "lost": missing,
            "lost_and_not_counted": uncounted,
            "exit_code": code,
            "children_cpu_s": cpu_s.ru_utime + cpu_s.ru_stime,
            "get_state_ms_median": statistics.median(answers) * 1e3,
            "get_state_ms_p99": sorted(answers)[int(len(answers) * 0.99)] * 1e3,
            "get_state_ms_max": max(answers) * 1e3,
        },
    }


def main() -> int:
    """Run the mix, or its publisher."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--publish", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.publish:
        print(json.dumps(publish(args.seconds)), flush=True)
        return 0
    found = run(args.seconds)
    print(json.dumps(found, indent=2))
    return 0 if found["ratio"] == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
