# SPDX-License-Identifier: Apache-2.0
"""Chains in processes of their own (``isolate_chains:=true``, spec 1.4, 7.1).

A chain's process is this executable with ``--chain SINK``. It is started once ``thadam`` is
configured, with the merged configuration ``config/<hash>.yaml`` that ``thadam`` loaded, and again
when that changes or when it ends by itself. What it says of itself stands in ``status/``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from thadam_ros.model.states import ComponentState, ComponentStatistics, Kind, State
from thadam_ros.node.arguments import Arguments, without_name_remaps
from thadam_ros.node.edge_node import EdgeNode
from thadam_ros.node.status import component_from_status_file

_PR_SET_PDEATHSIG = 1
_BACKOFF_FIRST_S = 1.0
_BACKOFF_MAX_S = 30.0
#: A process that ran this long has recovered: its next end is answered at once again.
_STEADY_S = 60.0


@dataclass(slots=True)
class _Child:
    sink: str
    process: subprocess.Popen[bytes] | None = None
    merged_path: str = ""
    started_at: float = 0.0
    not_before: float = 0.0
    backoff_s: float = _BACKOFF_FIRST_S
    restarts: int = 0
    last_code: int | None = None


class ChainProcesses:
    """Starts, watches and ends one process per sink."""

    def __init__(self, sinks: Sequence[str], arguments: Arguments, edge: EdgeNode) -> None:
        self._children = [_Child(sink) for sink in sinks]
        self._arguments = arguments
        self._edge = edge
        self._lock = threading.Lock()
        self._stopping = False
        self._libc = ctypes.CDLL(None)

    def tick(self) -> None:
        """Start what should run and does not; called once a second."""
        loaded, path = self._edge.loaded, self._edge.merged_path
        with self._lock:
            if self._stopping:
                return
            for child in self._children:
                self._note_end(child)
                if loaded is None:
                    continue
                if child.process is not None and child.merged_path != path:
                    # It drains, ends, and is started with the new configuration.
                    child.merged_path = path
                    child.process.send_signal(signal.SIGTERM)
                elif child.process is None and time.monotonic() >= child.not_before:
                    self._start(child, path, loaded.lock_path)

    def stop(self, timeout_s: float) -> None:
        """End all processes, draining for at most ``timeout_s``."""
        with self._lock:
            self._stopping = True
            running = [c.process for c in self._children if c.process is not None]
            for process in running:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            end = time.monotonic() + timeout_s
            for process in running:
                try:
                    process.wait(max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def statistics(self) -> list[ComponentStatistics]:
        """Return what the processes wrote last, or that one does not run."""
        found: list[ComponentStatistics] = []
        for child in self._children:
            found.extend(self._statistics_of(child))
        return found

    def foreign(self) -> frozenset[str]:
        """Return the names of the components that running processes speak for."""
        running = [c.sink for c in self._children if c.process and c.process.poll() is None]
        return frozenset(f"{kind}.{sink}" for sink in running for kind in ("chain", "quarantine"))

    def _statistics_of(self, child: _Child) -> list[ComponentStatistics]:
        names = (f"chain.{child.sink}", f"quarantine.{child.sink}")
        process = child.process
        if process is None or process.poll() is not None:
            state = ComponentState(State.STOPPED, "stopped", "its process is not started yet")
            if child.last_code is not None:
                state = ComponentState(
                    State.FAILED,
                    "bug" if child.last_code else "stopped",
                    f"its process ended with code {child.last_code} and is started again",
                )
            node = f"{self._edge.get_namespace().rstrip('/')}/thadam_{child.sink}"
            return [ComponentStatistics(names[0], Kind.CHAIN, state, node, child.restarts)]
        loaded = self._edge.loaded
        if loaded is None:
            return []
        directory = os.path.join(loaded.config.edge.data_dir, "status")
        read = (component_from_status_file(os.path.join(directory, f"{n}.json")) for n in names)
        return [component for component in read if component is not None]

    def _note_end(self, child: _Child) -> None:
        process = child.process
        if process is None or process.poll() is None:
            return
        child.process = None
        child.last_code = process.returncode
        if time.monotonic() - child.started_at > _STEADY_S:
            child.backoff_s = _BACKOFF_FIRST_S
        child.not_before = time.monotonic() + child.backoff_s
        child.backoff_s = min(2 * child.backoff_s, _BACKOFF_MAX_S)
        self._edge.get_logger().warning(
            f"the process of chain {child.sink} ended with code {process.returncode}"
        )

    def _start(self, child: _Child, merged_path: str, lock_path: str) -> None:
        command = [
            sys.executable,
            "-m",
            "thadam_ros.node.main",
            "--chain",
            child.sink,
            "--lock-path",
            lock_path,
            *without_name_remaps(self._arguments.ros[1:]),
            "--ros-args",
            "-p",
            f"config_file:={json.dumps(merged_path)}",
            "-p",
            f"autostart:={'true' if self._edge.autostart else 'false'}",
            "-p",
            "isolate_chains:=false",
            "-r",
            f"__ns:={self._edge.get_namespace()}",
        ]
        # A session of its own: a terminal's Ctrl-C reaches us alone, and we pass it on once.
        child.process = subprocess.Popen(
            command, start_new_session=True, preexec_fn=self._die_with_parent
        )
        child.merged_path = merged_path
        child.started_at = time.monotonic()
        if child.last_code is not None:
            child.restarts += 1

    def _die_with_parent(self) -> None:
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
