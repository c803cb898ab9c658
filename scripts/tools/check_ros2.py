# SPDX-License-Identifier: Apache-2.0
"""The checks of ``scripts/check-ros2``: only ros2 commands, as an operator would type them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import processes

VARIABLE = "THADAM_CHECK_ROS2"
RUN = uuid.uuid4().hex
DEADLINE_S = 30.0
COMMAND_SECONDS_MAX = 20.0
#: launch sends SIGTERM five seconds after SIGINT; by then the process must have left by itself.
ESCALATION_S = 5.0
ARGUMENTS = (
    "namespace",
    "config_file",
    "params_file",
    "data_dir",
    "use_sim_time",
    "autostart",
    "isolate_chains",
    "log_level",
    "use_respawn",
    "metrics_port",
)
DOCUMENT = """
schema: 1
edge: {{data_dir: {data}, lock_file: {data}/datasets.lock, clock: always_synced,
       identity: {{robot: check}}}}
wal: {{budget: 256MiB, min_free: 1MiB}}
sources: {{robot: {{type: ros2}}}}
datasets:
  words:
    match: {{source: robot, topics: [words]}}
    type: std_msgs/msg/String
    fields: {{word: /data}}
sinks:
  lake: {{type: parquet, url: {lake}, rotation: {{max_age: 1s}}}}
"""


class CheckError(Exception):
    """A check did not find what it expects; the text is shown in the table."""


def environment() -> dict[str, str]:
    """The caller's environment on a domain of its own; children carry the mark."""
    env = dict(os.environ, **{VARIABLE: RUN})
    env["ROS_DOMAIN_ID"] = str(random.SystemRandom().randrange(40, 100))
    env["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    env["ROS_LOCALHOST_ONLY"] = "1" if env.get("ROS_DISTRO") == "humble" else "0"
    env["PYTHONUNBUFFERED"] = "1"
    return env


ENV = environment()


def ros2(*arguments: str, seconds: float = COMMAND_SECONDS_MAX) -> str:
    """Output of one ros2 command; raises when it fails or takes too long."""
    try:
        done = subprocess.run(
            ["ros2", *arguments],
            env=ENV,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CheckError(f"'ros2 {' '.join(arguments)}' took longer than {seconds:g} s") from None
    if done.returncode != 0:
        raise CheckError(f"'ros2 {' '.join(arguments)}' said: {done.stdout.strip()[-300:]}")
    return done.stdout


def wait_for(what: str, probe: Callable[[], bool], seconds: float = DEADLINE_S) -> None:
    """Polls until true; a failing ros2 command counts as not yet."""
    deadline = time.monotonic() + seconds
    last = ""
    while time.monotonic() < deadline:
        try:
            if probe():
                return
            last = ""
        except CheckError as error:
            last = f" ({error})"
        time.sleep(0.2)
    raise CheckError(f"{what}: not within {seconds:g} s{last}")


def state_of(node: str) -> str:
    """Lifecycle state, as ``active``."""
    return ros2("lifecycle", "get", node).split()[0]


def wait_state(node: str, state: str) -> None:
    """Waits for a lifecycle state."""
    wait_for(f"{node} {state}", lambda: state_of(node) == state)


def expect(condition: bool, text: str) -> None:
    """Fails the check with a text."""
    if not condition:
        raise CheckError(text)


@dataclass
class Started:
    """A running ros2 command with a terminal of its own, and its output."""

    process: subprocess.Popen[bytes]
    log: Path
    terminal: int

    def output(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace")

    def interrupt(self, seconds: float = 3 * ESCALATION_S) -> float:
        """Types Ctrl-C, once; returns the seconds until everything has ended."""
        begin = time.monotonic()
        if self.terminal >= 0:
            os.write(self.terminal, b"\x03")
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise CheckError(f"still running {seconds:g} s after Ctrl-C") from None
        finally:
            self.close()
        return time.monotonic() - begin

    def close(self) -> None:
        """Gives the terminal back; may be called again."""
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1


@dataclass
class Bench:
    """Scratch folder and everything started in it."""

    root: Path
    started: list[Started] = field(default_factory=list)

    def start(self, *arguments: str) -> Started:
        """Starts a ros2 command in a session with a terminal, as a shell would."""
        log = self.root / f"log-{len(self.started)}"
        terminal, inner = pty.openpty()
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    ["ros2", *arguments],
                    env=ENV,
                    cwd=self.root,
                    stdin=inner,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # So that Ctrl-C reaches the whole group, and launch knows that it does.
                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                )
        finally:
            os.close(inner)
        self.started.append(Started(process, log, terminal))
        return self.started[-1]

    def launch(self, **arguments: str) -> Started:
        """``ros2 launch thadam_ros edge.launch.py`` with these arguments."""
        given = [f"{name}:={value}" for name, value in arguments.items()]
        return self.start("launch", "thadam_ros", "edge.launch.py", *given)

    @contextlib.contextmanager
    def launched(self, **arguments: str) -> Iterator[Started]:
        """The same, ended by Ctrl-C."""
        started = self.launch(**arguments)
        try:
            yield started
        finally:
            started.interrupt()

    def document(self, name: str, lake: str | None = None) -> Path:
        """A configuration with a data folder of its own."""
        data = self.root / name
        path = self.root / f"{name}.yaml"
        path.write_text(DOCUMENT.format(data=data, lake=lake or self.root / f"{name}-lake"))
        return path

    def close(self) -> None:
        """Ends whatever still runs, the ros2 daemon too."""
        for started in self.started:
            if started.process.poll() is None:
                with contextlib.suppress(CheckError):
                    started.interrupt()
            started.close()
        with contextlib.suppress(CheckError):
            ros2("daemon", "stop")


def rows(lake: Path) -> int:
    """Parquet files delivered."""
    return sum(1 for path in lake.rglob("*.parquet") if path.is_file())


# --- the checks, in the order of the table ------------------------------------------------------


def check_arguments_are_described(bench: Bench) -> str:
    """launch --show-args describes every argument."""
    shown = ros2("launch", "thadam_ros", "edge.launch.py", "--show-args")
    for name in ARGUMENTS:
        found = re.search(rf"'{name}':\n\s+(\S.*)\n", shown)
        expect(found is not None and len(found[1]) > 20, f"{name} is not described")
    return f"{len(ARGUMENTS)} arguments"


def check_every_argument(bench: Bench) -> str:
    """launch with every argument."""
    params = bench.root / "params.yaml"
    params.write_text("/**:\n  ros__parameters:\n    wal: {commit_interval: 100ms}\n")
    data = bench.root / "given"
    with bench.launched(
        namespace="all",
        config_file=str(bench.document("all")),
        params_file=str(params),
        data_dir=str(data),
        use_sim_time="true",
        autostart="true",
        isolate_chains="true",
        log_level="debug",
        use_respawn="true",
        metrics_port="0",
    ) as started:
        wait_state("/all/thadam", "active")
        wait_state("/all/thadam_lake", "active")
        expect((data / "wal").is_dir(), f"data_dir: no WAL in {data}")
        given = ros2("param", "get", "/all/thadam", "use_sim_time")
        expect("True" in given, f"use_sim_time: {given.strip()}")
        given = ros2("param", "get", "/all/thadam", "wal.commit_interval")
        expect("100ms" in given, f"params_file: {given.strip()}")
        pids = {pid for pid, line in edge_processes().items() if "/all" in line}
        expect(len(pids) == 2, f"isolate_chains: {len(pids)} processes, not 2")
        expect("[DEBUG]" in started.output(), "log_level: no debug line in the output")
        given = ros2("param", "get", "/all/thadam", "metrics_port")
        expect(given.split()[-1] == "0", f"metrics_port: {given.strip()}")
    return "namespace, parameters, data_dir, isolation, log level"


def edge_processes() -> dict[int, str]:
    """The processes of the nodes: pid -> command line."""
    return {
        pid: line
        for pid, line in processes.marked(VARIABLE, RUN).items()
        if "lib/thadam_ros/thadam_edge" in line or "thadam_ros.node" in line
    }


def check_two_namespaces(bench: Bench) -> str:
    """two edges in two namespaces, rows in both."""
    with (
        bench.launched(namespace="r1", config_file=str(bench.document("r1"))),
        bench.launched(namespace="r2", config_file=str(bench.document("r2"))),
    ):
        for robot in ("r1", "r2"):
            wait_state(f"/{robot}/thadam", "active")
            wait_state(f"/{robot}/thadam_lake", "active")
        talk = [
            bench.start("topic", "pub", "-r", "20", f"/{robot}/words", "std_msgs/msg/String", "{}")
            for robot in ("r1", "r2")
        ]
        for robot in ("r1", "r2"):
            lake = bench.root / f"{robot}-lake"
            wait_for(f"Parquet of {robot}", lambda lake=lake: rows(lake) > 0)
        for publisher in talk:
            publisher.interrupt()
    return "each with its own nodes, topics and tables"


def check_name_remap(bench: Bench) -> str:
    """ros2 run with a node and a topic remap."""
    running = bench.start(
        "run",
        "thadam_ros",
        "thadam_edge",
        "--ros-args",
        "-r",
        "__node:=recorder",
        "-r",
        "words:=/elsewhere/words",
        "-p",
        f"config_file:={bench.document('remap')}",
        "-p",
        "autostart:=true",
    )
    try:
        wait_state("/recorder", "active")
        wait_state("/thadam_lake", "active")
        talk = bench.start(
            "topic", "pub", "-r", "20", "/elsewhere/words", "std_msgs/msg/String", "{}"
        )
        wait_for("Parquet of the remapped topic", lambda: rows(bench.root / "remap-lake") > 0)
        talk.interrupt()
    finally:
        running.interrupt()
    return "thadam renamed, its chain not; the topic followed"


def check_autostart(bench: Bench) -> str:
    """autostart:=false leaves every node unconfigured."""
    with bench.launched(config_file=str(bench.document("manual")), autostart="false"):
        wait_state("/thadam", "unconfigured")
        wait_state("/thadam_lake", "unconfigured")
        # Nothing may change by itself afterwards; three answers of each node show it.
        for _ in range(3):
            expect(state_of("/thadam") == "unconfigured", "thadam started by itself")
            expect(state_of("/thadam_lake") == "unconfigured", "thadam_lake started by itself")
    return "and the other checks show true"


def check_lifecycle(bench: Bench) -> str:
    """lifecycle of each node by hand."""
    walk = (
        ("configure", "inactive"),
        ("activate", "active"),
        ("deactivate", "inactive"),
        ("cleanup", "unconfigured"),
        ("configure", "inactive"),
        ("shutdown", "finalized"),
    )
    with bench.launched(config_file=str(bench.document("life")), autostart="false"):
        for node in ("/thadam", "/thadam_lake"):
            wait_state(node, "unconfigured")
            offered = ros2("lifecycle", "list", node)
            expect("configure" in offered, f"{node} offers {offered!r}")
        for transition, state in walk[:-2]:
            for node in ("/thadam", "/thadam_lake"):
                answer = ros2("lifecycle", "set", node, transition)
                expect("successful" in answer.lower(), f"{node} {transition}: {answer.strip()}")
                expect(state_of(node) == state, f"{node} is {state_of(node)} after {transition}")
        with contextlib.suppress(CheckError):
            ros2("lifecycle", "set", "/thadam", "activate")
        expect(state_of("/thadam") == "unconfigured", "an illegal transition changed the state")
    return "configure, activate, deactivate, cleanup; an illegal one refused"


def status_field(node: str, name: str) -> str:
    """One field of the node's status."""
    return ros2("topic", "echo", "--once", "--field", name, f"{node}/status").split()[0]


def check_param_dump(bench: Bench) -> str:
    """param dump, started from again, gives the same configuration."""
    dump = bench.root / "parameters.yaml"
    with bench.launched(namespace="d", config_file=str(bench.document("dump"))):
        wait_state("/d/thadam", "active")
        wait_state("/d/thadam_lake", "active")
        before = status_field("/d/thadam", "config_hash")
        dump.write_text(ros2("param", "dump", "/d/thadam"))
    with bench.launched(namespace="d", params_file=str(dump)):
        wait_state("/d/thadam", "active")
        after = status_field("/d/thadam", "config_hash")
    expect(len(before) > 8, f"config_hash is {before!r}")
    expect(before == after, f"config_hash {before} became {after}")
    return f"config_hash {before[:12]} both times"


def check_respawn(bench: Bench) -> str:
    """use_respawn:=true after SIGKILL."""
    with bench.launched(config_file=str(bench.document("again")), use_respawn="true"):
        wait_state("/thadam", "active")
        (pid,) = edge_processes()
        os.kill(pid, signal.SIGKILL)
        wait_for("a new process", lambda: bool(edge_processes().keys() - {pid}))
        wait_state("/thadam", "active")
        wait_state("/thadam_lake", "active")
    return "active again, locks taken over"


def check_interrupt(bench: Bench) -> str:
    """Ctrl-C while capturing."""
    started = bench.launch(config_file=str(bench.document("stop")))
    return interrupted(bench, started, "/thadam_lake", "active")


def check_interrupt_with_dead_sink(bench: Bench) -> str:
    """Ctrl-C with a sink that cannot deliver."""
    blocked = bench.root / "blocked"
    blocked.write_text("a file where the sink wants a folder")
    document = bench.document("dead", lake=str(blocked / "lake"))
    return interrupted(bench, bench.launch(config_file=str(document)), "/thadam", "active")


def interrupted(bench: Bench, started: Started, node: str, state: str) -> str:
    """Publishes, waits until frames are durable, types Ctrl-C, and reads what launch says."""
    try:
        wait_state("/thadam", "active")
        wait_state(node, state)
        talk = bench.start("topic", "pub", "-r", "50", "/words", "std_msgs/msg/String", "{}")
        wait_for(
            "durable frames",
            lambda: int(status_field("/thadam", "wal_durable_position")) > 0,
        )
    finally:
        seconds = started.interrupt()
    talk.interrupt()
    output = started.output()
    expect("escalating" not in output, f"launch had to escalate after {ESCALATION_S:g} s")
    expect("process has died" not in output, f"it died: {output[-300:]}")
    expect(not edge_processes(), f"left behind: {edge_processes()}")
    return f"ended by itself in {seconds:.1f} s"


CHECKS: tuple[Callable[[Bench], str], ...] = (
    check_arguments_are_described,
    check_every_argument,
    check_two_namespaces,
    check_name_remap,
    check_autostart,
    check_lifecycle,
    check_param_dump,
    check_respawn,
    check_interrupt,
    check_interrupt_with_dead_sink,
)


def excerpt(started: Started) -> str:
    """The last lines that a reader of a failure wants to see."""
    lines = [line for line in started.output().splitlines() if "[DEBUG]" not in line]
    return "\n".join(f"        | {line}" for line in lines[-12:])


def run_check(check: Callable[[Bench], str]) -> tuple[bool, str]:
    """One check in a scratch folder of its own; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="thadam-check-") as scratch:
        bench = Bench(Path(scratch))
        try:
            passed, detail = True, check(bench)
        except CheckError as error:
            passed, detail = False, str(error)
            detail += "".join(f"\n{excerpt(started)}" for started in bench.started)
        finally:
            bench.close()
            left = processes.settle(VARIABLE, RUN, grace_s=ESCALATION_S)
            processes.stop(VARIABLE, RUN)
    if left:
        return False, f"{detail}; left behind: {left}"
    return passed, detail


def main(names: list[str]) -> int:
    """Runs the checks, all or the named ones, and prints the table."""
    if shutil.which("ros2") is None:
        print("ros2 is not on the path", file=sys.stderr)
        return 3
    distro = os.environ.get("ROS_DISTRO", "unknown")
    print(f"ROS 2 {distro}, domain {ENV['ROS_DOMAIN_ID']}, loopback only", flush=True)
    failed = 0
    for check in CHECKS:
        if names and check.__name__.removeprefix("check_") not in names:
            continue
        begin = time.monotonic()
        passed, detail = run_check(check)
        failed += not passed
        title = str(check.__doc__).strip().rstrip(".")
        seconds = time.monotonic() - begin
        mark = "pass" if passed else "FAIL"
        print(f"  {mark}  {title:<56} {seconds:5.1f} s  {detail}", flush=True)
    print("all passed" if not failed else f"{failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
