# SPDX-License-Identifier: Apache-2.0
"""The command line that launch produces from edge.launch.py, with and without launch installed."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

EVERY_ARGUMENT = {
    "namespace": "r1",
    "config_file": "/etc/thadam/thadam.yaml",
    "params_file": "/etc/thadam/params.yaml",
    "data_dir": "/var/lib/thadam",
    "use_sim_time": "true",
    "autostart": "false",
    "isolate_chains": "true",
    "log_level": "debug",
    "use_respawn": "true",
    "metrics_port": "9464",
}


def load(path: Path) -> ModuleType:
    """A launch file as a module; its name is not a module's name."""
    spec = importlib.util.spec_from_file_location(path.name.replace(".", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def edge(checkout: Path) -> ModuleType:
    """launch/edge.launch.py."""
    return load(checkout / "launch" / "edge.launch.py")


@pytest.fixture
def launched() -> None:
    """Skips where launch itself is not installed."""
    try:
        from launch import LaunchDescription  # noqa: F401
        from launch_ros.actions import Node  # noqa: F401
    except ImportError as error:
        pytest.skip(f"launch is on no package index, only in ROS installations: {error}")


def test_every_argument_of_the_specification_is_declared_and_described(edge: ModuleType) -> None:
    """``ros2 launch ... --show-args`` is the documentation that operators read (spec 7.4)."""
    assert set(edge.ARGUMENTS) == set(EVERY_ARGUMENT)
    assert all(len(argument.description) > 20 for argument in edge.ARGUMENTS.values())


def test_all_arguments_reach_the_process_as_ros_arguments(edge: ModuleType) -> None:
    """The parameter file comes first, so that the arguments override it; text is quoted."""
    assert edge.ros_arguments(EVERY_ARGUMENT) == [
        "--log-level",
        "debug",
        "--params-file",
        "/etc/thadam/params.yaml",
        "-p",
        'config_file:="/etc/thadam/thadam.yaml"',
        "-p",
        'edge.data_dir:="/var/lib/thadam"',
        "-p",
        "use_sim_time:=true",
        "-p",
        "autostart:=false",
        "-p",
        "isolate_chains:=true",
        "-p",
        "metrics_port:=9464",
    ]


def test_empty_arguments_leave_the_parameter_file_alone(edge: ModuleType) -> None:
    """An operator who gives only a parameter file gets exactly what it says, started."""
    values = {name: argument.default for name, argument in edge.ARGUMENTS.items()}
    values["params_file"] = "/etc/thadam/params.yaml"
    assert edge.ros_arguments(values) == [
        "--log-level",
        "info",
        "--params-file",
        "/etc/thadam/params.yaml",
        "-p",
        "autostart:=true",
    ]


@pytest.mark.ros
@pytest.mark.usefixtures("ros_domain")
def test_rcl_understands_the_arguments_and_lets_them_win(edge: ModuleType, tmp_path: Path) -> None:
    """Every node of the process sees them, over the ``/**:`` section of the parameter file."""
    import rclpy
    from rclpy.context import Context
    from rclpy.node import Node

    params = tmp_path / "params.yaml"
    params.write_text(
        "/**:\n  ros__parameters:\n    config_file: from-file\n    metrics_port: 1\n"
        "    edge: {data_dir: from-file}\n    kept: from-file\n"
    )
    # The log level holds for this whole process and would flood the tests that follow.
    values = {**EVERY_ARGUMENT, "params_file": str(params), "data_dir": "2024", "log_level": ""}
    context = Context()
    # As launch_ros composes it: these arguments, then name and namespace.
    arguments = ["--ros-args", *edge.ros_arguments(values), "--ros-args"]
    arguments += ["-r", "__node:=thadam", "-r", "__ns:=/r1"]
    rclpy.init(args=arguments, context=context)
    try:
        for name, use_global in (("any", True), ("thadam_lake", False)):
            node = Node(
                name,
                context=context,
                namespace="/r1",
                use_global_arguments=use_global,
                cli_args=arguments[:-4] if not use_global else None,
                automatically_declare_parameters_from_overrides=True,
            )
            assert node.get_namespace() == "/r1"
            assert node.get_parameter("config_file").value == "/etc/thadam/thadam.yaml"
            assert node.get_parameter("edge.data_dir").value == "2024"
            assert node.get_parameter("metrics_port").value == 9464
            assert node.get_parameter("autostart").value is False
            assert node.get_parameter("use_sim_time").value is True
            assert node.get_parameter("kept").value == "from-file"
            node.destroy_node()
    finally:
        rclpy.shutdown(context=context)


DOCUMENT = """
schema: 1
edge: {{data_dir: {root}/data, lock_file: {root}/datasets.lock, clock: always_synced,
       identity: {{robot: r1}}}}
wal: {{budget: 256MiB, min_free: 1MiB}}
sources: {{robot: {{type: ros2}}}}
datasets:
  words: {{match: {{source: robot, topics: [words]}}, type: std_msgs/msg/String, all_fields: true}}
sinks: {{lake: {{type: parquet, url: {root}/lake}}}}
"""


@pytest.mark.ros
def test_the_command_line_starts_the_edge_and_an_interrupt_ends_it(
    edge: ModuleType, ros_domain: int, tmp_path: Path
) -> None:
    """The installed executable, started as launch would, brings both nodes to active."""
    import rclpy
    from ament_index_python.packages import get_package_prefix
    from lifecycle_msgs.srv import GetState
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor

    document = tmp_path / "thadam.yaml"
    document.write_text(DOCUMENT.format(root=tmp_path))
    executable = Path(get_package_prefix("thadam_ros")) / "lib/thadam_ros/thadam_edge"
    command = [str(executable), "--ros-args"]
    command += edge.ros_arguments({"config_file": str(document), "autostart": "true"})
    command += ["--ros-args", "-r", "__node:=thadam", "-r", "__ns:=/r1"]
    context = Context()
    rclpy.init(context=context, domain_id=ros_domain)
    node = rclpy.create_node("launch_test", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)

    def state(name: str) -> str:
        client = clients[name]
        if not client.wait_for_service(timeout_sec=0.5):
            return "absent"
        answer = client.call_async(GetState.Request())
        executor.spin_until_future_complete(answer, timeout_sec=2.0)
        return str(answer.result().current_state.label) if answer.done() else "silent"

    clients = {
        name: node.create_client(GetState, f"/r1/{name}/get_state")
        for name in ("thadam", "thadam_lake")
    }
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while {state(name) for name in clients} != {"active"}:
                assert process.poll() is None, "the process ended by itself"
                assert time.monotonic() < deadline, "not active within a minute"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            node.destroy_node()
            executor.shutdown()
            context.shutdown()
    assert (tmp_path / "data" / "wal" / "durable").is_file()


@pytest.mark.usefixtures("launched")
def test_launch_builds_the_command_line(edge: ModuleType) -> None:
    """With launch installed the description yields one process with these very arguments."""
    from launch import LaunchContext

    context = LaunchContext()
    context.launch_configurations.update(EVERY_ARGUMENT)
    (node,) = edge.make_node(context)
    # The first word is looked up in the install tree; the last three are launch's own.
    words = ["".join(part.perform(context) for part in word) for word in node.cmd[1:-3]]
    assert words == ["--ros-args", *edge.ros_arguments(EVERY_ARGUMENT)]


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("name", ["edge", "demo"])
def test_launch_files_describe_all_arguments(checkout: Path, name: str) -> None:
    """The demo takes every argument of the edge."""
    if name == "demo":
        pytest.importorskip("thadam_ros.msg", reason="the workspace is not built")
    description = load(checkout / "launch" / f"{name}.launch.py").generate_launch_description()
    declared = {argument.name for argument in description.get_launch_arguments()}
    assert declared >= set(EVERY_ARGUMENT)
