# SPDX-License-Identifier: Apache-2.0
"""The command line that launch produces from edge.launch.py, with and without launch installed."""

from __future__ import annotations

import importlib.util
import sys
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
    values = {**EVERY_ARGUMENT, "params_file": str(params), "data_dir": "2024"}
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
