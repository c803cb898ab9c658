# SPDX-License-Identifier: Apache-2.0
"""Promises of the whole core: nothing durable is lost, readers see each row exactly once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from thadam_ros.model.message import TopicDeclaration
from thadam_ros.model.states import State
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import LoadedConfig, load_text
from thadam_ros.testing.bags import BagMessage, write_wal
from thadam_ros.testing.edge_child import TYPE_NAME, encode

DEADLINE_S = 60.0
DOCUMENT = """
schema: 1
edge: {data_dir: $(env TEST_DIR)/data, clock: always_synced}
wal: {commit_interval: 5ms, min_free: 0B}
sources: {robot: {type: ros2}}
datasets:
  numbers:
    match: {source: robot, topics: [/numbers]}
    type: std_msgs/msg/UInt64
    fields: {data: /data}
sinks:
  lake: {type: parquet, url: $(env TEST_DIR)/lake, rotation: {max_age: 30ms}}
  other: {type: parquet, url: $(env TEST_DIR)/other, rotation: {max_age: 50ms, max_rows: 70}}
"""


def _load(folder: Path) -> LoadedConfig:
    return load_text(DOCUMENT, {"TEST_DIR": str(folder)})


def _numbers(lake: Path) -> list[int]:
    """Return every number that readers see."""
    found: list[int] = []
    for path in lake.rglob("*.parquet"):
        found.extend(pq.ParquetFile(path).read(["data"]).column("data").to_pylist())
    return sorted(found)


def _write(folder: Path, numbers: range) -> None:
    topic = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition="uint64 data")
    messages = [BagMessage(topic, 1_700_000_000_000_000_000 + n, encode(n)) for n in numbers]
    write_wal(str(folder / "data" / "wal"), messages, records_per_frame=10)


def _wait(condition: Callable[[], bool], edge: Edge) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, edge.statistics()
        threading.Event().wait(0.005)


def test_everything_durable_reaches_every_sink_once(tmp_path: Path) -> None:
    """Two chains deliver the same WAL independently; a second run adds nothing."""
    _write(tmp_path, range(1000))
    for _ in range(2):
        edge = Edge(_load(tmp_path))
        edge.start()
        assert edge.close(DEADLINE_S)
    assert _numbers(tmp_path / "lake") == list(range(1000))
    assert _numbers(tmp_path / "other") == list(range(1000))


def test_a_sink_that_cannot_deliver_is_degraded_and_blocks_nobody(tmp_path: Path) -> None:
    """While one folder is gone the other chain delivers; when it is back nothing is missing."""
    _write(tmp_path, range(10))
    with Edge(_load(tmp_path)):
        pass
    (tmp_path / "other").rename(tmp_path / "away")
    (tmp_path / "other").write_text("not a folder")
    _write(tmp_path, range(10, 300))
    with Edge(_load(tmp_path)) as edge:

        def state() -> State:
            return edge.runners["other"].statistics()[0].state.state

        _wait(lambda: _numbers(tmp_path / "lake") == list(range(300)), edge)
        _wait(lambda: state() is State.DEGRADED, edge)
        chain = edge.runners["other"].statistics()[0]
        assert chain.state.reason_code == "sink_unreachable"
        assert "other" in chain.state.reason
        assert edge.runners["lake"].statistics()[0].state.state is State.RUNNING
        (tmp_path / "other").unlink()
        (tmp_path / "away").rename(tmp_path / "other")
        _wait(lambda: _numbers(tmp_path / "other") == list(range(300)), edge)
        _wait(lambda: state() is State.RUNNING, edge)


@pytest.mark.parametrize("cursor", [b"", b"garbage", None], ids=["empty", "garbage", "no folder"])
def test_capture_starts_whatever_the_cursor_of_some_chain_looks_like(
    tmp_path: Path, cursor: bytes | None
) -> None:
    """Capture never waits for a sink: a damaged cursor stops its own chain alone."""
    _write(tmp_path, range(10))
    chains = tmp_path / "data" / "chains"
    chains.mkdir()
    if cursor is None:
        (chains / "notes.txt").write_text("a file, no chain")
    else:
        (chains / "removed").mkdir()
        (chains / "removed" / "cursor").write_bytes(cursor)
    edge = Edge(_load(tmp_path))
    edge.start()
    assert edge.close(DEADLINE_S)
    assert _numbers(tmp_path / "lake") == list(range(10))


def test_an_edge_that_is_already_running_is_named(tmp_path: Path) -> None:
    """The second process gets one sentence and touches nothing."""
    with Edge(_load(tmp_path)), pytest.raises(Exception, match=str(os.getpid())):
        Edge(_load(tmp_path)).start()


def test_kill_9_at_random_moments_loses_and_repeats_nothing_that_readers_see(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Numbers announced as durable are in Parquet exactly once, in both sinks, after any kills."""
    seed = random.SystemRandom().randrange(1 << 30)
    rng = random.Random(seed)
    print(f"seed {seed}")
    document = tmp_path / "thadam.yaml"
    document.write_text(DOCUMENT)
    environment = {**os.environ, "TEST_DIR": str(tmp_path)}
    durable: list[tuple[int, int]] = []
    first = 0
    rounds = 30 if request.config.getoption("--long", default=False) else 6
    for _ in range(rounds):
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "thadam_ros.testing.edge_child",
                str(document),
                "--first",
                str(first),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        announced = first
        stop_after = rng.randrange(1, 40)
        for _, line in zip(range(stop_after), child.stdout, strict=False):
            announced = int(line)
        child.kill()
        rest = child.stdout.read().split("\n")
        announced = max([announced, *(int(text) for text in rest[:-1] if text)])
        child.wait()
        child.stdin.close()
        child.stdout.close()
        durable.append((first, announced))
        first = announced + 1_000_000
    edge = Edge(_load(tmp_path))
    edge.start()
    assert edge.close(DEADLINE_S)
    for sink in ("lake", "other"):
        found = _numbers(tmp_path / sink)
        assert len(found) == len(set(found)), "a row is visible twice"
        present = set(found)
        for begin, end in durable:
            missing = [n for n in range(begin, end) if n not in present]
            assert not missing, (sink, begin, end, missing[:5])
