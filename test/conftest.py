# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where ROS is missing they skip with the reason; no process stays behind."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
LEAK_DEADLINE_S = 10.0
#: Inherited by every process that a test starts, also by those that outlive their parent.
SESSION_VARIABLE = "THADAM_TEST_SESSION"
SESSION = uuid.uuid4().hex
os.environ[SESSION_VARIABLE] = SESSION


def missing_ros() -> str:
    """Why tests marked ``ros`` cannot run here, or empty."""
    for module, advice in (
        ("rclpy", "no ROS 2 in this environment"),
        ("thadam_ros.msg", "the workspace is not built (scripts/setup)"),
    ):
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{advice}: {error}"
    return ""


def shared_bags() -> Path:
    """The folder of real bags: ``$THADAM_SHARED_DATA/bags`` or ``../shared/data/bags``."""
    data = os.environ.get("THADAM_SHARED_DATA") or CHECKOUT.parent / "shared" / "data"
    return Path(data) / "bags"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--long`` turns the large forms on."""
    parser.addoption("--long", action="store_true", help="run tests marked 'long' as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what cannot or should not run here, and says why."""
    reason = missing_ros() if any(item.get_closest_marker("ros") for item in items) else ""
    for item in items:
        if reason and item.get_closest_marker("ros"):
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="large form: scripts/test --long runs it"))


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Root of the source tree."""
    return CHECKOUT


@pytest.fixture(scope="session")
def bags_dir() -> Path:
    """Folder with real bags; skips where there is none."""
    directory = shared_bags()
    if not directory.is_dir():
        pytest.skip(f"no real bags: {directory} does not exist (set THADAM_SHARED_DATA)")
    return directory


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A ROS domain that no other test run on this machine uses, on loopback only.

    Set in ``os.environ``, so processes started by the test join it too.
    """
    domain_coordinator = pytest.importorskip("domain_coordinator")
    with domain_coordinator.domain_id() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        monkeypatch.delenv("ROS_LOCALHOST_ONLY", raising=False)
        yield int(domain)


def read_proc(pid: int, name: str) -> str:
    """A file of /proc; empty when the process has ended or belongs to somebody else."""
    try:
        data = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode(errors="replace")


def processes_of(pid: int) -> dict[int, str]:
    """Living descendants and orphans of this session: pid -> command line.

    Zombies count: somebody did not wait for them.
    """
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    # A command may hold anything; what follows the last parenthesis is regular.
    stats = {p: read_proc(p, "stat").rpartition(")")[2].split() for p in pids}
    parents = {p: int(fields[1]) for p, fields in stats.items() if fields}
    mark = f"{SESSION_VARIABLE}={SESSION}"
    found = {p for p in parents if p != pid and mark in read_proc(p, "environ")}
    front = {pid}
    while front:
        front = {child for child, parent in parents.items() if parent in front} - found
        found |= front
    return {p: read_proc(p, "cmdline").strip() or "(zombie)" for p in found}


def is_resource_tracker(command: str) -> bool:
    """multiprocessing's own helper lives as long as the interpreter."""
    return "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command


def leaked_processes() -> dict[int, str]:
    """Children that are still there after a grace period; ending ones are waited for."""
    deadline = time.monotonic() + LEAK_DEADLINE_S
    while True:
        found = {
            pid: command
            for pid, command in processes_of(os.getpid()).items()
            if not is_resource_tracker(command)
        }
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """Fails the session when a test leaves a process behind."""
    yield
    left = leaked_processes()
    if left:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes left behind by tests: {left}", pytrace=False)
