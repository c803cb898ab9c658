# SPDX-License-Identifier: Apache-2.0
"""Exactly once at the reader's side, whatever the moment the process ends (spec 5.1, 5b P2)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sink_fixtures import (
    CUT_ROWS,
    CUTS,
    Killed,
    dying_fs,
    plain_fs,
    run_lane,
    sealed_names,
    stamped_cut,
    visible_positions,
)

ALL_POSITIONS = [1000 * cut + i for cut in range(1, CUTS + 1) for i in range(CUT_ROWS)]


@pytest.fixture(params=["same filesystem", "other filesystem"])
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder for targets: beside the chain, or on another filesystem."""
    if request.param == "same filesystem":
        yield tmp_path / "targets"
        return
    shm = Path("/dev/shm")
    if not shm.is_dir() or os.stat(shm).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is not another filesystem here")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)


def _calls_of_a_run(tmp_path: Path, roots: Path) -> list[str]:
    fs = plain_fs()
    (roots / "dry").mkdir(parents=True)
    run_lane(str(tmp_path / "dry"), str(roots / "dry" / "lake"), fs)
    return [name for name, _ in fs.calls]


def _assert_only_stamped_once(chain_dir: Path, url: Path) -> None:
    seen = visible_positions(url)
    assert len(seen) == len(set(seen)), "a row is visible twice"
    assert all(position < 1000 * (stamped_cut(str(chain_dir)) + 1) for position in seen)


def test_a_death_at_any_filesystem_call_leaves_each_row_exactly_once(
    tmp_path: Path, roots: Path
) -> None:
    """Die at call k, look, restart, finish: no loss, no duplicate, nothing early.

    Every third call here, on real filesystems; every call in test_parquet_power_cut.py.
    """
    calls = _calls_of_a_run(tmp_path, roots)
    writes = [k for k, name in enumerate(calls, 1) if name == "pwrite_all"]
    cells = [(k, False) for k in range(1, len(calls) + 1, 3)] + [(k, True) for k in writes]
    for at_call, torn in cells:
        chain_dir = tmp_path / f"chain-{at_call}-{torn}"
        url = roots / f"{at_call}-{torn}" / "lake"
        url.parent.mkdir(parents=True)
        with pytest.raises(Killed):
            run_lane(str(chain_dir), str(url), dying_fs(at_call, torn=torn))
        _assert_only_stamped_once(chain_dir, url)
        run_lane(str(chain_dir), str(url), plain_fs())
        assert visible_positions(url) == ALL_POSITIONS, f"died at call {at_call}, torn {torn}"
        assert sealed_names(chain_dir) == []
    print(f"{len(cells)} deaths")
    assert len(cells) > 60


def test_two_deaths_in_a_row_change_nothing(tmp_path: Path, roots: Path) -> None:
    """A second death during recovery from the first is no different."""
    calls = len(_calls_of_a_run(tmp_path, roots))
    for first in range(20, calls, 37):
        for second in range(1, 24, 5):
            chain_dir = tmp_path / f"chain-{first}-{second}"
            url = roots / f"{first}-{second}" / "lake"
            url.parent.mkdir(parents=True)
            with pytest.raises(Killed):
                run_lane(str(chain_dir), str(url), dying_fs(first))
            try:
                run_lane(str(chain_dir), str(url), dying_fs(second, torn=True))
            except Killed:
                _assert_only_stamped_once(chain_dir, url)
            run_lane(str(chain_dir), str(url), plain_fs())
            assert visible_positions(url) == ALL_POSITIONS


def test_a_killed_process_leaves_each_row_exactly_once(tmp_path: Path, roots: Path) -> None:
    """The same with real processes that end by os._exit, at calls spread over the run."""
    calls = len(_calls_of_a_run(tmp_path, roots))
    child = str(Path(__file__).with_name("lane_child.py"))
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    for at_call in range(calls // 4, calls, calls // 3):
        chain_dir = tmp_path / f"chain-{at_call}"
        url = roots / f"{at_call}" / "lake"
        url.parent.mkdir(parents=True)
        command = [sys.executable, child, str(chain_dir), str(url)]
        killed = subprocess.run([*command, str(at_call)], env=environment, timeout=60, check=False)
        assert killed.returncode == 137
        _assert_only_stamped_once(chain_dir, url)
        subprocess.run(
            [*command, "0"],
            env=environment,
            timeout=60,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert visible_positions(url) == ALL_POSITIONS
