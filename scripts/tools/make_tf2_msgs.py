# SPDX-License-Identifier: Apache-2.0
"""Writes a buildable tf2_msgs package from rosbags' type store, where ROS has none.

Usage: ``python make_tf2_msgs.py DIRECTORY``. Exits 1 without writing when a tf2_msgs is already
on AMENT_PREFIX_PATH: then nothing is to be built. Real ROS installations always have it; the
wheels have not. The type hashes equal those of the real package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rosbags.typesys import Stores, get_typestore

MESSAGES = ("TF2Error", "TFMessage")
PACKAGE_XML = """<?xml version="1.0"?>
<package format="3">
  <name>tf2_msgs</name>
  <version>0.0.0</version>
  <description>The messages of tf2_msgs, generated for an environment that lacks them.</description>
  <maintainer email="maintainers@thadam-ros.example">thadam_ros maintainers</maintainer>
  <license>BSD</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
  <depend>geometry_msgs</depend>
  <exec_depend>rosidl_default_runtime</exec_depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export><build_type>ament_cmake</build_type></export>
</package>
"""
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(tf2_msgs)
find_package(ament_cmake REQUIRED)
find_package(geometry_msgs REQUIRED)
find_package(rosidl_default_generators REQUIRED)
rosidl_generate_interfaces(${PROJECT_NAME}
  msg/TF2Error.msg
  msg/TFMessage.msg
  DEPENDENCIES geometry_msgs
)
ament_export_dependencies(rosidl_default_runtime)
ament_package()
"""


def is_installed() -> bool:
    """Whether a tf2_msgs is on the ament prefix path."""
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    return any((Path(p) / "share" / "tf2_msgs" / "package.xml").is_file() for p in prefixes if p)


def definition(name: str) -> str:
    """The text of one message: the first part of a definition with all its dependencies."""
    store = get_typestore(Stores.ROS2_JAZZY)
    text, _ = store.generate_msgdef(f"tf2_msgs/msg/{name}", ros_version=2)
    return text.split("=" * 80)[0]


def write(path: Path, text: str) -> None:
    """Writes only what differs: an unchanged time stamp spares a rebuild."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(directory: str) -> int:
    """Writes the package; 1 when there is nothing to do."""
    if is_installed():
        print("tf2_msgs is installed")
        return 1
    root = Path(directory)
    write(root / "package.xml", PACKAGE_XML)
    write(root / "CMakeLists.txt", CMAKE)
    for name in MESSAGES:
        write(root / "msg" / f"{name}.msg", definition(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
