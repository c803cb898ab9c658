# SPDX-License-Identifier: Apache-2.0
"""How a process of lifecycle nodes ends: exit codes and deadlines (spec 1.4, 7.1)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys, threading
from rclpy.context import Context
import rclpy
from rclpy.signals import SignalHandlerOptions
from thadam_ros.errors import FatalError
from thadam_ros.model.clock import SystemClock
from thadam_ros.node.managed_node import ManagedNode
from thadam_ros.node.process import Process
from thadam_ros.node.supervisor import Supervisor

what = sys.argv[1]

class Misbehaving(ManagedNode):
    next_retry_ns = 0
    def start(self):
        print("started", flush=True)
        if what == "unreleasable":
            threading.Timer(0.2, self.report_fault, (FatalError("broken"),)).start()
        if what == "thread":
            threading.Thread(target=threading.Event().wait, name="hung-worker").start()
    def stop(self, drain):
        if what == "hangs":
            print("stopping", flush=True)
            threading.Event().wait()
    def release(self):
        if what == "unreleasable":
            raise RuntimeError("a file stays open")

class Silent:
    def changed(self): pass
    def speak(self): print("last words", flush=True)

context = Context()
rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
node = Misbehaving("misbehaving", context=context)
supervisor = Supervisor([(node, lambda: 0.0)], SystemClock(), lambda: 0)
process = Process(context, node, [], supervisor, Silent(), autostart=True, children=None)
sys.exit(process.run())
"""


class Running:
    """The script in a process."""

    def __init__(self, domain_id: int, what: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, what],
            env={
                **os.environ,
                "ROS_DOMAIN_ID": str(domain_id),
                "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def wait_for(self, word: str) -> None:
        end = time.monotonic() + 30.0
        while not any(word in line for line in self.lines):
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None or any(word in line for line in self.lines)
            time.sleep(0.01)

    def wait(self) -> int:
        code = self.process.wait(30.0)
        self._reader.join(5.0)
        return code


@pytest.fixture
def run(domain_id: int) -> Iterator[Callable[[str], Running]]:
    running: list[Running] = []

    def start(what: str) -> Running:
        running.append(Running(domain_id, what))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_a_clean_stop_ends_with_0_after_the_last_words(run: Any) -> None:
    """SIGTERM: the node is taken down, the last status published."""
    one = run("nothing")
    one.wait_for("started")
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0, one.lines
    assert "last words\n" in one.lines


def test_a_node_that_cannot_release_ends_the_process_with_3(run: Any) -> None:
    """Without a signal: finalized, then out, for a respawn."""
    one = run("unreleasable")
    assert one.wait() == 3, one.lines
    assert any("cannot release" in line for line in one.lines)


@pytest.mark.parametrize(
    ("what", "name"), [("hangs", "stop misbehaving"), ("thread", "hung-worker")]
)
def test_a_thread_that_does_not_stop_is_named_and_left_behind(
    run: Any, what: str, name: str
) -> None:
    """The process leaves at its deadline with 1, whatever hangs; the last words were said."""
    one = run(what)
    one.wait_for("started")
    one.process.send_signal(signal.SIGINT)
    assert one.wait() == 1, one.lines
    assert any("did not stop: " in line and name in line for line in one.lines), one.lines
    assert "last words\n" in one.lines


def test_a_second_signal_leaves_at_once(run: Any) -> None:
    """Nothing is waited for any more."""
    one = run("hangs")
    one.wait_for("started")
    one.process.send_signal(signal.SIGINT)
    one.wait_for("stopping")
    one.process.send_signal(signal.SIGINT)
    assert one.wait() == 128 + signal.SIGINT
