# SPDX-License-Identifier: Apache-2.0
"""Acknowledged rejects survive power cuts at every call, once each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from thadam_ros.quarantine.staging import Staging, read_staging
from thadam_ros.testing.power_cut import PowerCutFs, no_fault

from .reject_fixtures import reject

DIRECTORY = "/data/chains/lake/staging"
#: None takes everything unsynced, a number some of it by chance.
SEEDS = [(None,), (1, 2, 3), pytest.param(tuple(range(4, 40)), marks=pytest.mark.long)]


class _PowerCut(BaseException):
    """The lights went out."""


def _append_all(fs: PowerCutFs, acknowledged: list[int]) -> None:
    """Five batches over several segments; what append returned for is acknowledged."""
    staging = Staging.open(DIRECTORY, fs, segment_bytes=900)
    for batch in range(5):
        positions = [10 * batch + i for i in range(3)]
        staging.append([reject(position) for position in positions])
        acknowledged += positions
    staging.close()


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_acknowledged_rejects_survive_a_power_cut_at_every_call(
    seeds: tuple[int | None, ...],
) -> None:
    """Also a second cut during or after recovery: none lost, none invented, none twice."""
    disk = PowerCutFs()
    disk.makedirs("/data/chains/lake")
    disk.sync()
    dry = disk.cut(None)
    _append_all(dry, [])
    for seed in seeds:
        for at_call in range(1, dry.calls + 1):
            rng = None if seed is None else random.Random(1000 * seed + at_call)
            _cut_twice_and_finish(disk, at_call, rng)


def test_what_a_killed_process_left_counts_only_once_it_is_synced() -> None:
    """Killed, restarted, then a power cut: what the second process was told is known is there.

    The first process leaves whole records that were never synced; they are readable, but only from
    the page cache.
    """
    dry = PowerCutFs()
    _append_all(dry, [])
    for at_call in range(1, dry.calls + 1):
        disk = PowerCutFs()
        disk.makedirs("/data/chains/lake")
        disk.sync()
        killed = disk.cut(None, _cut_at(at_call))
        with pytest.raises(_PowerCut):
            _append_all(killed, [])
        killed.hook = no_fault
        acknowledged: list[int] = []
        _append_all(killed, acknowledged)
        _assert_kept(killed.cut(None), acknowledged)


def _cut_twice_and_finish(disk: PowerCutFs, at_call: int, rng: random.Random | None) -> None:
    acknowledged: list[int] = []
    first = disk.cut(None, _cut_at(at_call))
    with pytest.raises(_PowerCut):
        _append_all(first, acknowledged)
    second = first.cut(rng, _cut_at(at_call // 2 + 1))
    _assert_kept(second.cut(None), acknowledged)
    with pytest.raises(_PowerCut):
        _append_all(second, acknowledged)
    third = second.cut(rng)
    _assert_kept(third, acknowledged)
    _append_all(third, acknowledged)
    read = Counter(r.wal_pos for r in read_staging(DIRECTORY, third))
    assert read == Counter(10 * batch + i for batch in range(5) for i in range(3))


def _cut_at(call: int) -> Callable[[int, str], None]:
    def hook(number: int, name: str) -> None:
        if number >= call:
            raise _PowerCut

    return hook


def _assert_kept(fs: PowerCutFs, acknowledged: list[int]) -> None:
    staging = Staging.open(DIRECTORY, fs.cut(None))
    kept = [reject(position) for position in acknowledged]
    assert staging.append(kept) == 0, "an acknowledged reject is gone"
