# SPDX-License-Identifier: Apache-2.0
"""Version, licence and manifest say the same everywhere."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import thadam_ros

HEADER = "SPDX-License-Identifier: Apache-2.0"


def manifest(checkout: Path) -> ElementTree.Element:
    """The root of package.xml."""
    return ElementTree.parse(checkout / "package.xml").getroot()


def tracked(checkout: Path) -> list[Path]:
    """The files of the repository; skips outside of one."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=checkout, capture_output=True, check=True
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout: {error}")
    return [checkout / name for name in listed.decode().split("\0") if name]


def test_the_version_is_one(checkout: Path) -> None:
    """package.xml, __version__ and the newest section of the changelog agree."""
    changelog = (checkout / "CHANGELOG.rst").read_text(encoding="utf-8")
    sections = re.findall(r"^(\d+\.\d+\.\d+)(?: .*)?\n-{5,}$", changelog, re.MULTILINE)
    assert manifest(checkout).findtext("version") == thadam_ros.__version__
    assert sections
    assert sections[0] == thadam_ros.__version__


def test_the_licence_is_one(checkout: Path) -> None:
    """The file, package.xml and setup.py name Apache-2.0."""
    licence = manifest(checkout).find("license")
    assert licence is not None
    assert licence.text == "Apache-2.0"
    text = (checkout / str(licence.get("file"))).read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0" in text
    assert 'license="Apache-2.0"' in (checkout / "setup.py").read_text(encoding="utf-8")


def test_every_source_file_starts_with_its_licence(checkout: Path) -> None:
    """The header stands in the first two lines: a first line may be for the interpreter."""
    suffixes = {".py", ".sh", ".msg", ".in", ".sql", ".cmake"}
    wrong = [
        str(path.relative_to(checkout))
        for path in tracked(checkout)
        if path.is_file()
        and path.stat().st_size > 0
        and (path.suffix in suffixes or path.parent.name in ("scripts", ".ci"))
        and HEADER not in "".join(path.read_text(encoding="utf-8").splitlines(True)[:2])
    ]
    assert wrong == []


def test_the_manifest_is_valid_for_colcon(checkout: Path) -> None:
    """Format 3, one valid e-mail per maintainer, interfaces announced as such."""
    root = manifest(checkout)
    assert root.get("format") == "3"
    for maintainer in root.iter("maintainer"):
        assert re.fullmatch(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", str(maintainer.get("email")))
    assert root.findtext("member_of_group") == "rosidl_interface_packages"
    assert root.findtext("export/build_type") == "ament_cmake"


def test_every_ros_package_imported_by_a_node_is_declared(checkout: Path) -> None:
    """What the nodes import and package.xml forgets is missing after rosdep install."""
    declared = {
        str(element.text)
        for tag in ("depend", "exec_depend")
        for element in manifest(checkout).iter(tag)
    }
    known = {
        "ament_index_python",
        "builtin_interfaces",
        "diagnostic_msgs",
        "geometry_msgs",
        "lifecycle_msgs",
        "nav_msgs",
        "rcl_interfaces",
        "rclpy",
        "sensor_msgs",
        "std_msgs",
        "std_srvs",
        "tf2_msgs",
        "type_description_interfaces",
    }
    imported = set()
    for path in (checkout / "thadam_ros" / "node").rglob("*.py"):
        for name in re.findall(
            r"^\s*(?:from|import) ([a-z_0-9]+)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            imported.add(name)
    assert (imported & known) - declared == set()


def test_no_large_or_generated_file_is_tracked(checkout: Path) -> None:
    """Environments, build results and run output stay out of the repository."""
    wrong = [
        str(path.relative_to(checkout))
        for path in tracked(checkout)
        if path.is_file()
        and (
            path.stat().st_size > 1 << 20
            or {".env", "build", "install", "log", "__pycache__"}
            & set(path.relative_to(checkout).parts)
        )
    ]
    assert wrong == []
