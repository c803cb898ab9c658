# SPDX-License-Identifier: Apache-2.0
"""Resolves the ranges of setup.py for other Pythons and machines, without installing anything.

For CPython 3.10 and 3.12, on x86_64 and aarch64, wheels only, with numpy 1 and with numpy 2, all
extras together. Exit code 1 when one does not solve. Without a reachable package index the check
is skipped and says so.
"""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.12")
MACHINES = ("x86_64", "aarch64")
NUMPYS = ("numpy<2", "numpy>=2")
MANYLINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
UNREACHABLE = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "Connection refused",
    "Temporary failure in name resolution",
    "ProxyError",
)


def requirements() -> list[str]:
    """REQUIRES and every extra of setup.py, read without running it."""
    values = {}
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("REQUIRES", "EXTRAS"):
                values[name] = ast.literal_eval(node.value)
    extras = [requirement for extra in values["EXTRAS"].values() for requirement in extra]
    return [*values["REQUIRES"], *extras]


def resolve(python: str, machine: str, numpy: str, wanted: list[str]) -> tuple[int, str]:
    """pip's exit code and output for one combination."""
    with tempfile.TemporaryDirectory(prefix="thadam-resolve-") as target:
        platforms = [f"--platform={name}_{machine}" for name in MANYLINUX]
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-input"]
        command += ["--ignore-installed", "--only-binary=:all:", "--implementation=cp"]
        command += ["--disable-pip-version-check", "--retries=2", f"--python-version={python}"]
        command += [*platforms, f"--target={target}", numpy, *wanted]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.returncode, done.stdout


def check(case: tuple[str, str, str], wanted: list[str]) -> tuple[bool, str]:
    """Whether a combination is all right, and the line about it."""
    python, machine, numpy = case
    begin = time.monotonic()
    code, output = resolve(python, machine, numpy, wanted)
    name = f"dependencies: CPython {python}, {machine}, {numpy}"
    if code == 0:
        return True, f"{name}: solved ({time.monotonic() - begin:.0f} s)"
    if any(sign in output for sign in UNREACHABLE):
        return True, f"{name}: skipped, the package index cannot be reached"
    return False, f"{name}: DO NOT SOLVE\n{output}"


def main() -> int:
    """Checks every combination, two at a time, one line each."""
    wanted = requirements()
    cases = list(itertools.product(PYTHONS, MACHINES, NUMPYS))
    good = True
    with ThreadPoolExecutor(2) as pool:
        for fine, line in pool.map(lambda case: check(case, wanted), cases):
            good = good and fine
            print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
