# SPDX-License-Identifier: Apache-2.0
"""The robot's own messages through real chains, without a graph: exactly the plan's figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.node.demo.balance import stamped_counts
from thadam_ros.node.demo.expectations import RULES, RobotPlan, figures_without_loss, make_plan
from thadam_ros.node.demo.messages import make_payload
from thadam_ros.node.demo.stage import NAMESPACE
from thadam_ros.node.demo.tables import read_tables
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import load_path
from thadam_ros.storage.filesystem import OsFileSystem

#: An ingest time of the tests, ns since the epoch.
START_NS = 1_700_000_000 * 1_000_000_000
BATCH = 500


def resolve(topic: str) -> str:
    """The name a robot in the demo's namespace gives a topic."""
    return topic if topic.startswith("/") else f"{NAMESPACE}/{topic}"


def batches(plan: RobotPlan, edge: Edge) -> Iterator[SourceBatch]:
    """Every message when it is due, as capture would hand it over."""
    assert edge.wal is not None
    catalog = TypeCatalog()
    refs = [
        edge.wal.declare_topic(
            TopicDeclaration(
                resolve(stream.topic),
                namespace=NAMESPACE,
                type_name=stream.type_name,
                definition=catalog.definition(stream.type_name) or "",
            )
        )
        for stream in plan.streams
    ]
    due = sorted(
        (stream.due_s(number), index, number)
        for index, stream in enumerate(plan.streams)
        for number in range(1, stream.count + 1)
        if stream.key != "cloud" or number <= 10
    )
    batch = SourceBatch("robot")
    for due_s, index, number in due:
        stream = plan.streams[index]
        planned_ns = stream.planned_stamp_ns(number)
        is_zero = "stamp_zero" in stream.kinds(number)
        stamp_ns = 0 if is_zero else START_NS + planned_ns
        batch.topic_refs.append(refs[index])
        batch.ingest_times_ns.append(START_NS + int(due_s * 1e9))
        batch.payloads.append(make_payload(stream, number, stamp_ns, plan.seed))
        batch.source_timestamps_ns.append(0)
        batch.sequences.append(number + 1)
        batch.publisher_refs.append(edge.wal.declare_publisher(bytes([index + 1]) * 16))
        if len(batch) >= BATCH:
            yield batch
            batch = SourceBatch("robot")
    yield batch


@pytest.mark.parametrize("seed", [1, 7])
def test_every_figure_of_the_plan_comes_out_of_the_chain(tmp_path: Path, seed: int) -> None:
    """Outcomes, rows, flags and rejects, from the shipped configuration."""
    checkout = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "THADAM_DEMO_DIR": str(tmp_path)}
    plan = make_plan(12, seed)
    with Edge(load_path(checkout / "config" / "demo.yaml", environment)) as edge:
        assert edge.wal is not None
        for batch in batches(plan, edge):
            assert edge.wal.append(batch)
            assert edge.wal.flush(10.0)
    expected = figures_without_loss(plan, tuple(RULES))
    clouds = 10
    expected.rows["cloud"] = clouds
    expected.messages["points"] = expected.messages["points"].__class__(delivered=clouds)
    _, counts = stamped_counts(str(tmp_path / "data" / "chains" / "lake"), OsFileSystem())
    messages = {resolve(topic): outcomes for topic, outcomes in expected.messages.items()}
    assert counts.messages == messages
    assert counts.rows == expected.rows
    assert counts.flagged == expected.flagged
    assert counts.rejects == expected.rejects
    assert read_tables(tmp_path / "lake").rows == expected.rows
