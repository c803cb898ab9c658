# SPDX-License-Identifier: Apache-2.0
"""The run itself: publisher and edge started, a sink broken, the edge killed, everything drained.

One thread, one loop: every wait goes through :meth:`Story.turn`, which shows the status and leaves
with :class:`StoryInterruptedError` once a signal came.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from thadam_ros.chain.cursor import read_cursor
from thadam_ros.errors import ThadamError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.node.demo.children import Child, Children
from thadam_ros.node.demo.ledger import Ledger, read_ledger
from thadam_ros.node.demo.screen import Screen, read_status
from thadam_ros.node.demo.stage import Stage
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.reader import WalReader

#: The broken sink: its folder is replaced by a file for this long.
BREAK_SECONDS = 5.0
#: When the sink is broken and when the edge is killed, as parts of the run.
BREAK_AT = 0.12
KILL_AT = 0.6
BROKEN_SINK = "mirror"
_TURN_S = 0.1
_START_DEADLINE_S = 60.0
_HEAL_DEADLINE_S = 45.0
_DRAIN_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 15.0
#: Nothing new in the log for this long after the last message: it is complete.
_QUIET_S = 2.0


class StoryInterruptedError(Exception):
    """A signal asked for the end."""


class StoryFailedError(Exception):
    """The run could not be carried through; the text says why."""


@dataclass(slots=True)
class Facts:
    """What happened.

    Attributes:
        kills: Wall clock of each SIGKILL.
        was_degraded, was_healed: The broken sink was seen in these states, in this order.
        refused: Topic -> messages that capture refused, over all processes.
        lost_by_capture: Topic -> losses the last process counted by sequence numbers.
        exit_code: Of the edge after its orderly end.
    """

    kills: list[int] = field(default_factory=list)
    was_degraded: bool = False
    was_healed: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    lost_by_capture: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = None


class Story:
    """One run of the demo.

    Args:
        interrupted: Tells whether a signal came.
    """

    def __init__(
        self,
        output: Path,
        stage: Stage,
        seconds: float,
        domain: int,
        screen: Screen,
        children: Children,
        interrupted: Callable[[], bool],
    ) -> None:
        self.output = output
        self.data_dir = output / "data"
        self.ledger_path = output / "ledger.jsonl"
        self.facts = Facts()
        self._stage = stage
        self._seconds = seconds
        self._screen = screen
        self._children = children
        self._interrupted = interrupted
        self._environment = _environment(output, domain)
        self._fs = OsFileSystem()
        self._edge: Child | None = None
        self._publisher: Child | None = None
        self._counted: dict[int, dict[str, str]] = {}
        self._is_repaired = False

    def run(self) -> None:
        """Carry the run through; afterwards no child is left.

        Raises:
            StoryInterruptedError, StoryFailedError
        """
        self._screen.say("the publisher starts; what is latched is published first")
        self._publisher = self._children.start(
            "publisher",
            self._stage.command,
            self._environment,
            str(self.output / "publisher.log"),
        )
        self._wait(self._is_declared, "the publisher to declare itself", _START_DEADLINE_S)
        self._start_edge()
        self._wait(self._has_started, "matched subscriptions", _START_DEADLINE_S)
        start_s = time.monotonic()
        self._screen.say("all subscriptions are matched; the publisher speaks")
        self._pause_until(start_s + BREAK_AT * self._seconds)
        self._break_sink()
        self._pause_until(start_s + KILL_AT * self._seconds)
        self._kill_edge()
        self._wait(self._has_ended, "the publisher to finish", self._seconds + _START_DEADLINE_S)
        self._screen.say("the publisher has said everything")
        self._wait(self._is_healed, f"sink {BROKEN_SINK} to deliver again", _HEAL_DEADLINE_S)
        self._wait_for_drain()
        self._stop()

    def turn(self) -> None:
        """Show the status once and pause a little.

        Raises:
            StoryInterruptedError: A signal came.
            StoryFailedError: A process ended that should run.
        """
        if self._interrupted():
            raise StoryInterruptedError
        for child in (self._edge, self._publisher):
            if child is not None and child.returncode() is not None:
                raise StoryFailedError(
                    f"the {child.name} ended with exit code {child.returncode()}; the end of its"
                    f" output ({child.log}):\n{child.log_tail()}"
                )
        documents = read_status(self.data_dir / "status")
        self._screen.status(documents, running=self._edge is not None)
        self._note(documents)
        self._watch_broken_sink(documents)
        time.sleep(_TURN_S)

    # Steps.

    def _start_edge(self) -> None:
        command = (
            *(sys.executable, "-m", "thadam_ros.node.main", "--ros-args"),
            *("-r", f"__ns:={self._stage.namespace}"),
            *("-p", f"config_file:={orjson.dumps(str(self._stage.config)).decode()}"),
            *("-p", "autostart:=true"),
        )
        log = str(self.output / "edge.log")
        self._edge = self._children.start("edge", command, self._environment, log)
        self._screen.say(f"the edge runs, pid {self._edge.pid}")

    def _break_sink(self) -> None:
        """Put a file where the sink's folder was; for root no permission would do."""
        folder, aside = self.output / BROKEN_SINK, self.output / f"{BROKEN_SINK}.aside"
        self._wait(folder.is_dir, f"the first files of sink {BROKEN_SINK}", _START_DEADLINE_S)
        self._screen.say(
            f"BREAKING: the folder of sink {BROKEN_SINK} is taken away for {BREAK_SECONDS:g} s",
            "yellow",
        )
        os.rename(folder, aside)
        folder.write_text("The demo took this folder away for a while.\n", encoding="utf-8")
        try:
            end = time.monotonic() + BREAK_SECONDS
            while time.monotonic() < end:
                self.turn()
        finally:
            folder.unlink()
            os.rename(aside, folder)
        self._is_repaired = True
        self._screen.say(f"the folder of sink {BROKEN_SINK} is back", "yellow")

    def _watch_broken_sink(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        document = documents.get(f"chain.{BROKEN_SINK}", {})
        state, facts = document.get("state"), self.facts
        if state == "degraded" and not facts.was_degraded and not self._is_repaired:
            facts.was_degraded = True
            self._screen.say(f"sink {BROKEN_SINK} is DEGRADED: {document.get('reason')}", "yellow")
        if state == "running" and self._is_repaired and not facts.was_healed:
            facts.was_healed = True
            self._screen.say(f"sink {BROKEN_SINK} is running again", "green")

    def _is_healed(self) -> bool:
        return self.facts.was_healed

    def _kill_edge(self) -> None:
        assert self._edge is not None
        edge, self._edge = self._edge, None
        self._screen.say(
            f"KILLING: SIGKILL to the edge, pid {edge.pid}; then it starts anew", "red"
        )
        self.facts.kills.append(time.time_ns())
        edge.kill()
        self._start_edge()

    def _wait_for_drain(self) -> None:
        last: tuple[Position, float] = (BEFORE_ALL, time.monotonic())
        deadline = time.monotonic() + _DRAIN_DEADLINE_S
        reader = WalReader(str(self.data_dir / "wal"), fs=self._fs)
        try:
            while True:
                self.turn()
                durable, now = reader.durable, time.monotonic()
                if durable != last[0]:
                    last = (durable, now)
                if now - last[1] >= _QUIET_S and self._behind(durable) == []:
                    return
                if now > deadline:
                    behind = ", ".join(self._behind(durable)) or "the log still grows"
                    raise StoryFailedError(f"not drained after {_DRAIN_DEADLINE_S:g} s: {behind}")
        finally:
            reader.close()

    def _behind(self, durable: Position) -> list[str]:
        """Return the sinks whose cursor is not at the end of the log."""
        chains = self.data_dir / "chains"
        found = []
        for folder in sorted(chains.iterdir()) if chains.is_dir() else []:
            cursor = read_cursor(str(folder), self._fs)
            if cursor is None or cursor.position < durable:
                found.append(f"{folder.name} is at {cursor.position if cursor else 'nothing'}")
        return found

    def _stop(self) -> None:
        """End the edge as an operator would, then the publisher."""
        assert self._edge is not None
        edge, self._edge = self._edge, None
        edge.signal_group(signal.SIGINT)
        deadline = time.monotonic() + _STOP_DEADLINE_S
        while edge.returncode() is None:
            if time.monotonic() > deadline:
                raise StoryFailedError(f"the edge did not end {_STOP_DEADLINE_S:g} s after SIGINT")
            self.turn()
        self.facts.exit_code = edge.returncode()
        self._note(read_status(self.data_dir / "status"))
        self._sum_up()
        self._publisher = None
        self._children.close(patience_s=5.0)

    # Watching.

    def _wait(self, condition: Callable[[], bool], what: str, deadline_s: float) -> None:
        end = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end:
                raise StoryFailedError(
                    f"waited {deadline_s:g} s for {what}; {self._publisher_tail()}"
                )
            self.turn()

    def _publisher_tail(self) -> str:
        logs = " and ".join(str(self.output / name) for name in ("edge.log", "publisher.log"))
        return f"see {logs}"

    def _pause_until(self, end_s: float) -> None:
        while time.monotonic() < end_s:
            self.turn()

    def _ledger(self) -> Ledger:
        try:
            return read_ledger(str(self.ledger_path))
        except FileNotFoundError:
            return Ledger()

    def _is_declared(self) -> bool:
        return bool(self._ledger().publishers)

    def _has_started(self) -> bool:
        return self._ledger().start_ns > 0

    def _has_ended(self) -> bool:
        # Read the tail only: this is asked ten times a second.
        with open(self.ledger_path, "rb") as file:
            file.seek(max(0, os.path.getsize(self.ledger_path) - 64))
            return b'"end"' in file.read()

    def _note(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the newest counters of capture for each process."""
        for name, document in documents.items():
            if name.startswith("source."):
                self._counted[int(document.get("pid", 0))] = dict(document.get("details", {}))

    def _sum_up(self) -> None:
        for details in self._counted.values():
            lost = {}
            for topic, line in details.items():
                figures = dict(re.findall(r"(\w+)=(\w+)", line)) if topic.startswith("/") else {}
                if figures.get("refused", "0") != "0":
                    refused = self.facts.refused.get(topic, 0) + int(figures["refused"])
                    self.facts.refused[topic] = refused
                if figures.get("lost_method") == "sequence":
                    lost[topic] = int(figures["lost"])
            self.facts.lost_by_capture = lost


def _environment(output: Path, domain: int) -> dict[str, str]:
    environment = dict(os.environ)
    for name in ("ROS_LOCALHOST_ONLY", "ROS_NAMESPACE", "ROS_DISCOVERY_SERVER"):
        environment.pop(name, None)
    environment.update(
        ROS_DOMAIN_ID=str(domain),
        ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST",
        ROS_STATIC_PEERS="",
        THADAM_DEMO_DIR=str(output),
        PYTHONUNBUFFERED="1",
    )
    return environment


def describe_failure(exc: BaseException) -> str:
    """Return one sentence for what ended a run."""
    if isinstance(exc, (StoryFailedError, ThadamError, OSError)):
        return str(exc)
    return f"{type(exc).__name__}: {exc}"
