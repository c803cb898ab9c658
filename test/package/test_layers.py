# SPDX-License-Identifier: Apache-2.0
"""The layers of docs/architecture.md hold in every import of the package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "thadam_ros"
#: Top level names of the package, lowest layer first (docs/architecture.md).
LAYERS = (
    ("model", "config", "storage", "errors"),
    ("wal",),
    ("dataset", "transforms", "decode"),
    ("sinks", "publish", "quarantine"),
    ("chain", "sources", "files"),
    ("runtime",),
    ("cli", "__main__"),
    ("node",),
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROS_MODULES = (
    "rclpy",
    "launch",
    "launch_ros",
    "ament_index_python",
    "builtin_interfaces",
    "diagnostic_msgs",
    "domain_coordinator",
    "geometry_msgs",
    "lifecycle_msgs",
    "nav_msgs",
    "rcl_interfaces",
    "rosidl_parser",
    "rosidl_runtime_py",
    "sensor_msgs",
    "std_msgs",
    "std_srvs",
    "tf2_msgs",
    "type_description_interfaces",
    f"{PACKAGE}.msg",
)
TERMINAL_MODULES = ("rich", "argparse", "curses")
IMPURE_MODULES = ("random", "secrets", "socket", "subprocess", "threading", "time", "urllib")


def sources(root: Path) -> list[Path]:
    """Every module of the package."""
    return sorted((root / PACKAGE).rglob("*.py"))


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a file imports, inside functions too."""
    parts = path.relative_to(root).with_suffix("").parts
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def layer_of(name: str) -> str | None:
    """``thadam_ros.wal.reader`` -> ``wal``; None outside the package and for its root."""
    parts = name.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else None


def is_under(name: str, module: str) -> bool:
    """Whether ``name`` is ``module`` or inside it."""
    return name == module or name.startswith(module + ".")


def test_every_folder_of_the_package_belongs_to_a_layer(checkout: Path) -> None:
    """A new folder must be given its place in the layers first."""
    known = {*RANKS, "testing", "__init__", "py", "__pycache__"}
    found = {entry.name.split(".")[0] for entry in (checkout / PACKAGE).iterdir()}
    assert found - known == set()


def test_a_module_imports_only_from_its_own_layer_or_below(checkout: Path) -> None:
    """An import upwards ties a lower layer to what it must not know."""
    wrong = []
    for path in sources(checkout):
        own = RANKS.get(path.relative_to(checkout / PACKAGE).parts[0].removesuffix(".py"))
        if own is None:
            continue  # the root and the public test tools stand beside the layers
        for line, name in imports(path, checkout):
            rank = RANKS.get(layer_of(name) or "")
            if rank is not None and rank > own:
                wrong.append(f"{path.relative_to(checkout)}:{line} imports {name}")
    assert wrong == []


def test_only_the_node_layer_imports_ros(checkout: Path) -> None:
    """The core is useful on a laptop without ROS (spec 1.3)."""
    wrong = []
    for path in sources(checkout):
        if path.is_relative_to(checkout / PACKAGE / "node"):
            continue
        for line, name in imports(path, checkout):
            if any(is_under(name, module) for module in ROS_MODULES):
                wrong.append(f"{path.relative_to(checkout)}:{line} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("layer", ["runtime", "chain", "sources", "wal", "config"])
def test_layers_below_the_cli_know_no_terminal(checkout: Path, layer: str) -> None:
    """Tables, colours and arguments belong to the cli."""
    wrong = [
        f"{path.relative_to(checkout)}:{line} imports {name}"
        for path in sources(checkout)
        if path.is_relative_to(checkout / PACKAGE / layer)
        for line, name in imports(path, checkout)
        if any(is_under(name, module) for module in TERMINAL_MODULES)
    ]
    assert wrong == []


@pytest.mark.parametrize("layer", ["dataset", "transforms", "decode"])
def test_row_layers_import_no_clock_no_random_and_no_network(checkout: Path, layer: str) -> None:
    """Same input, same rows (spec 1.1): nothing there may depend on when or where it runs."""
    wrong = [
        f"{path.relative_to(checkout)}:{line} imports {name}"
        for path in sources(checkout)
        if path.is_relative_to(checkout / PACKAGE / layer)
        for line, name in imports(path, checkout)
        if any(is_under(name, module) for module in IMPURE_MODULES)
    ]
    assert wrong == []


def test_production_code_does_not_import_the_test_tools(checkout: Path) -> None:
    """thadam_ros.testing is for tests and benchmarks, of this package and of others."""
    wrong = [
        f"{path.relative_to(checkout)}:{line} imports {name}"
        for path in sources(checkout)
        if not path.is_relative_to(checkout / PACKAGE / "testing")
        for line, name in imports(path, checkout)
        if layer_of(name) == "testing"
    ]
    assert wrong == []


def test_the_import_finder_sees_relative_and_nested_imports(tmp_path: Path) -> None:
    """The checks above are worth what this finder finds."""
    module = tmp_path / PACKAGE / "wal" / "x.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "from ..runtime import edge\n"
        "def f():\n    import rclpy.node\n"
        "from . import mark\nfrom .frames import Frame\n"
    )
    found = {name for _, name in imports(module, tmp_path)}
    assert {
        "thadam_ros.runtime",
        "thadam_ros.runtime.edge",
        "rclpy.node",
        "thadam_ros.wal.mark",
        "thadam_ros.wal.frames",
    } <= found


def test_the_core_needs_no_module_newer_than_its_oldest_python(checkout: Path) -> None:
    """CPython 3.10 has no tomllib, no typing.Self, no datetime.UTC."""
    newer = ("tomllib", "typing.Self", "typing.assert_never", "datetime.UTC", "enum.StrEnum")
    wrong = [
        f"{path.relative_to(checkout)}:{line} imports {name}"
        for path in sources(checkout)
        for line, name in imports(path, checkout)
        if any(is_under(name, module) for module in newer)
    ]
    assert sys.version_info >= (3, 10)
    assert wrong == []
