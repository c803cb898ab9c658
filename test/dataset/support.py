# SPDX-License-Identifier: Apache-2.0
"""Messages, plans and groups that the dataset tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from thadam_ros.config.schema import DatasetConfig, LimitsConfig, MatchConfig, TransformConfig
from thadam_ros.dataset.lock import DatasetLock
from thadam_ros.dataset.pipeline import DatasetPipeline
from thadam_ros.dataset.plan import DatasetPlan, plan_dataset
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.errors import Problem
from thadam_ros.model.message import RecordGroup, TopicDeclaration
from thadam_ros.testing.groups import START_NS, make_group

STORE = get_typestore(Stores.ROS2_JAZZY)
LIMITS = LimitsConfig()
MATCH = MatchConfig("robot", ("topic",))

#: A message with every primitive, strings, arrays, sequences and structures.
KITCHEN = "test_kit/msg/Kitchen"
KITCHEN_TEXT = """\
builtin_interfaces/Time stamp
builtin_interfaces/Duration took
bool flag
byte raw_byte
uint8 u8
int8 i8
uint16 u16
int16 i16
uint32 u32
int32 i32
uint64 u64
int64 i64
float32 f32
float64 f64
string text
float64[3] triple
float32[] floats
uint8[] blob
uint64[] bigs
int32[] whole
string[] names
test_kit/Item[] items
test_kit/Item single
"""
ITEM_TEXT = """\
string name
float64 value
int32[] codes
builtin_interfaces/Time at
"""
_SEPARATOR = "=" * 80
_TIME_TEXT = "int32 sec\nuint32 nanosec\n"
DEFINITIONS = {
    KITCHEN: _SEPARATOR.join(
        [
            KITCHEN_TEXT,
            f"\nMSG: builtin_interfaces/Time\n{_TIME_TEXT}",
            f"\nMSG: builtin_interfaces/Duration\n{_TIME_TEXT}",
            f"\nMSG: test_kit/Item\n{ITEM_TEXT}",
        ]
    )
}
STORE.register(
    {
        **get_types_from_msg(KITCHEN_TEXT, KITCHEN),
        **get_types_from_msg(ITEM_TEXT, "test_kit/msg/Item"),
    }
)
CATALOG = TypeCatalog(prefixes=(), definitions=DEFINITIONS)


def time(ns: int) -> Any:
    """Return a Time message."""
    return STORE.types["builtin_interfaces/msg/Time"](*divmod(ns, 1_000_000_000))


def item(
    name: str = "a", value: float = 1.0, codes: Sequence[int] = (), at_ns: int = START_NS
) -> Any:
    """Return an Item message."""
    return STORE.types["test_kit/msg/Item"](name, value, np.array(codes, np.int32), time(at_ns))


def kitchen(**values: Any) -> Any:
    """Return a Kitchen message with defaults for what is not given."""
    duration = STORE.types["builtin_interfaces/msg/Duration"]
    defaults: dict[str, Any] = {
        "stamp": time(START_NS),
        "took": duration(1, 500),
        "flag": True,
        "raw_byte": -56,  # 200 on the wire: rosbags takes a byte for an int8
        "u8": 255,
        "i8": -128,
        "u16": 65_535,
        "i16": -32_768,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "u64": 5,
        "i64": -(2**63),
        "f32": 1.5,
        "f64": 2.25,
        "text": "grüße",
        "triple": np.array([1.0, 2.0, 3.0]),
        "floats": np.array([0.5], np.float32),
        "blob": np.array([0, 255], np.uint8),
        "bigs": np.array([1], np.uint64),
        "whole": np.array([7, -7], np.int32),
        "names": ["a", ""],
        "items": [item("a", 1.0), item("b", 2.0)],
        "single": item("s", 9.0, (1, 2)),
    }
    return STORE.types[KITCHEN](**{**defaults, **values})


def imu(ns: int, *, az: float = 9.8, ax: float = 0.1, frame_id: str = "imu") -> Any:
    """Return an Imu message stamped ``ns``."""
    types = STORE.types
    covariance = np.zeros(9)
    vector = types["geometry_msgs/msg/Vector3"]
    return types["sensor_msgs/msg/Imu"](
        types["std_msgs/msg/Header"](time(ns), frame_id),
        types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        covariance,
        vector(0.1, 0.2, 0.3),
        covariance,
        vector(ax, 0.2, az),
        covariance,
    )


def joints(names: Sequence[str], position: Sequence[float], velocity: Sequence[float] = ()) -> Any:
    """Return a JointState message."""
    types = STORE.types
    header = types["std_msgs/msg/Header"](time(START_NS), "")
    arrays = (np.array(values, np.float64) for values in (position, velocity, ()))
    return types["sensor_msgs/msg/JointState"](header, list(names), *arrays)


def cdr(message: Any, *, little_endian: bool = True) -> bytes:
    """Serialize a message."""
    return bytes(STORE.serialize_cdr(message, message.__msgtype__, little_endian=little_endian))


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as plain values; timestamps as integers in their column's unit."""
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.table(columns).to_pylist()


def topic(known: str, name: str = "/r1/topic", **changes: Any) -> TopicDeclaration:
    """Return the declaration of a topic of a known type, with ``changes`` to it."""
    values: dict[str, Any] = {
        "name": name,
        "namespace": "/r1",
        "type_name": known,
        "encoding": "cdr",
        "definition": CATALOG.definition(known) or "",
        "type_hash": "RIHS01_" + "0" * 64,
    }
    return TopicDeclaration(**{**values, **changes})


def dataset(type_name: str | None = "sensor_msgs/msg/Imu", **changes: Any) -> DatasetConfig:
    """Return a dataset declaration."""
    values: dict[str, Any] = {"name": "table", "match": MATCH, "type": type_name}
    return DatasetConfig(**{**values, **changes})


def plan_of(
    config: DatasetConfig,
    *,
    identity: Mapping[str, str] | None = None,
    transforms: Sequence[TransformConfig] = (),
    limits: LimitsConfig = LIMITS,
    lock: DatasetLock | None = None,
    row_hash: str = "rows",
) -> DatasetPlan:
    """Plan a dataset that has no mistakes."""
    plan, problems = plan_dataset(
        config, identity or {}, CATALOG, lock, limits, transforms, row_hash
    )
    assert not problems, "\n".join(map(str, problems))
    return plan


def problems_of(
    config: DatasetConfig,
    *,
    identity: Mapping[str, str] | None = None,
    transforms: Sequence[TransformConfig] = (),
    limits: LimitsConfig = LIMITS,
    lock: DatasetLock | None = None,
) -> list[Problem]:
    """Return the mistakes of a dataset."""
    return plan_dataset(config, identity or {}, CATALOG, lock, limits, transforms, "rows")[1]


def pipeline_of(config: DatasetConfig, **options: Any) -> DatasetPipeline:
    """Return a pipeline; ``timestamp_unit`` defaults to ns so that nothing is floored."""
    unit = options.pop("timestamp_unit", "ns")
    limits = options.get("limits", LIMITS)
    return DatasetPipeline(plan_of(config, **options), timestamp_unit=unit, limits=limits)


def group_of(messages: Sequence[Any], **options: Any) -> RecordGroup:
    """Return a group of messages of one type, or of raw bytes with ``type_name``."""
    type_name = options.pop("type_name", None) or messages[0].__msgtype__
    declarations = options.pop("declarations", None) or topic(type_name)
    payloads = [m if isinstance(m, bytes) else cdr(m) for m in messages]
    return make_group(declarations, payloads, **options)
