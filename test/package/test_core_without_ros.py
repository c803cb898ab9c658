# SPDX-License-Identifier: Apache-2.0
"""The core imports where no ROS is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = """
import importlib, pkgutil, sys

class Refuse:
    PARTS = ("rclpy", "launch_ros", "ament_index_python", "rcl_interfaces", "lifecycle_msgs",
             "builtin_interfaces", "diagnostic_msgs", "sensor_msgs", "std_msgs", "std_srvs",
             "tf2_msgs", "type_description_interfaces")

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.PARTS or name == "thadam_ros.msg":
            raise ImportError(f"{name} is a part of ROS")

sys.meta_path.insert(0, Refuse())
for name in list(sys.modules):
    if name.partition(".")[0] in Refuse.PARTS:
        del sys.modules[name]
import thadam_ros

count = 0
for module in pkgutil.walk_packages(thadam_ros.__path__, "thadam_ros.", onerror=lambda name: None):
    if module.name.startswith(("thadam_ros.node", "thadam_ros.msg")) or "__main__" in module.name:
        continue
    if module.name.rpartition(".")[2].startswith("thadam_ros_s__"):
        continue  # the generated type supports of the messages
    importlib.import_module(module.name)
    count += 1
print(count)
"""


def test_every_module_below_the_node_imports_without_ros(checkout: Path) -> None:
    """One hidden import of rclpy would take the laptop's tools away (spec 1.3)."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    modules = [
        path
        for path in (checkout / "thadam_ros").rglob("*.py")
        if "node" not in path.relative_to(checkout / "thadam_ros").parts[:1]
    ]
    # Every folder needs an __init__.py, or pip would leave it out and this count would tell.
    assert int(done.stdout) >= len(modules) - sum(p.name == "__main__.py" for p in modules) - 1
