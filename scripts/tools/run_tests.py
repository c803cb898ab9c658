# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of ``scripts/test`` one after the other and sums them up.

Only the standard library, and no ROS: every suite runs in the environment that it is about.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import processes

ROOT = Path(__file__).resolve().parents[2]
CORE_PYTHONS = ("3.10", "3.12")
#: One of the two runs on numpy 1, which Humble and Jazzy ship.
CORE_CONSTRAINTS = {"3.10": ["numpy<2"]}
SUITE_SECONDS_MAX = 2400
#: Every process of a suite inherits it, with a value of that suite's own.
MARK_VARIABLE = "THADAM_TEST_RUN"
marks: list[str] = []
#: Process groups of running commands, to be ended when this run is interrupted.
groups: set[int] = set()
#: Minutes of load that say little more on a second distribution; --long runs them there too.
JAZZY_ONLY_LONG = ("test_kill_ledger.py", "test_real_bags.py", "test_robot_mix.py")
#: Would carry one environment into another.
ENVIRONMENT_ONLY = (
    "_ROS_WHEELS_BOOTSTRAP_COMPLETE",
    "AMENT_PREFIX_PATH",
    "CMAKE_PREFIX_PATH",
    "COLCON_PREFIX_PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "THADAM_ROS_DISTRO",
    "VIRTUAL_ENV",
)


@dataclass
class Outcome:
    """What became of one suite; ``note`` says why it failed or was skipped."""

    name: str
    state: str = "ok"
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    note: str = ""


def say(text: str) -> None:
    """One line, at once."""
    print(f"test: {text}", flush=True)


def plain_environment() -> dict[str, str]:
    """This process's environment without any virtual environment or ROS installation."""
    env = {key: value for key, value in os.environ.items() if key not in ENVIRONMENT_ONLY}
    inside = f"{ROOT}/.env"
    env["PATH"] = os.pathsep.join(
        part for part in env.get("PATH", os.defpath).split(os.pathsep) if inside not in part
    )
    return with_bags(env)


def with_bags(env: dict[str, str]) -> dict[str, str]:
    """Says where the real bags are: an installed package cannot tell from its own place."""
    data = ROOT.parent / "shared" / "data"
    if data.is_dir():
        env.setdefault("THADAM_SHARED_DATA", str(data))
    return env


def ros_environment(distro: str) -> dict[str, str]:
    """The environment that ``. scripts/env`` makes."""
    activation = (ROOT / ".env" / "activation.sh").read_text(encoding="utf-8")
    on_system = "THADAM_MODE=system" in activation
    base = with_bags(dict(os.environ)) if on_system else plain_environment()
    if distro:
        base["THADAM_ROS_DISTRO"] = distro
    shown = subprocess.run(
        ["sh", "-c", '. "$0/scripts/env" && exec env -0', str(ROOT)],
        env=base,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    pairs = (entry.partition(b"=") for entry in shown.split(b"\0") if entry)
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}


def execute(command: Sequence[str], env: dict[str, str], log: Path | None = None) -> int:
    """Runs a command in a process group of its own; the group never outlives this function."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("ab")) if log else None
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
        )
        groups.add(process.pid)
        try:
            return process.wait(SUITE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            say(f"stopped after {SUITE_SECONDS_MAX} s: {' '.join(command)}")
            return 124
        finally:
            end_group(process.pid)
            process.wait()
            groups.discard(process.pid)


def end_group(group: int) -> None:
    """SIGTERM to what is left of a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


def read_report(report: Path, outcome: Outcome) -> None:
    """Adds pytest's JUnit report to the outcome."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.counts["failed"] += 1
        elif skipped is not None:
            outcome.counts["skipped"] += 1
            outcome.skips[skip_reason(skipped)] += 1
        else:
            outcome.counts["passed"] += 1


def skip_reason(skipped: ElementTree.Element) -> str:
    """The reason given; for a whole file it hides in the text, behind path and line."""
    message = skipped.get("message", "no reason given")
    found = re.search(r"Skipped: (.*?)['\"]\)?$", skipped.text or "", re.DOTALL)
    return found[1] if message == "collection skipped" and found else message


def run_commands(name: str, commands: Sequence[Sequence[str]], env: dict[str, str]) -> Outcome:
    """A suite of plain commands: all are run, one failure fails it."""
    say(f"--- {name}")
    begin = time.monotonic()
    outcome = Outcome(name)
    for command in commands:
        rc = execute(command, env)
        if rc != 0:
            outcome.state = "FAILED"
            outcome.note = f"'{' '.join(command)}' ended with {rc}"
    outcome.seconds = time.monotonic() - begin
    return outcome


def run_pytest(
    name: str,
    pytest: Path | str,
    arguments: Sequence[str],
    env: dict[str, str],
    log: Path | None = None,
) -> Outcome:
    """A suite of tests, counted from its report; shown as it runs, or written to ``log``."""
    say(f"--- {name}")
    begin = time.monotonic()
    outcome = Outcome(name)
    mark = uuid.uuid4().hex
    marks.append(mark)
    with tempfile.TemporaryDirectory(prefix="thadam-test-") as scratch:
        report = Path(scratch) / "report.xml"
        rc = execute(
            [str(pytest), f"--junit-xml={report}", "-o", "faulthandler_timeout=300", *arguments],
            dict(env, **{MARK_VARIABLE: mark}),
            log,
        )
        if report.is_file():
            read_report(report, outcome)
    outcome.seconds = time.monotonic() - begin
    if rc != 0:
        outcome.state = "FAILED"
        outcome.note = f"pytest ended with {rc}"
    left = processes.settle(MARK_VARIABLE, mark, grace_s=5.0)
    if left:
        processes.stop(MARK_VARIABLE, mark)
        outcome.state = "FAILED"
        outcome.note = f"left processes behind: {left}"
    return outcome


def find_python(version: str) -> str | None:
    """An interpreter of this version with venv: on the path, or among pyenv's."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(
        str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    )
    probe = f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in filter(None, candidates):
        tried = subprocess.run(
            [candidate, "-c", probe], env=plain_environment(), capture_output=True, check=False
        )
        if tried.returncode == 0:
            return candidate
    return None


def copy_sources(target: Path) -> None:
    """What pip builds from; building in the checkout would leave build/ and egg-info there."""
    shutil.copytree(
        ROOT / "thadam_ros", target / "thadam_ros", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)


def make_core(version: str, python: str, env: dict[str, str], log: Path) -> Path | None:
    """A virtual environment with the package as pip installs it; None when that failed."""
    home = ROOT / ".env-core" / version
    stamp = home / "stamp"
    key = hashlib.sha256(
        "\n".join([str(ROOT), python, (ROOT / "setup.py").read_text(encoding="utf-8")]).encode()
    ).hexdigest()
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(prefix="thadam-core-") as scratch:
        source = Path(scratch) / "source"
        copy_sources(source)
        commands = []
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != key:
            shutil.rmtree(home, ignore_errors=True)
            constraints = CORE_CONSTRAINTS.get(version, [])
            commands += [
                [python, "-m", "venv", str(home)],
                [*pip, "setuptools>=68,<80", "wheel"],
                [*pip, "--no-build-isolation", f"{source}[test]", *constraints],
            ]
        else:
            commands += [
                [*pip, "--no-build-isolation", "--no-deps", "--force-reinstall", str(source)]
            ]
        for command in commands:
            if execute(command, env, log) != 0:
                return None
    stamp.write_text(key, encoding="utf-8")
    return home


def run_core(version: str, arguments: Sequence[str]) -> Outcome:
    """The tests without ROS on one CPython, against the installed package."""
    numpy_note = "".join(f", {c}" for c in CORE_CONSTRAINTS.get(version, []))
    name = f"core without ROS, CPython {version}{numpy_note}"
    python = find_python(version)
    if python is None:
        say(f"--- {name}: skipped")
        note = f"no CPython {version} with venv on the path or in ~/.pyenv"
        return Outcome(name, "skipped", note=note)
    say(f"--- {name}: pip install")
    begin = time.monotonic()
    env = plain_environment()
    log = ROOT / ".env-core" / f"{version}.log"
    log.parent.mkdir(exist_ok=True)
    (log.parent / "COLCON_IGNORE").touch()
    log.write_bytes(b"")
    home = make_core(version, python, env, log)
    if home is None:
        show(name, log)
        return Outcome(
            name, "FAILED", time.monotonic() - begin, note=f"pip install failed; see {log}"
        )
    env["PATH"] = f"{home / 'bin'}{os.pathsep}{env['PATH']}"
    env["VIRTUAL_ENV"] = str(home)
    outcome = run_pytest(
        name,
        home / "bin" / "pytest",
        ["-q", "-p", "no:cacheprovider", "-m", "not ros", *arguments],
        env,
        log,
    )
    show(name, log)
    outcome.seconds = time.monotonic() - begin
    return outcome


def show(name: str, log: Path) -> None:
    """The end of a suite's output, in one piece: others run beside it."""
    print(f"test: --- {name}: output\n{log.read_text(errors='replace')[-6000:]}", flush=True)


def run_cores(arguments: Sequence[str]) -> list[Outcome]:
    """All of them side by side; they measure nothing."""
    with ThreadPoolExecutor(len(CORE_PYTHONS)) as pool:
        try:
            return list(pool.map(lambda version: run_core(version, arguments), CORE_PYTHONS))
        except BaseException:
            # Ctrl-C: leaving the pool waits for its threads, and they for their commands.
            for group in list(groups):
                end_group(group)
            raise


def run_jazzy(arguments: Sequence[str]) -> Outcome:
    """The node tests on Jazzy wheels; they have a workspace of their own."""
    name = "node tests, Jazzy wheels"
    begin = time.monotonic()
    setup = dict(plain_environment(), THADAM_ROS_DISTRO="jazzy")
    if execute([str(ROOT / "scripts" / "setup")], setup) != 0:
        return Outcome(name, "FAILED", time.monotonic() - begin, note="scripts/setup failed")
    left_out = [] if arguments else [f"--ignore=test/node/{file}" for file in JAZZY_ONLY_LONG]
    outcome = run_pytest(
        name,
        "pytest",
        ["-q", "-p", "no:cacheprovider", "-m", "ros", "test/node", *left_out, *arguments],
        ros_environment("jazzy"),
    )
    outcome.seconds = time.monotonic() - begin
    return outcome


def report(outcomes: Sequence[Outcome]) -> int:
    """Prints suites, times and skips; returns the exit code."""
    total: Counter[str] = Counter()
    width = max(len(outcome.name) for outcome in outcomes)
    print("\nSuites")
    for outcome in outcomes:
        total.update(outcome.counts)
        counts = ", ".join(f"{n} {what}" for what, n in sorted(outcome.counts.items()))
        print(f"  {outcome.name:<{width}}  {outcome.state:<7}  {outcome.seconds:6.1f} s  {counts}")
        if outcome.note:
            print(f"  {'':<{width}}  {outcome.note}")
    if any(outcome.skips for outcome in outcomes):
        print("\nSkipped tests")
        for outcome in outcomes:
            for reason, number in outcome.skips.most_common():
                print(f"  {number:4d}  {reason}  [{outcome.name}]")
    broken = [outcome for outcome in outcomes if outcome.state == "FAILED"]
    # A suite that failed without a failed test (style, a leak, a crash) is one failure.
    failed = total["failed"] + sum(1 for outcome in broken if not outcome.counts["failed"])
    print(f"\n{total['passed']} passed, {failed} failed, {total['skipped']} skipped", flush=True)
    return 1 if broken or failed or not total["passed"] else 0


def main() -> int:
    """See ``scripts/test``."""
    parser = argparse.ArgumentParser(prog="scripts/test", allow_abbrev=False)
    parser.add_argument("--long", action="store_true", help="run the large forms as well")
    options, pytest_arguments = parser.parse_known_args()
    long = ["--long"] if options.long else []
    ros = ros_environment("")
    if pytest_arguments:
        return report([run_pytest("tests", "pytest", [*long, *pytest_arguments], ros)])
    outcomes = [
        run_commands("style", [["ruff", "check"], ["ruff", "format", "--check"]], ros),
        run_commands("types", [["mypy"]], ros),
        run_pytest("tests with ROS", "pytest", ["-q", "--durations=10", *long], ros),
    ]
    if os.environ.get("THADAM_TEST_JAZZY") == "1" or os.environ.get("CI"):
        outcomes.append(run_jazzy(long))
    outcomes += run_cores(long)
    return report(outcomes)


if __name__ == "__main__":
    # Ctrl-C: the suite's group is ended on the way out, whatever it is doing.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for each in marks:
            processes.stop(MARK_VARIABLE, each)
