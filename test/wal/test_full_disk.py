# SPDX-License-Identifier: Apache-2.0
"""A real disk of a few MiB that capture fills, under both policies, with and without min_free."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
DISK_BYTES = 4 << 20
MIN_FREE = 1 << 20
#: The log cannot see how much is free; only ENOSPC tells.
UNKNOWN = -1
CHILD = Path(__file__).with_name("full_disk_child.py")


def on_small_disk(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command with a tmpfs of its own mounted on ``folder``."""
    mount = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {shlex.quote(str(folder))}"
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && {command}"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A folder on which a small disk can be mounted; skips where the kernel does not allow it."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) here: a disk of limited size cannot be mounted")
    tried = on_small_disk(tmp_path, "true")
    if tried.returncode:
        pytest.skip(f"no tmpfs in a user namespace here: {tried.stderr.strip()}")
    return tmp_path


def run_child(disk: Path, when_full: str, min_free: int, frames: int = 0) -> dict[str, Any]:
    arguments = [sys.executable, str(CHILD), str(disk), when_full, str(min_free), str(frames)]
    done = on_small_disk(disk, shlex.join(arguments))
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    # Whatever the policy: no crash, no corrupt file, nothing lost without a counter.
    assert (outcome["failed"], outcome["first_error"], outcome["damage"]) == (False, "", 0)
    assert outcome["lost_records"] == 0
    assert outcome["refused_records"] == outcome["refused"]
    assert sum(outcome["refused_by_cause"].values()) == outcome["refused"]
    assert outcome["read"] == len(outcome["positions"])
    assert outcome["wal_bytes"] == outcome["files_bytes"] <= DISK_BYTES
    assert outcome["durable"] == outcome["positions"][-1]
    return outcome


@pytest.mark.parametrize("min_free", [UNKNOWN, 0, MIN_FREE])
def test_stop_capture_on_a_small_disk_keeps_the_oldest_and_resumes_with_space(
    small_disk: Path, min_free: int
) -> None:
    """Everything accepted is kept from the first on; what was refused is counted exactly."""
    outcome = run_child(small_disk, "stop_capture", min_free)
    assert outcome["kept"] == outcome["accepted"]
    assert outcome["kept"][0] == 0
    assert outcome["positions"] == list(range(outcome["durable"] + 1))
    assert outcome["dropped_frames"] == 0
    # It stopped, and it went on in the same process.
    assert outcome["refused"] >= 1
    assert len(outcome["accepted"]) > outcome["accepted_at_stop"]
    if min_free != UNKNOWN:
        assert outcome["held_up_at_stop"] == "min_free"
        assert set(outcome["refused_by_cause"]) == {"min_free"}
        assert outcome["free_at_stop"] > min_free - 100_000
        assert outcome["storage_refusals"] == 0
    else:
        assert outcome["storage_full_at_stop"]
        assert set(outcome["refused_by_cause"]) == {"storage_full"}
        assert outcome["storage_refusals"] >= 1


@pytest.mark.parametrize("min_free", [UNKNOWN, 0, MIN_FREE])
def test_drop_oldest_on_a_small_disk_keeps_the_newest(small_disk: Path, min_free: int) -> None:
    """Three disks full pass through; the end is there without a hole, the rest is counted."""
    outcome = run_child(small_disk, "drop_oldest", min_free, 3 * DISK_BYTES // 20_000)
    kept, accepted = outcome["kept"], outcome["accepted"]
    assert len(kept) > (DISK_BYTES - max(0, min_free)) // 20_000 // 2
    assert kept == accepted[-len(kept) :]
    first = outcome["positions"][0]
    assert outcome["positions"] == list(range(first, len(accepted)))
    assert outcome["dropped_frames"] == first
    assert outcome["dropped_ranges"] == [[0, first - 1]]
