# SPDX-License-Identifier: Apache-2.0
"""The package in a colcon workspace, in its layouts, beside a package that uses its messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE_XML = """<?xml version="1.0"?>
<package format="3">
  <name>fleet_msgs</name><version>0.0.0</version><description>uses EdgeState</description>
  <maintainer email="nobody@fleet.example">nobody</maintainer><license>Apache-2.0</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
  <depend>thadam_ros</depend>
  <exec_depend>rosidl_default_runtime</exec_depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export><build_type>ament_cmake</build_type></export>
</package>
"""
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(fleet_msgs)
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
find_package(thadam_ros REQUIRED)
rosidl_generate_interfaces(${PROJECT_NAME} msg/Fleet.msg DEPENDENCIES thadam_ros)
ament_package()
"""
PROBE = """
import importlib.metadata, pathlib, sys
import thadam_ros, thadam_ros.errors, thadam_ros.wal
from fleet_msgs.msg import Fleet
from thadam_ros.msg import EdgeState
assert isinstance(Fleet().edges, list) and Fleet(edges=[EdgeState()]).edges[0].wal_epoch == 0
assert pathlib.Path(thadam_ros.__file__).is_relative_to(sys.argv[1]), thadam_ros.__file__
found = list(importlib.metadata.distributions(name="thadam_ros"))
scripts = importlib.metadata.entry_points(group="console_scripts")
assert [s.value for s in scripts if s.name == "thadam"] == ["thadam_ros.cli.main:main"]
"""


def link_package(checkout: Path, target: Path) -> None:
    """The package in a workspace's src, without the checkout's environments."""
    target.mkdir(parents=True)
    names = ("CMakeLists.txt", "package.xml", "setup.py", "README.md", "pyproject.toml", "LICENSE")
    for name in names:
        shutil.copy(checkout / name, target / name)
    for name in ("msg", "launch", "config", "resource", "scripts", "thadam_ros"):
        shutil.copytree(
            checkout / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
        )


@pytest.mark.ros
@pytest.mark.parametrize("layout", ["--merge-install", "--symlink-install"])
def test_the_package_builds_beside_one_that_uses_its_messages(
    checkout: Path, tmp_path: Path, layout: str
) -> None:
    """colcon build, then code, messages, entry points and executables from the install tree."""
    colcon = shutil.which("colcon")
    if colcon is None:
        pytest.skip("colcon is not on the path")
    link_package(checkout, tmp_path / "src" / "thadam_ros")
    fleet = tmp_path / "src" / "fleet_msgs"
    (fleet / "msg").mkdir(parents=True)
    (fleet / "package.xml").write_text(PACKAGE_XML)
    (fleet / "CMakeLists.txt").write_text(CMAKE)
    (fleet / "msg" / "Fleet.msg").write_text("thadam_ros/EdgeState[] edges\n")
    # The underlay is what this environment was made of, without this checkout's own workspace.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COLCON_PREFIX_PATH")}
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    underlay = [p for p in prefixes if not (Path(p) / "share/thadam_ros").is_dir()]
    env["AMENT_PREFIX_PATH"] = env["CMAKE_PREFIX_PATH"] = os.pathsep.join(underlay)
    command = [colcon, "build", layout, "--executor", "sequential", "--cmake-args"]
    command += ["-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}"]
    built = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr

    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    enter = '. "$0/install/setup.sh" && exec "$@"'
    shell = ["sh", "-c", enter, str(tmp_path)]
    env["COLCON_CURRENT_PREFIX"] = str(tmp_path / "install")
    imported = subprocess.run(
        [*shell, sys.executable, str(probe), str(tmp_path / "install")],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    prefix = tmp_path / "install"
    if layout != "--merge-install":
        prefix /= "thadam_ros"
    for executable in ("thadam", "thadam_edge", "thadam_demo_robot"):
        assert os.access(prefix / "lib" / "thadam_ros" / executable, os.X_OK)
    for name in ("edge", "demo"):
        assert (prefix / "share" / "thadam_ros" / "launch" / f"{name}.launch.py").is_file()
