# SPDX-License-Identifier: Apache-2.0
"""Every value of every real bag arrives in Parquet as an independent decode sees it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rosbags.highlevel import AnyReader
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from thadam_ros.quarantine.reader import read_staging
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import load_text
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.bags import read_bag, ros2_type_name, shared_bags, write_wal

BAGS = shared_bags()
BYTES = ("uint8", "byte", "octet", "char")
INT64_MAX = 2**63 - 1
TIME = "builtin_interfaces/msg/Time"
#: What the generators put into an empty message, since C has no empty structures; no data.
FILLER = "structure_needs_at_least_one_member"
DURATION = "builtin_interfaces/msg/Duration"


class Stored(dict[str, str]):
    """A type catalog of the definitions that a bag stores."""

    def definition(self, type_name: str) -> str | None:
        return self.get(type_name)


def _name(type_name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", type_name.lower())


def _document(types: dict[str, set[str]]) -> str:
    lines = [
        "schema: 1",
        "edge: {data_dir: $(env TEST_DIR)/data, clock: always_synced}",
        "sources: {robot: {type: ros2}}",
        "sinks: {lake: {type: parquet, url: $(env TEST_DIR)/lake, timestamp_unit: ns}}",
        "datasets:",
    ]
    for type_name, topics in sorted(types.items()):
        lines += [
            f"  {_name(type_name)}:",
            f"    match: {{source: robot, topics: {sorted(topics)}}}",
            f"    type: {type_name}",
            "    all_fields: true",
        ]
    return "\n".join(lines)


def _flatten(store: Any, type_name: str, message: Any, prefix: str, out: dict[str, Any]) -> None:
    """Collect what all_fields promises, straight from rosbags' own message objects."""
    for name, (node, kind) in store.get_msgdef(type_name).fields:
        if name == FILLER:
            continue
        value, column = getattr(message, name), f"{prefix}{name}"
        if node is Nodetype.NAME and kind in (TIME, DURATION):
            out[column] = value.sec * 10**9 + value.nanosec
        elif node is Nodetype.NAME:
            _flatten(store, kind, value, f"{column}_", out)
        elif node is Nodetype.BASE:
            # rosbags reads byte and char as signed; ROS 2 defines both as 0..255 (spec 3.2).
            out[column] = value & 0xFF if kind[0] in BYTES else value
        else:
            (inner, element), _ = kind
            if inner is Nodetype.BASE:
                listed = value.tolist() if isinstance(value, np.ndarray) else list(value)
                is_bytes = element[0] in BYTES
                out[column] = bytes(v & 0xFF for v in listed) if is_bytes else listed


def _too_large(value: Any) -> bool:
    """Tell whether no signed column holds the value (spec 3.2): the message is a reject."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(v, int) and v > INT64_MAX for v in values)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


@pytest.mark.skipif(not BAGS, reason="the shared bags are not at hand (THADAM_SHARED_DATA)")
@pytest.mark.parametrize("bag", BAGS, ids=lambda path: path.stem if path.is_file() else path.name)
def test_every_value_of_a_real_bag_equals_an_independent_decode(bag: Path, tmp_path: Path) -> None:
    """all_fields over every type of the bag, row by row against rosbags."""
    messages = list(read_bag(bag))
    types: dict[str, set[str]] = {}
    for message in messages:
        types.setdefault(message.declaration.type_name, set()).add(message.declaration.name)
    expected: dict[str, list[dict[str, Any]]] = {}
    rejected = 0
    store = get_typestore(Stores.EMPTY)
    for message in messages:
        name = message.declaration.type_name
        if name not in store.types:
            found_types = get_types_from_msg(message.declaration.definition, name)
            store.register({n: d for n, d in found_types.items() if n not in store.types})
    with AnyReader([bag], default_typestore=get_typestore(Stores.LATEST)) as reader:
        for connection, time_ns, raw in reader.messages():
            row: dict[str, Any] = {"_ingest_time": time_ns}
            decoded = store.deserialize_cdr(raw, ros2_type_name(connection.msgtype))
            type_name = ros2_type_name(connection.msgtype)
            _flatten(store, type_name, decoded, "", row)
            if any(map(_too_large, row.values())):
                rejected += 1
            else:
                expected.setdefault(type_name, []).append(row)
    definitions = {m.declaration.type_name: m.declaration.definition for m in messages}
    write_wal(str(tmp_path / "data" / "wal"), messages)
    loaded = load_text(_document(types), {"TEST_DIR": str(tmp_path)}, catalog=Stored(definitions))
    edge = Edge(loaded)
    edge.start()
    assert edge.close(drain_timeout_s=120.0), edge.statistics()

    staged = list(read_staging(str(tmp_path / "data/chains/lake/staging"), OsFileSystem()))
    assert [reject.error_code for reject in staged] == ["schema.integer_range"] * rejected

    compared = 0
    for type_name, rows in expected.items():
        found: list[dict[str, Any]] = []
        for path in (tmp_path / "lake" / _name(type_name)).rglob("*.parquet"):
            found.extend(_rows(path))
        found.sort(key=lambda row: (row["_wal_pos"], row["_event_id"]))
        assert len(found) == len(rows), type_name
        by_time = {}
        for row in found:
            by_time.setdefault(row["_ingest_time"], []).append(row)
        for row in rows:
            candidates = by_time[row["_ingest_time"]]
            assert any(_row_matches(row, candidate) for candidate in candidates), (
                type_name,
                row,
                candidates[0],
            )
            compared += len(row)
    assert compared >= len(messages) - rejected


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read rows with timestamps as integers of nanoseconds."""
    import pyarrow as pa

    table = pq.read_table(path, partitioning=None)
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    return table.to_pylist()


def _row_matches(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    return all(name in found and _same(value, found[name]) for name, value in expected.items())
