# SPDX-License-Identifier: Apache-2.0
"""Random SIGKILLs of the real process under load, held against the publisher's own ledger."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pyarrow.parquet as pq
import pytest

from thadam_ros.chain.cursor import read_cursor
from thadam_ros.node.demo.arrivals import read_wal
from thadam_ros.node.demo.children import Child, Children
from thadam_ros.node.demo.ledger import read_ledger
from thadam_ros.node.demo.losses import SLACK_NS, kill_losses, unexplained_losses
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.reader import WalReader

pytestmark = pytest.mark.ros

TOPICS = ("/n/a", "/n/b", "/n/c", "/n/d")
RATE_HZ = 2_000.0
INTERVAL_NS = 200_000_000
DEADLINE_S = 90.0
DOCUMENT = """
schema: 1
edge: {{data_dir: {root}/data, lock_file: {root}/datasets.lock}}
wal: {{budget: 4GiB, min_free: 64MiB, commit_interval: 200ms}}
sources:
  robot: {{type: ros2}}
datasets:
  numbers:
    match: {{source: robot, topics: ["/n/*"]}}
    type: std_msgs/msg/UInt64
    identity: {{channel: "{{topic.-1}}"}}
    fields: {{id: /data}}
sinks:
  lake: {{type: parquet, url: {root}/lake, rotation: {{max_age: 500ms}}}}
"""


class Edge:
    """The real process, killed and started again on one data folder."""

    def __init__(self, root: Path, children: Children) -> None:
        self._root = root
        self._children = children
        self.document = root / "thadam.yaml"
        self.document.write_text(DOCUMENT.format(root=root), encoding="utf-8")
        self.child: Child | None = None
        self.kills: list[int] = []

    def start(self) -> Child:
        """Start the process with every node brought up."""
        self.child = self._children.start(
            "edge",
            [
                *(sys.executable, "-m", "thadam_ros.node.main", "--ros-args"),
                *("-p", f"config_file:={self.document}", "-p", "autostart:=true"),
            ],
            os.environ,
            str(self._root / "edge.log"),
        )
        return self.child

    def kill(self) -> None:
        """SIGKILL, and note when."""
        assert self.child is not None
        assert self.child.returncode() is None, self.child.log_tail(40)
        self.child.kill()
        # After it is dead: frames that a late kill let through belong before it.
        self.kills.append(time.time_ns())


def wait_until(condition: Callable[[], bool], what: str, child: Child) -> None:
    """Poll until ``condition`` holds while ``child`` lives."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert child.returncode() is None, f"{child.name} ended: {child.log_tail(40)}"
        assert time.monotonic() < end, f"not in time: {what}; {child.log_tail(40)}"
        time.sleep(0.05)


def takes_messages(wal: str) -> Callable[[], bool]:
    """Return a condition: the log has grown since this call."""
    reader = WalReader(wal, fs=OsFileSystem())
    start = reader.durable
    return lambda: reader.durable > start


def passed(seconds: float) -> Callable[[], bool]:
    """Return a condition: so much time has passed since this call."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def is_drained(root: Path) -> bool:
    """Tell whether the cursor stands at the end of the log."""
    fs = OsFileSystem()
    reader = WalReader(str(root / "data" / "wal"), fs=fs)
    try:
        cursor = read_cursor(str(root / "data" / "chains" / "lake"), fs)
        return cursor is not None and cursor.position == reader.durable
    finally:
        reader.close()


def run_with_kills(root: Path, children: Children, kills: int, seed: int) -> list[int]:
    """Publish, kill at random moments, end in order; return the kills' wall clocks."""
    draw = random.Random(seed)
    ledger = root / "ledger.jsonl"
    publisher = children.start(
        "publisher",
        [
            *(sys.executable, str(Path(__file__).with_name("kill_publisher.py"))),
            *("--ledger", str(ledger), "--rate", str(RATE_HZ), "--topics", *TOPICS),
        ],
        os.environ,
        str(root / "publisher.log"),
    )
    edge = Edge(root, children)
    edge.start()
    wait_until(lambda: ledger.exists() and b'"start"' in ledger.read_bytes()[:4096],
               "matched subscriptions", publisher)  # fmt: skip
    wal = str(root / "data" / "wal")
    for number in range(kills):
        assert edge.child is not None
        wait_s = draw.uniform(0.2, 2.5)
        # Every fifth kill strikes while the process starts: recovery is a moment like any other.
        if number % 5 != 3:
            wait_until(takes_messages(wal), "messages in the log", edge.child)
        wait_until(passed(wait_s), "the moment of the kill", edge.child)
        edge.kill()
        edge.start()
    assert edge.child is not None
    wait_until(takes_messages(wal), "messages after the last kill", edge.child)
    publisher.signal_group(signal.SIGTERM)
    assert publisher.process.wait(DEADLINE_S) == 0, publisher.log_tail()
    quiet = [time.monotonic(), -1.0]

    def settled() -> bool:
        size = sum(f.stat().st_size for f in Path(wal).glob("*.wal"))
        if size != quiet[1]:
            quiet[:] = [time.monotonic(), size]
        return time.monotonic() - quiet[0] > 1.0 and is_drained(root)

    wait_until(settled, "drained chain", edge.child)
    edge.child.signal_group(signal.SIGINT)
    assert edge.child.process.wait(DEADLINE_S) == 0, edge.child.log_tail(40)
    return edge.kills


def rows_of(lake: Path) -> tuple[Counter[tuple[str, int]], int]:
    """Every row as (topic, id), read by pyarrow; files opened by duckdb and polars on the way."""
    rows: Counter[tuple[str, int]] = Counter()
    files = sorted(lake.glob("numbers/**/*.parquet"))
    for path in files:
        table = pq.ParquetFile(path).read(columns=["channel", "id"])
        channels = table.column("channel").to_pylist()
        rows.update((f"/n/{c}", i) for c, i in zip(channels, table["id"].to_pylist(), strict=True))
        by_duckdb = duckdb.sql(f"SELECT count(*), sum(id) FROM '{path}'").fetchall()[0]
        frame = polars.read_parquet(path, hive_partitioning=False)
        assert by_duckdb == (table.num_rows, sum(table["id"].to_pylist()))
        assert (frame.height, frame["id"].sum()) == by_duckdb
    return rows, len(files)


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 1), pytest.param(20, 2, marks=pytest.mark.long)], ids=["ci", "long"]
)
def test_every_durable_id_is_in_parquet_exactly_once_through_random_kills(
    tmp_path: Path, ros_domain: int, kills: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every id sent more than commit_interval + 500 ms before a kill arrives, and only once."""
    children = Children()
    try:
        killed = run_with_kills(tmp_path, children, kills, seed)
    finally:
        children.close(patience_s=5.0)
    ledger = read_ledger(str(tmp_path / "ledger.jsonl"))
    contents = read_wal(str(tmp_path / "data" / "wal"), ledger, OsFileSystem())
    rows, files = rows_of(tmp_path / "lake")
    losses = kill_losses(ledger, contents, killed)
    with capsys.disabled():
        print(f"\n{ledger.total()} messages, {len(killed)} kills, {files} files, losses:")
        for loss in losses:
            blind = "-" if loss.blind_ns is None else f"{loss.blind_ns / 1e9:.2f} s"
            print(
                f"  {loss.before:5d} not durable, window {loss.window_ns / 1e6:6.1f} ms;"
                f" {loss.after:6d} while nobody listened; taken again after {blind}"
            )
    assert ledger.end_ns > 0
    assert (dict(contents.unknown), dict(contents.altered)) == ({}, {})
    topics = [publisher.topic for publisher in ledger.publishers]
    expected = Counter((topics[a.publisher], a.number) for a in contents.arrived)
    assert set(expected.values()) == {1}
    assert rows == expected
    unexplained = unexplained_losses(ledger, contents, killed, INTERVAL_NS)
    assert unexplained == [], f"{len(unexplained)} lost outside {SLACK_NS + INTERVAL_NS} ns"
    assert len(rows) > 0.2 * ledger.total()
