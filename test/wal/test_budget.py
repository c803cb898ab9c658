# SPDX-License-Identifier: Apache-2.0
"""The limits of a log: defaults, what is over, and when a chain should hurry (spec 2, 5.2)."""

from __future__ import annotations

import os

import pytest

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.space import SettableSpace
from thadam_ros.wal.budget import PressureGauge, Usage, effective_budget, measure_budget

from .logs import write_small_log

GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "budget", "min_free"),
    [
        (1000 * GIB, 20 * GIB, 50 * GIB),
        (100 * GIB, 20 * GIB, 5 * GIB),
        (30 * GIB, 6 * GIB, 2 * GIB),
        (4 * GIB, 4 * GIB // 5, GIB),
        (64 << 20, (64 << 20) // 5, 16 << 20),
    ],
)
def test_defaults_follow_the_filesystem(total: int, budget: int, min_free: int) -> None:
    """Smaller of 20 GiB and 20 %, larger of 2 GiB and 5 %, never more than a disk can give."""
    found = effective_budget(WalConfig(), total)
    assert (found.budget_bytes, found.min_free_bytes) == (budget, min_free)
    assert found.replay_window_bytes == budget // 4
    assert found.budget_bytes + found.min_free_bytes <= total


def test_what_is_configured_stands_whatever_the_disk() -> None:
    """No default overrules a person."""
    config = WalConfig(budget_bytes=GIB, min_free_bytes=7, replay_window_bytes=3)
    found = effective_budget(config, 64 << 20)
    assert (found.budget_bytes, found.min_free_bytes, found.replay_window_bytes) == (GIB, 7, 3)


def test_a_segment_never_is_the_whole_budget() -> None:
    """The newest segment cannot be deleted, so it must end before it is all there may be."""
    small = effective_budget(WalConfig(), 64 << 20)
    assert 2 * small.segment_bytes <= small.budget_bytes
    assert effective_budget(WalConfig(), 1000 * GIB).segment_bytes == 64 << 20


def test_a_filesystem_that_does_not_say_has_the_fixed_budget_only() -> None:
    """Some network filesystems answer 0: that is no full disk."""
    found = effective_budget(WalConfig(), 0)
    assert (found.budget_bytes, found.min_free_bytes) == (20 * GIB, 0)
    assert not found.free_known


def test_the_limits_are_those_of_the_directorys_filesystem_before_it_exists(wal_dir: str) -> None:
    """A chain may start before the log is there."""
    assert not os.path.exists(wal_dir)
    found = measure_budget(OsFileSystem(), wal_dir, WalConfig(min_free_bytes=0))
    assert found.budget_bytes > 0


@pytest.mark.parametrize(
    ("used", "free", "refused", "excess"),
    [
        (700, 5000, False, 0),
        (900, 5000, False, 0),
        (901, 5000, False, 1),
        (10, 600, False, 0),
        (10, 520, False, 80),
        (10, 5000, True, 100),
    ],
)
def test_segments_yield_before_a_limit_is_reached(
    used: int, free: int, refused: bool, excess: int
) -> None:
    """One segment of headroom to the budget and to min_free; a refused write needs room too."""
    config = WalConfig(budget_bytes=1000, min_free_bytes=500, segment_bytes=100)
    limits = effective_budget(config, 100_000)
    assert limits.headroom_bytes == 100
    assert limits.excess_bytes(Usage(used, free, refused)) == excess


def test_a_chain_is_pressed_when_space_is_short_and_it_keeps_a_finished_segment(
    wal_dir: str,
) -> None:
    """Above 80 % of the budget or near min_free; a cut that lets nothing go is not asked for."""
    write_small_log(wal_dir, 20_000, segment_bytes=4_000)
    names = sorted(name for name in os.listdir(wal_dir) if name.endswith(".wal"))
    used = sum(os.path.getsize(os.path.join(wal_dir, name)) for name in names)
    newest = Position(0, int(names[-1][-24:-4]) - 1)
    fs, now = SettableSpace(), [0]

    def gauge(budget: int, min_free: int) -> PressureGauge:
        config = WalConfig(budget_bytes=budget, min_free_bytes=min_free)
        return PressureGauge(fs, wal_dir, config, lambda: now[0])

    assert not gauge(2 * used, 0).pressed(BEFORE_ALL)
    tight = gauge(used, 0)
    assert tight.pressed(BEFORE_ALL)
    assert not tight.pressed(newest)
    near = gauge(1 << 30, fs.free - (1 << 20))
    assert near.pressed(BEFORE_ALL)
    fs.free += 1 << 30
    assert near.pressed(BEFORE_ALL), "looked at the disk again within the second"
    now[0] += 1_000_000_000
    assert not near.pressed(BEFORE_ALL)
