# SPDX-License-Identifier: Apache-2.0
"""A window that was exported and imported again gives the rows it gave before (spec 1.1, 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thadam_ros.config.schema import WalConfig
from thadam_ros.files.bag_reader import BagReader
from thadam_ros.files.wal_export import Window, export_window
from thadam_ros.files.wal_import import import_bag
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import load_text
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.bags import BagMessage, read_bag, shared_bags, write_wal
from thadam_ros.testing.edge_child import TYPE_NAME, encode

BAGS = [bag for bag in shared_bags() if bag.name == "mag_temp"]
#: Where a row was captured: another log, other frames. The key makes the id.
PLACE = {"_wal_epoch", "_wal_pos"}
DOCUMENT = """
schema: 1
edge: {{data_dir: $(env TEST_DIR)/data, clock: always_synced}}
sources: {{robot: {{type: ros2}}}}
sinks: {{lake: {{type: parquet, url: $(env TEST_DIR)/lake, timestamp_unit: ns}}}}
datasets:
  rows:
    match: {{source: robot, topics: [{topic}]}}
    type: {type_name}
    event_id: {{key: [{key}]}}
    all_fields: true
"""


def run(folder: Path, topic: str, type_name: str, key: str) -> list[dict[str, Any]]:
    """Push the log in ``folder`` through its chain; return the rows in the order of their ids."""
    text = DOCUMENT.format(topic=topic, type_name=type_name, key=key)
    edge = Edge(load_text(text, {"TEST_DIR": str(folder)}))
    edge.start()
    assert edge.close(60.0), edge.statistics()
    rows: list[dict[str, Any]] = []
    for path in (folder / "lake" / "rows").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
        rows += table.drop_columns(sorted(PLACE)).to_pylist()
    return sorted(rows, key=lambda row: (row["_event_id"], row["_ingest_time"]))


def both_ways(
    tmp_path: Path, messages: Sequence[BagMessage], topic: str, type_name: str, key: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a log, and those of its export's import."""
    fs = OsFileSystem()
    write_wal(str(tmp_path / "one" / "data" / "wal"), messages, records_per_frame=7)
    direct = run(tmp_path / "one", topic, type_name, key)
    window = export_window(
        str(tmp_path / "one" / "data" / "wal"), tmp_path / "bag", Window(), fs=fs
    )
    assert window.messages == len(messages)
    (tmp_path / "two").mkdir()
    import_bag(
        str(tmp_path / "two" / "data" / "wal"),
        BagReader(tmp_path / "bag"),
        source_id="robot",
        config=WalConfig(),
        fs=fs,
        clock_synced=True,
    )
    return direct, run(tmp_path / "two", topic, type_name, key)


def test_relative_topics_and_content_keys_give_the_same_rows(tmp_path: Path) -> None:
    """Repeated and backward times, a namespace: every column but the place is equal."""
    topic = TopicDeclaration(
        "/r1/numbers", namespace="/r1", type_name=TYPE_NAME, definition="uint64 data"
    )
    start = 1_700_000_000_000_000_000
    messages = [BagMessage(topic, start + (n * 37) % 11, encode(n)) for n in range(100)]
    direct, again = both_ways(tmp_path, messages, "numbers", TYPE_NAME, "/data")
    assert [row["data"] for row in sorted(direct, key=lambda row: row["data"])] == list(range(100))
    assert again == direct


@pytest.mark.skipif(not BAGS, reason="the shared bags are not at hand (THADAM_SHARED_DATA)")
def test_a_real_bag_gives_the_same_rows(tmp_path: Path) -> None:
    """Magnetic fields of a device, by their stamps."""
    messages = list(read_bag(BAGS[0]))
    names = {
        m.declaration.name
        for m in messages
        if m.declaration.type_name == "sensor_msgs/msg/MagneticField"
    }
    direct, again = both_ways(
        tmp_path,
        messages,
        ", ".join(sorted(names)),
        "sensor_msgs/msg/MagneticField",
        "/header/stamp/sec, /header/stamp/nanosec",
    )
    assert len(direct) == sum(m.declaration.name in names for m in messages) > 0
    assert again == direct
