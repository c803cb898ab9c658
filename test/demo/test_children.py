# SPDX-License-Identifier: Apache-2.0
"""No child outlives the demo, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from thadam_ros.node.demo.children import Children

DEADLINE_S = 20.0

#: Starts a child that ignores every polite request, prints its pid, and waits.
PARENT = """
import os, sys, time
from thadam_ros.node.demo.children import Children
child = Children().start("stubborn", sys.argv[2:], dict(os.environ), sys.argv[1])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Tell whether a process lives; a zombie that init has yet to reap does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    """Poll until a process is gone."""
    end = time.monotonic() + DEADLINE_S
    while is_running(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.01)


def wait_for_text(path: Path, text: str) -> None:
    """Poll until a file holds ``text``."""
    end = time.monotonic() + DEADLINE_S
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < end, f"{path} never said {text!r}"
        time.sleep(0.01)


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL runs no handler: the kernel has to do it."""
    log = tmp_path / "log"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(log), sys.executable, "-c", STUBBORN],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_for_text(log, "ready")
    assert is_running(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pid)


def test_child_that_ignores_requests_is_killed(tmp_path: Path) -> None:
    """After the patience everything goes."""
    children = Children()
    log = tmp_path / "log"
    child = children.start("stubborn", [sys.executable, "-c", STUBBORN], dict(os.environ), str(log))
    wait_for_text(log, "ready")
    children.close(patience_s=0.1)
    assert child.returncode() == -signal.SIGKILL
    children.close(patience_s=0.1)


def test_child_is_not_reached_by_the_terminals_interrupt(tmp_path: Path) -> None:
    """Ctrl-C goes to the foreground group; the demo decides how its children end."""
    children = Children()
    log = tmp_path / "log"
    child = children.start(
        "own group", [sys.executable, "-c", STUBBORN], dict(os.environ), str(log)
    )
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    children.close(patience_s=0.0)
