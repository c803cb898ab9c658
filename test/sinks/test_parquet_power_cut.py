# SPDX-License-Identifier: Apache-2.0
"""Exactly once through power cuts that take everything, or anything, that was not synced."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thadam_ros.testing.power_cut import PowerCutFs, no_fault

from .sink_fixtures import CUT_ROWS, CUTS, Killed, run_lane

ALL_POSITIONS = [1000 * cut + i for cut in range(1, CUTS + 1) for i in range(CUT_ROWS)]
#: None takes everything unsynced, a number some of it by chance.
SEEDS = [(None,), (1,), pytest.param(tuple(range(2, 20)), marks=pytest.mark.long)]

CHAIN = "/data/chains/lake"
URL = "/lake/out"


def _visible(fs: PowerCutFs) -> list[int]:
    found: list[int] = []
    for path, content in fs.tree(URL).items():
        if path.endswith(".parquet"):
            table = pq.ParquetFile(pa.BufferReader(content)).read(["_wal_pos"])
            found += table["_wal_pos"].to_pylist()
    return sorted(found)


def _stamped(fs: PowerCutFs) -> int:
    return int(orjson.loads(fs.tree(CHAIN).get(f"{CHAIN}/cursor", b"0")))


def _fresh(hook: Callable[[int, str], None], far: str) -> PowerCutFs:
    """A disk on which the folders above both trees are durable, as an installation leaves them."""
    fs = PowerCutFs(far=far)
    for folder in ("/data/chains", "/lake"):
        fs.makedirs(folder)
    fs.sync()
    return fs.cut(None, hook)


@pytest.mark.parametrize("far", ["", "/lake"], ids=["same filesystem", "other filesystem"])
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_a_power_cut_at_every_call_leaves_each_row_exactly_once(
    far: str, seeds: tuple[int | None, ...]
) -> None:
    """Nothing visible before its stamp, nothing twice, nothing torn, nothing lost in the end."""
    dry = _fresh(no_fault, far)
    run_lane(CHAIN, URL, dry)
    assert _visible(dry) == ALL_POSITIONS
    for seed in seeds:
        for at_call in range(1, dry.calls + 1):
            rng = None if seed is None else random.Random(1000 * seed + at_call)
            _cut_and_recover(far, at_call, rng)
    print(f"{dry.calls * len(seeds)} power cuts")
    assert dry.calls > 150


def _cut_and_recover(far: str, at_call: int, rng: random.Random | None) -> None:
    before = _fresh(_at(at_call), far)
    with pytest.raises(Killed):
        run_lane(CHAIN, URL, before)
    after = before.cut(rng)
    seen = _visible(after)
    assert len(seen) == len(set(seen)), f"twice, cut at call {at_call}"
    assert all(position < 1000 * (_stamped(after) + 1) for position in seen)
    run_lane(CHAIN, URL, after)
    assert _visible(after) == ALL_POSITIONS, f"cut at call {at_call}"


@pytest.mark.parametrize("far", ["", "/lake"], ids=["same filesystem", "other filesystem"])
def test_a_power_cut_after_the_restart_of_a_killed_process_changes_nothing(far: str) -> None:
    """What the second process read may have been in the page cache alone, the cursor too."""
    dry = _fresh(no_fault, far)
    run_lane(CHAIN, URL, dry)
    for at_call in range(2, dry.calls, 3):
        for later in (10, 25, 60):
            disk = _fresh(_at(at_call), far)
            with pytest.raises(Killed):
                run_lane(CHAIN, URL, disk)
            disk.hook = _at(at_call + later)
            with contextlib.suppress(Killed):
                run_lane(CHAIN, URL, disk)
            after = disk.cut(None)
            seen = _visible(after)
            assert len(seen) == len(set(seen))
            assert all(position < 1000 * (_stamped(after) + 1) for position in seen)
            run_lane(CHAIN, URL, after)
            assert _visible(after) == ALL_POSITIONS, f"killed at {at_call}, cut {later} later"


def _at(call: int) -> Callable[[int, str], None]:
    def hook(number: int, name: str) -> None:
        if number >= call:
            raise Killed

    return hook
