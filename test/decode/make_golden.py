# SPDX-License-Identifier: Apache-2.0
"""Writes golden_rclpy.json: payloads serialized by rclpy beside the values they were made from.

Run by hand where rclpy and the test messages are installed: ``python make_golden.py``. The file
is committed, so that the golden test needs no ROS.
"""

from __future__ import annotations

import array
import importlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from thadam_ros.decode.catalog import TypeCatalog, ament_prefixes

GOLDEN = Path(__file__).with_name("golden_rclpy.json")
TYPES = (
    *(f"test_msgs/msg/{name}" for name in ("BasicTypes", "Arrays", "MultiNested", "Empty")),
    *(f"test_msgs/msg/{name}" for name in ("BoundedSequences", "UnboundedSequences")),
    *(f"test_msgs/msg/{name}" for name in ("Strings", "WStrings", "Builtins", "Constants")),
    *("sensor_msgs/msg/Imu", "sensor_msgs/msg/JointState", "nav_msgs/msg/Odometry"),
    *("diagnostic_msgs/msg/DiagnosticArray", "sensor_msgs/msg/PointCloud2"),
    *("trajectory_msgs/msg/JointTrajectory", "std_msgs/msg/Float64MultiArray"),
)


def random_text(rng: random.Random, bound: int) -> str:
    """Text of at most ``bound`` UTF-8 bytes, with letters beyond ASCII and beyond the BMP."""
    text = "".join(rng.choice("abcé€😀") for _ in range(rng.randint(0, 6)))
    while len(text.encode()) > bound:
        text = text[:-1]
    return text


def random_scalar(kind: str, rng: random.Random) -> Any:
    """A value for a type as rosidl spells it in Python."""
    base, _, bound = kind.partition("<")
    if base in ("string", "wstring"):
        return random_text(rng, int(bound.rstrip(">")) if bound else 40)
    if base == "boolean":
        return rng.random() < 0.5
    if base == "octet":
        return bytes([rng.randrange(256)])
    if base in ("float", "double"):
        return rng.randint(-1000, 1000) / 8
    if base in ("int8", "int16", "int32", "int64"):
        bits = int(base[3:])
        return rng.choice([-(1 << (bits - 1)), (1 << (bits - 1)) - 1, rng.randint(-99, 99)])
    bits = int(base[4:])
    return rng.choice([0, (1 << bits) - 1, rng.randint(0, 99)])


def random_message(kind: str, rng: random.Random) -> Any:
    """A message object with random values."""
    package, name = kind.replace("/msg/", "/").split("/")
    message = getattr(importlib.import_module(f"{package}.msg"), name)()
    for field, field_kind in message.get_fields_and_field_types().items():
        setattr(message, field, random_field(field_kind, rng))
    return message


def random_field(kind: str, rng: random.Random) -> Any:
    """A value for a field, lists included."""
    if kind.startswith("sequence<"):
        inner, _, bound = kind[len("sequence<") : -1].rpartition(", ")
        count = rng.randint(0, min(int(bound), 4) if inner else 4)
        return [random_field(inner or bound, rng) for _ in range(count)]
    if kind.endswith("]"):
        inner, _, count_text = kind[:-1].rpartition("[")
        return [random_field(inner, rng) for _ in range(int(count_text))]
    return random_message(kind, rng) if "/" in kind else random_scalar(kind, rng)


def plain(value: Any) -> Any:
    """A message object as JSON values; bytes as lists of numbers."""
    if hasattr(value, "get_fields_and_field_types"):
        fields = value.get_fields_and_field_types()
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, bytes):
        return value[0]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | array.array):
        return [plain(item) for item in value]
    return value


def generated_hash(package: str, name: str) -> str:
    """The RIHS01 hash that rosidl wrote beside the installed definition."""
    for prefix in ament_prefixes():
        path = Path(prefix, "share", package, "msg", f"{name}.json")
        if path.exists():
            hashes = json.loads(path.read_text(encoding="utf-8"))["type_hashes"]
            return str(hashes[0]["hash_string"])
    return ""


def cases(seed: int) -> list[dict[str, Any]]:
    """Two messages of each type: default values and random ones."""
    from rclpy.serialization import serialize_message

    rng = random.Random(seed)
    catalog = TypeCatalog()
    found = []
    for kind in TYPES:
        package, name = kind.replace("/msg/", "/").split("/")
        default = getattr(importlib.import_module(f"{package}.msg"), name)()
        messages = [default, random_message(kind, rng)]
        found.append(
            {
                "type": kind,
                "type_hash": generated_hash(package, name),
                "definition": catalog.definition(kind),
                "payloads": [serialize_message(message).hex() for message in messages],
                "values": [plain(message) for message in messages],
            }
        )
    return found


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases(7))
    GOLDEN.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
