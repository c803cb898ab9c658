# SPDX-License-Identifier: Apache-2.0
"""The real process against spec 7.1: lifecycle table, command line, signals, exit codes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")
pytest.importorskip("thadam_ros.msg", reason="needs the built workspace")

from lifecycle_msgs.msg import Transition
from rclpy.node import Node
from sensor_msgs.msg import Imu
from std_srvs.srv import SetBool, Trigger

from thadam_ros.storage.lock import DirectoryLock

from .edge_process import DOCUMENT, EdgeProcess, StatusListener, write_document
from .support import LifecycleClient, wait_until

Start = Callable[..., EdgeProcess]


@pytest.fixture
def start(domain_id: int, tmp_path: Path) -> Iterator[Start]:
    """Start processes; none outlives the test."""
    running: list[EdgeProcess] = []

    def begin(*ros: str, **options: Any) -> EdgeProcess:
        running.append(EdgeProcess(domain_id, *ros, **options))
        return running[-1]

    yield begin
    for process in running:
        process.close()


def config(folder: Path, document: str = DOCUMENT) -> tuple[str, str]:
    return "-p", f'config_file:="{write_document(folder, document)}"'


def lifecycle(node: Node, name: str) -> LifecycleClient:
    client = LifecycleClient(node, name)
    client.wait()
    return client


def wait_active(*clients: LifecycleClient) -> None:
    for client in clients:
        wait_until(lambda client=client: client.state() == "active", "active")


def call(node: Node, kind: Any, name: str, request: Any) -> Any:
    client = node.create_client(kind, name)
    assert client.wait_for_service(30.0)
    future = client.call_async(request)
    wait_until(future.done, name)
    return future.result()


def imu_publisher(node: Node, topic: str = "/imu/data") -> Any:
    made = node.create_publisher(Imu, topic, 1000)
    wait_until(made.get_subscription_count, f"{topic} is captured")
    return made


def publish_imu(publisher: Any, count: int) -> None:
    for number in range(count):
        message = Imu()
        now = time.time_ns()
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(now, 1_000_000_000)
        message.linear_acceleration.x = float(number)
        publisher.publish(message)


def rows_in(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def test_autostart_brings_everything_up_and_rows_arrive(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """One process from configuration to Parquet; a clean stop ends with 0 and leaves no backlog."""
    status = StatusListener(client_node)
    process = start(*config(tmp_path))
    wait_active(*(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake", "_mirror")))
    publish_imu(imu_publisher(client_node), 500)
    wait_until(lambda: rows_in(tmp_path / "lake") == 500, "500 rows in the lake")
    wait_until(lambda: rows_in(tmp_path / "mirror") == 500, "500 rows in the mirror")
    source = wait_until(
        lambda: (c := status.component("source.robot")) and c.received == 500 and c, "a count"
    )
    assert source.lost == source.refused == 0
    last = status.last
    assert last.ready
    assert (last.edge, len(last.config_hash)) == ("r1/s1", 64)
    assert last.clock_synced
    assert last.wal_epoch > 0
    assert last.wal_durable_position >= 0
    assert 0 < last.wal_bytes < last.wal_budget_bytes
    assert [c.name for c in last.components] == [
        "wal", "chain.lake", "chain.mirror", "quarantine.lake", "quarantine.mirror", "source.robot",
    ]  # fmt: skip
    wait_until(lambda: "thadam: chain.lake" in status.diagnostics, "diagnostics")
    diagnostic = status.diagnostics["thadam: source.robot"]
    assert diagnostic.level == b"\x00"
    assert diagnostic.hardware_id == "r1"
    assert {v.key for v in diagnostic.values} >= {"received", "lost", "/imu/data"}
    assert call(client_node, Trigger, "/thadam/ready", Trigger.Request()).success
    assert process.stop() == 0, process.output
    assert (tmp_path / "data" / "status" / "chain.lake.json").exists()


def test_launch_s_command_line_names_only_thadam(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Namespace, topic remaps and parameter file reach every node, ``__node`` only one."""
    parameters = tmp_path / "params.yaml"
    parameters.write_text(
        f"/**:\n  ros__parameters:\n    config_file: {write_document(tmp_path)}\n"
        "    sinks: {lake: {file_prefix: from_file}}\n"
        "    qos_overrides: {/sensors/imu: {subscription: {depth: 77}}}\n"
    )
    status = StatusListener(client_node, "/r1/collector")
    process = start(
        "--log-level", "info", "-r", "__ns:=/r1", "-r", "__node:=collector",
        "-r", "imu/data:=/sensors/imu", "--params-file", str(parameters),
        "-p", f'edge.data_dir:="{tmp_path / "elsewhere"}"',
    )  # fmt: skip
    wait_active(
        lifecycle(client_node, "/r1/collector"),
        lifecycle(client_node, "/r1/thadam_lake"),
        lifecycle(client_node, "/r1/thadam_mirror"),
    )
    publish_imu(imu_publisher(client_node, "/sensors/imu"), 20)
    wait_until(lambda: rows_in(tmp_path / "mirror") == 20, "rows")
    wait_until(lambda: rows_in(tmp_path / "lake") == 20, "rows")
    assert list((tmp_path / "lake").rglob("from_file-*.parquet"))
    line = wait_until(lambda: status.detail("source.robot", "/sensors/imu"), "the topic's line")
    assert line.endswith("depth=77")
    assert status.component("source.robot").node == "/r1/collector"
    assert (tmp_path / "elsewhere" / "wal").is_dir()
    assert not (tmp_path / "data").exists()
    assert process.stop(signal.SIGTERM) == 0, process.output


def test_a_wrong_configuration_is_refused_and_every_mistake_named(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """configure fails, the process lives, log and diagnostics name all problems; a fix works."""
    wrong = DOCUMENT.replace("all_fields", "all_feilds").replace("max_age: 300ms", "max_age: 300")
    status = StatusListener(client_node)
    process = start(*config(tmp_path, wrong), "-p", "autostart:=false")
    thadam = lifecycle(client_node, "/thadam")
    assert not thadam.configure()
    assert thadam.state() == "unconfigured"
    wal = status.wait_for("wal", "config")
    problems = [d.value for d in wal.details if d.key.startswith("problem.")]
    assert len(problems) >= 3
    for part in ("all_feilds", "all_fields", "sinks.lake.rotation.max_age"):
        assert any(part in problem for problem in problems)
        assert part in process.output
    assert not status.last.ready
    write_document(tmp_path)
    assert thadam.configure()
    assert thadam.activate()
    assert thadam.state() == "active"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("-p", "metrics_port:=9000"), "metrics_port"),
        (("-p", "drain_timeout:=3"), "drain_timeout"),
        (("-p", "wal.budgett:=1GiB"), "wal.budgett"),
        (("-p", "wal.budget:=20"), "wal.budget"),
        (
            ("-p", "qos_overrides./imu/data.subscription.reliability:=best"),
            "qos_overrides./imu/data",
        ),
        (("-p", "log_level:=loud"), "log_level"),
    ],
)
def test_a_wrong_parameter_is_named(
    start: Start, client_node: Node, tmp_path: Path, arguments: tuple[str, str], path: str
) -> None:
    """Parameters of the process, of the configuration and of ROS alike."""
    process = start(*config(tmp_path), *arguments, "-p", "autostart:=false")
    thadam = lifecycle(client_node, "/thadam")
    assert not thadam.configure()
    wait_until(lambda: path in process.output, "the parameter's name")
    assert thadam.state() == "unconfigured"
    assert process.stop() == 0, process.output


def test_a_corrected_document_is_taken_up_without_a_hand(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """The supervisor configures again when the document changed."""
    start(*config(tmp_path, DOCUMENT.replace("all_fields: true", "all_fields: maybe")))
    thadam = lifecycle(client_node, "/thadam")
    status = StatusListener(client_node)
    status.wait_for("wal", "config")
    assert thadam.state() == "unconfigured"
    write_document(tmp_path)
    wait_active(thadam, *(lifecycle(client_node, f"/thadam_{s}") for s in ("lake", "mirror")))


def test_a_changed_set_of_sinks_is_refused_with_that_sentence(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Every sink has a node from process start; another set needs another process."""
    process = start(*config(tmp_path), "-p", "autostart:=false")
    thadam, lake = lifecycle(client_node, "/thadam"), lifecycle(client_node, "/thadam_lake")
    write_document(tmp_path, DOCUMENT.replace("  mirror:", "  other:"))
    assert not thadam.configure()
    assert not lake.configure()
    wait_until(lambda: "the set of sinks changed" in process.output, "the sentence")


def test_a_locked_data_dir_keeps_the_node_unconfigured_and_names_the_holder(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Chains that are not locked come up; the locked one is taken up once the lock is free."""
    lock = DirectoryLock(str(tmp_path / "data" / "wal"), "another writer")
    status = StatusListener(client_node)
    start(*config(tmp_path))
    thadam, lake = lifecycle(client_node, "/thadam"), lifecycle(client_node, "/thadam_lake")
    state = status.wait_for("wal", "lock_held")
    assert thadam.state() == "unconfigured"
    assert "another writer" in state.reason
    wait_active(lake)
    lock.release()
    wait_active(thadam)


def test_an_unreachable_sink_is_degraded_and_stops_nothing(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """configure and activate succeed; the other chain delivers; deactivate answers SUCCESS."""
    (tmp_path / "mirror").write_text("a file where the sink wants a folder")
    status = StatusListener(client_node)
    process = start(*config(tmp_path), "-p", "drain_timeout:=1s")
    mirror = lifecycle(client_node, "/thadam_mirror")
    wait_active(mirror, lifecycle(client_node, "/thadam_lake"), lifecycle(client_node, "/thadam"))
    publish_imu(imu_publisher(client_node), 50)
    wait_until(lambda: rows_in(tmp_path / "lake") == 50, "rows in the good sink")
    wait_until(
        lambda: (c := status.component("chain.mirror")) and c.state in (c.STATE_DEGRADED,),
        "degraded",
    )
    assert "thadam: chain.mirror" in status.diagnostics
    assert mirror.deactivate()
    assert mirror.state() == "inactive"
    (tmp_path / "mirror").unlink()
    assert mirror.activate()
    wait_until(lambda: rows_in(tmp_path / "mirror") == 50, "the backlog after the repair")
    assert process.stop() == 0, process.output


def test_a_sink_that_fails_while_active_goes_to_unconfigured_alone(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Its cause is kept and shown; thadam and the other chain stay active and deliver."""
    (tmp_path / "mirror").write_text("a file where the sink wants a folder")
    status = StatusListener(client_node)
    start(*config(tmp_path))
    thadam, lake, mirror = (lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake", "_mirror"))
    wait_active(thadam, lake, mirror)
    publisher = imu_publisher(client_node)
    publish_imu(publisher, 50)
    sealed = tmp_path / "data" / "chains" / "mirror" / "sealed"
    files = wait_until(lambda: list(sealed.rglob("*.parquet")), "undelivered files")
    # Somebody removes what was promised to the store: no retry can bring it back.
    for path in files:
        path.unlink()
    (tmp_path / "mirror").unlink()
    wait_until(lambda: mirror.state() == "unconfigured", "unconfigured")
    failed = wait_until(
        lambda: (
            (c := status.component("chain.mirror"))
            and c.state == c.STATE_FAILED
            and c.next_retry.sec
            and c
        ),
        "Failed, with the time of the next try",
    )
    assert "removed by somebody" in failed.cause
    assert not status.last.ready
    assert "chain.mirror" in status.last.reason
    assert (thadam.state(), lake.state()) == ("active", "active")
    publish_imu(publisher, 50)
    wait_until(lambda: rows_in(tmp_path / "lake") == 100, "rows of the other chain")


def test_get_state_answers_while_a_chain_drains(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Every call during a drain that lasts is answered; the latencies are printed."""
    (tmp_path / "mirror").write_text("a file where the sink wants a folder")
    process = start(*config(tmp_path))
    mirror = lifecycle(client_node, "/thadam_mirror")
    wait_active(mirror, *(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake")))
    publish_imu(imu_publisher(client_node), 200)
    wait_until(lambda: rows_in(tmp_path / "lake") == 200, "rows in the good sink")
    answer = mirror.change_async(Transition.TRANSITION_DEACTIVATE)
    wait_until(lambda: mirror.state() == "deactivating", "the drain")
    latencies = []
    while not answer.done():
        begun = time.perf_counter()
        mirror.state()
        latencies.append(time.perf_counter() - begun)
    assert answer.result().success
    assert mirror.state() == "inactive"
    latencies.sort()
    middle, high = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"get_state during a drain: {len(latencies)} calls, "
          f"median {middle * 1e3:.1f} ms, p99 {high * 1e3:.1f} ms")  # fmt: skip
    assert process.stop() == 0, process.output


def test_a_pause_refuses_and_counts(start: Start, client_node: Node, tmp_path: Path) -> None:
    """~/pause and ~/capturing agree, and nothing of a pause is delivered."""
    status = StatusListener(client_node)
    start(*config(tmp_path))
    wait_active(*(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake")))
    publisher = imu_publisher(client_node)
    assert call(client_node, SetBool, "/thadam/pause", SetBool.Request(data=True)).success
    assert not call(client_node, Trigger, "/thadam/capturing", Trigger.Request()).success
    publish_imu(publisher, 5)
    wait_until(
        lambda: (c := status.component("source.robot")) and c.refused == 5, "counted refusals"
    )
    assert call(client_node, SetBool, "/thadam/pause", SetBool.Request(data=False)).success
    assert call(client_node, Trigger, "/thadam/capturing", Trigger.Request()).success
    publish_imu(publisher, 7)
    wait_until(lambda: rows_in(tmp_path / "lake") == 7, "the rows after the pause")


def test_parameters_cannot_change_while_active(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """The refusal gives the reason; after a clean-up the change is taken up."""
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters

    start(*config(tmp_path))
    lake = lifecycle(client_node, "/thadam_lake")
    wait_active(lake)
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value="changed")
    name = "sinks.lake.file_prefix"
    request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
    (result,) = call(client_node, SetParameters, "/thadam_lake/set_parameters", request).results
    assert not result.successful
    assert "thadam_lake is active" in result.reason
    assert lake.deactivate()
    assert lake.cleanup()
    (result,) = call(client_node, SetParameters, "/thadam_lake/set_parameters", request).results
    assert result.successful, result.reason
    assert lake.configure()
    assert lake.activate()
    publish_imu(imu_publisher(client_node), 5)
    wait_until(lambda: list((tmp_path / "lake").rglob("changed-*.parquet")), "the new prefix")
    got = call(
        client_node, GetParameters, "/thadam/get_parameters",
        GetParameters.Request(names=["datasets.imu.type", "wal.commit_interval"]),
    )  # fmt: skip
    assert [v.string_value for v in got.values] == ["sensor_msgs/msg/Imu", "50ms"]
    described = call(
        client_node, DescribeParameters, "/thadam/describe_parameters",
        DescribeParameters.Request(names=["wal.commit_interval", "metrics_port"]),
    )  # fmt: skip
    interval, port = described.descriptors
    assert "duration" in interval.description
    assert (port.integer_range[0].from_value, port.integer_range[0].to_value) == (0, 65535)


def test_dumped_parameters_load_to_the_same_hash(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """What the parameter services of the nodes say is the configuration in force."""
    from rcl_interfaces.srv import GetParameters, ListParameters
    from rclpy.parameter import parameter_value_to_python

    from thadam_ros.runtime.loading import load_parameters

    status = StatusListener(client_node)
    start(*config(tmp_path), "-p", "wal.compression:=zstd")
    nodes = ["/thadam", "/thadam_lake", "/thadam_mirror"]
    wait_active(*(lifecycle(client_node, node) for node in nodes))
    flat: dict[str, object] = {}
    for node in nodes:
        listed = call(client_node, ListParameters, f"{node}/list_parameters",
                      ListParameters.Request()).result.names  # fmt: skip
        values = call(client_node, GetParameters, f"{node}/get_parameters",
                      GetParameters.Request(names=listed)).values  # fmt: skip
        flat.update(zip(listed, map(parameter_value_to_python, values), strict=True))
    flat.pop("config_file")
    loaded = load_parameters(flat, {}, lock_path=str(tmp_path / "dump.lock"))
    wait_until(lambda: status.last and status.last.config_hash, "the hash in force")
    assert loaded.config.config_hash == status.last.config_hash


def test_simulated_time_marks_source_stamps_and_waits_for_no_clock(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Without anybody publishing /clock everything comes up; stamps get the domain sim."""
    import pyarrow.parquet as pq

    start(*config(tmp_path), "-p", "use_sim_time:=true")
    wait_active(*(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake")))
    before = time.time_ns()
    publish_imu(imu_publisher(client_node), 5)
    wait_until(lambda: rows_in(tmp_path / "lake") == 5, "rows")
    (path, *_) = (tmp_path / "lake").rglob("*.parquet")
    table = pq.read_table(path)
    assert set(table["_time_domain"].to_pylist()) == {"sim"}
    assert set(table["_event_time"].to_pylist()) == {None}
    ingest = table["_ingest_time"].cast("int64").to_pylist()
    assert all(before // 1000 <= t <= time.time_ns() // 1000 for t in ingest)


def test_a_second_signal_leaves_at_once(start: Start, client_node: Node, tmp_path: Path) -> None:
    """A stop that drains an unreachable sink is cut short by a second signal."""
    (tmp_path / "mirror").write_text("a file where the sink wants a folder")
    process = start(*config(tmp_path))
    wait_active(*(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake", "_mirror")))
    mirror = lifecycle(client_node, "/thadam_mirror")
    publish_imu(imu_publisher(client_node), 50)
    wait_until(lambda: rows_in(tmp_path / "lake") == 50, "rows in the good sink")
    process.process.send_signal(signal.SIGINT)
    wait_until(lambda: mirror.state() == "deactivating", "the drain")
    assert process.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    wal = list((tmp_path / "data" / "wal").glob("*.wal"))
    assert wal


def test_a_stop_with_a_dead_sink_ends_in_time_and_a_restart_delivers(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """Exit code 0 inside launch's escalation; the rest stays in the WAL."""
    (tmp_path / "mirror").write_text("a file where the sink wants a folder")
    process = start(*config(tmp_path))
    wait_active(*(lifecycle(client_node, f"/thadam{s}") for s in ("", "_lake", "_mirror")))
    publish_imu(imu_publisher(client_node), 50)
    wait_until(lambda: rows_in(tmp_path / "lake") == 50, "rows in the good sink")
    begun = time.monotonic()
    assert process.stop() == 0, process.output
    print(f"stop with a dead sink: {time.monotonic() - begun:.1f} s")
    (tmp_path / "mirror").unlink()
    again = start(*config(tmp_path))
    wait_until(lambda: rows_in(tmp_path / "mirror") == 50, "the backlog")
    assert rows_in(tmp_path / "lake") == 50
    assert again.stop() == 0, again.output


def test_wrong_command_lines_end_with_2(start: Start) -> None:
    """ROS arguments that rcl refuses, and options of our own that do not exist."""
    assert start("-r", "not a remap").wait() == 2
    assert start(own=["--nonsense"]).wait() == 2


def test_an_unknown_capability_ends_with_a_sentence(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """A typing mistake in the variable refuses the configuration and names it."""
    process = start(*config(tmp_path), environment={"THADAM_DISABLE_CAPABILITIES": "wait_sets"})
    thadam = lifecycle(client_node, "/thadam")
    wait_until(lambda: "wait_sets" in process.output, "the name")
    assert thadam.state() == "unconfigured"


def test_isolated_chains_deliver_and_are_started_again(
    start: Start, client_node: Node, tmp_path: Path
) -> None:
    """A chain's process is killed; thadam captures on, a new process delivers everything."""
    status = StatusListener(client_node)
    process = start(*config(tmp_path), "-r", "__node:=thadam", "-p", "isolate_chains:=true")
    chain = lifecycle(client_node, "/thadam_lake")
    wait_active(lifecycle(client_node, "/thadam"), chain, lifecycle(client_node, "/thadam_mirror"))
    publisher = imu_publisher(client_node)
    publish_imu(publisher, 30)
    wait_until(lambda: rows_in(tmp_path / "lake") == 30, "rows")
    wait_until(
        lambda: (
            (c := status.component("chain.lake")) and (c.reason_code, c.delivered) == ("ok", 30)
        ),
        "its status",
    )
    import orjson

    document = orjson.loads((tmp_path / "data" / "status" / "chain.lake.json").read_bytes())
    assert document["pid"] != process.process.pid
    os.kill(document["pid"], signal.SIGKILL)
    publish_imu(publisher, 20)
    wait_until(lambda: rows_in(tmp_path / "lake") == 50, "rows of the next process", 60.0)
    assert process.stop() == 0, process.output
    for name in ("lake", "mirror"):
        pid = orjson.loads((tmp_path / "data" / "status" / f"chain.{name}.json").read_bytes())[
            "pid"
        ]
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "no process is left")
