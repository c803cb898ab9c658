# SPDX-License-Identifier: Apache-2.0
"""Cursor and state stay together, and a cut seen as stamped stays stamped, in power cuts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from thadam_ros.chain.cursor import Cursor, CursorStore
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.testing.power_cut import PowerCutFs

DIRECTORY = "/data/chains/lake"
COMMITS = 3


class _PowerCut(BaseException):
    """The lights went out."""


def _cut_at(call: int) -> Callable[[int, str], None]:
    def hook(number: int, name: str) -> None:
        if number >= call:
            raise _PowerCut

    return hook


def _disk() -> PowerCutFs:
    disk = PowerCutFs()
    disk.makedirs(DIRECTORY)
    disk.sync()
    return disk


def _state(number: int) -> bytes:
    return b"state of cut %d" % number


def _commit_all(fs: PowerCutFs, acknowledged: list[int]) -> None:
    store = CursorStore(DIRECTORY, fs)
    cursor, _ = store.load()
    first = 1 if cursor is None else cursor.cut_no + 1
    for number in range(first, first + COMMITS):
        store.commit(Cursor(Position(0, number), 7, number), _state(number))
        acknowledged.append(number)


def _load(fs: PowerCutFs) -> int:
    """Return the cut number on disk; the state must be the one of that cut."""
    cursor, state = CursorStore(DIRECTORY, fs).load()
    if cursor is None:
        return 0
    assert cursor.position == Position(0, cursor.cut_no)
    assert cursor.position > BEFORE_ALL
    assert state == _state(cursor.cut_no)
    return cursor.cut_no


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
def test_an_acknowledged_cut_survives_a_power_cut_at_every_call(seed: int | None) -> None:
    """Whatever of the unsynced is lost or torn, the pair is whole and never older."""
    dry = _disk().cut(None)
    _commit_all(dry, [])
    for at_call in range(1, dry.calls + 1):
        rng = None if seed is None else random.Random(1000 * seed + at_call)
        acknowledged: list[int] = []
        disk = _disk().cut(None, _cut_at(at_call))
        with pytest.raises(_PowerCut):
            _commit_all(disk, acknowledged)
        after = _load(disk.cut(rng))
        assert after in (len(acknowledged), len(acknowledged) + 1)


def test_what_a_restart_has_seen_of_a_killed_process_survives_a_power_cut() -> None:
    """Killed, restarted, then a power cut: the cut that the restart built upon is still there."""
    dry = _disk().cut(None)
    _commit_all(dry, [])
    for at_call in range(1, dry.calls + 1):
        disk = _disk().cut(None, _cut_at(at_call))
        with pytest.raises(_PowerCut):
            _commit_all(disk, [])
        disk.hook = lambda number, name: None
        seen = _load(disk)
        assert _load(disk.cut(None)) >= seen
