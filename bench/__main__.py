# SPDX-License-Identifier: Apache-2.0
"""Finds the benchmarks beside this file, runs each in a process of its own, prints table and JSON.

With ``--guard`` a ratio below half of the last accepted one (``bench/accepted.json``, written by
``--accept``) is exit code 1; with ``--check`` one below its floor is so too.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ACCEPTED = HERE / "accepted.json"
GUARD = 0.5
BELOW_GUARD = "BELOW HALF OF THE ACCEPTED"
BELOW_FLOOR = "BELOW FLOOR"
#: A benchmark may take this many times ``--seconds``, and this much for its start.
SECONDS_FACTOR = 40.0
SECONDS_EXTRA = 300.0

SUMMARY = "Runs the benchmarks, each in a process of its own; prints ratios, floors and targets."

Result = Mapping[str, Any]


def find() -> list[str]:
    """Modules that define ``run``, by name; nothing is imported for it."""
    found = []
    for path in sorted(HERE.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found.append(path.stem)
    return found


def run_here(name: str, seconds: float, result_path: Path) -> None:
    """Runs one benchmark in this process and writes its results."""
    results = importlib.import_module(f"bench.{name}").run(seconds)
    if isinstance(results, Mapping):
        results = [results]
    result_path.write_text(json.dumps(list(results)), encoding="utf-8")


def run_apart(name: str, seconds: float) -> list[Result]:
    """Runs one benchmark in a child: a clean heap, and no thread of an earlier one."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="thadam-bench-") as scratch:
        path = Path(scratch) / "result.json"
        command = [sys.executable, "-m", "bench", "--child", name, str(path)]
        command += ["--seconds", str(seconds)]
        try:
            code = subprocess.run(
                command,
                cwd=HERE.parent,
                stdin=subprocess.DEVNULL,
                timeout=SECONDS_EXTRA + SECONDS_FACTOR * seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            return [{"name": name, "error": f"no result after {error.timeout:.0f} s"}]
        if code != 0 or not path.is_file():
            return [{"name": name, "error": f"ended with {code}"}]
        results: list[Result] = json.loads(path.read_text(encoding="utf-8"))
    elapsed_s = round(time.monotonic() - begin, 1)
    return [{**result, "bench": name, "elapsed_s": elapsed_s} for result in results]


def verdict(result: Result, accepted: Mapping[str, float]) -> str:
    """One word, or the reason of a failure."""
    if "error" in result:
        return f"FAILED: {result['error']}"
    ratio = float(result["ratio"])
    last = accepted.get(result["name"])
    if last is not None and ratio < GUARD * last:
        return f"{BELOW_GUARD} {last:.2f}"
    if ratio < float(result["floor"]):
        return BELOW_FLOOR
    return "target" if ratio >= float(result["target"]) else "floor"


def print_table(results: Sequence[Result], accepted: Mapping[str, float]) -> None:
    """Ratios with floor and target, details below each."""
    width = max(len(str(result["name"])) for result in results)
    print(f"\n{'benchmark':<{width}}  {'ratio':>8}  {'floor':>7}  {'target':>7}  reached")
    for result in results:
        if "error" in result:
            print(f"{result['name']:<{width}}  {'':>8}  {'':>7}  {'':>7}  {verdict(result, {})}")
            continue
        figures = f"{result['ratio']:8.2f}  {result['floor']:7.2f}  {result['target']:7.2f}"
        print(f"{result['name']:<{width}}  {figures}  {verdict(result, accepted)}")
        for key, value in dict(result.get("details") or {}).items():
            print(f"{'':<{width}}    {key}: {compact(value)}")


def compact(value: object) -> str:
    """Four significant digits, mappings on one line."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(compact(part) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {compact(part)}" for key, part in value.items())
    return str(value)


def machine() -> dict[str, object]:
    """Where the figures come from."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=SUMMARY)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; default: all")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--seconds", type=float, default=5.0, help="size of each (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write the results there; '-': stdout only")
    parser.add_argument("--check", action="store_true", help="exit 1 below a floor or the guard")
    parser.add_argument("--guard", action="store_true", help="exit 1 below half of the accepted")
    parser.add_argument("--accept", action="store_true", help="remember these ratios as the last")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what was asked for."""
    options = parse(argv)
    if options.child:
        run_here(options.child[0], options.seconds, Path(options.child[1]))
        return 0
    known = find()
    if options.list:
        print(*known, sep="\n")
        return 0
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    accepted = json.loads(ACCEPTED.read_text(encoding="utf-8")) if ACCEPTED.is_file() else {}
    results: list[Result] = []
    for name in options.names or known:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        results += run_apart(name, options.seconds)
    document = json.dumps({"machine": machine(), "results": results}, indent=2)
    if options.json == "-":
        print(document)
    else:
        print_table(results, accepted)
        if options.json:
            Path(options.json).write_text(document + "\n", encoding="utf-8")
    good = [result for result in results if "error" not in result]
    if options.accept:
        accepted.update({result["name"]: round(float(result["ratio"]), 3) for result in good})
        ACCEPTED.write_text(json.dumps(accepted, indent=2, sort_keys=True) + "\n")
    if len(good) < len(results):
        return 1
    said = [verdict(result, accepted) for result in good]
    below_guard = any(each.startswith(BELOW_GUARD) for each in said)
    if below_guard and (options.guard or options.check):
        return 1
    return 1 if options.check and BELOW_FLOOR in said else 0


if __name__ == "__main__":
    sys.exit(main())
