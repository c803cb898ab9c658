# SPDX-License-Identifier: Apache-2.0
"""pip's installation of the core: complete, usable, and beside a built workspace."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pip install .`` into a folder, from a copy: building leaves files beside setup.py."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("pip or setuptools is not installed here")
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(
        checkout / "thadam_ros",
        source / "thadam_ros",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(checkout / name, source / name)
    target = tmp_path_factory.mktemp("target")
    # No index is asked: the environment has the dependencies and the build tool.
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--disable-pip-version-check", f"--target={target}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_pip_installs_every_module_and_the_type_marker(checkout: Path, installed: Path) -> None:
    """A folder without __init__.py would be missing, and nobody would notice in a checkout."""
    wanted = {
        path.relative_to(checkout)
        for path in (checkout / "thadam_ros").rglob("*")
        if path.suffix in {".py", ".json", ".yaml", ".sql", ".typed"}
    }
    assert {str(path) for path in wanted if not (installed / path).is_file()} == set()
    assert (installed / "thadam_ros" / "py.typed").is_file()


def test_the_command_line_is_installed_and_explains_itself(installed: Path) -> None:
    """``thadam --help`` from pip's installation, not from the checkout."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(installed), *environment_paths()]))
    done = subprocess.run(
        [sys.executable, str(installed / "bin" / "thadam"), "--help"],
        env=env,
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "validate" in done.stdout


@pytest.mark.ros
def test_pip_and_workspace_import_together(installed: Path) -> None:
    """thadam_ros.wal from pip's tree and thadam_ros.msg from colcon's, in one process."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(installed), *environment_paths()]))
    code = (
        "import thadam_ros.wal, thadam_ros.msg; print(thadam_ros.wal.__file__);"
        "print(thadam_ros.msg.EdgeState().wal_epoch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wal, epoch = done.stdout.split()
    assert Path(wal).is_relative_to(installed)
    assert epoch == "0"


def environment_paths() -> list[str]:
    """PYTHONPATH without this checkout: what a workspace adds."""
    checkout = Path(__file__).resolve().parents[2]
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [part for part in parts if part and Path(part).resolve() != checkout]
