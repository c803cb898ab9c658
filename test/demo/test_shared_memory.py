# SPDX-License-Identifier: Apache-2.0
"""What a killed process leaves in /dev/shm is swept up, and nothing else."""

from __future__ import annotations

import fcntl
from pathlib import Path

from thadam_ros.node.demo.shared_memory import sweep

DEAD, ALIVE, FOREIGN = (f"fastdds_{digit * 16}" for digit in "abc")


def test_sweep_removes_dead_segments_and_the_ports_of_its_domain_only(tmp_path: Path) -> None:
    """A segment with a living owner stays, and so do other domains and strangers."""
    ports = ["fastdds_port10000", "fastdds_port10000_el", "sem.fastdds_port10000_mutex"]
    others = ["fastdds_port7413", "sem.fastdds_port10150_mutex", "something_else"]
    for name in (DEAD, ALIVE, FOREIGN):
        (tmp_path / name).touch()
        (tmp_path / f"{name}_el").touch()
    for name in (*ports, *others):
        (tmp_path / name).touch()
    with open(tmp_path / f"{ALIVE}_el", "rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        # Domain 10: ports 9900 to 10149.
        removed = sweep([DEAD, ALIVE], 10, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {ALIVE, f"{ALIVE}_el", FOREIGN, f"{FOREIGN}_el", *others}
    assert removed == 2 + len(ports)


def test_sweep_of_nothing_removes_nothing(tmp_path: Path) -> None:
    """A segment that its owner removed in order is no error."""
    assert sweep([DEAD], 10, tmp_path) == 0
    assert sweep([], 10, tmp_path / "absent") == 0
