# SPDX-License-Identifier: Apache-2.0
"""The publisher's ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from thadam_ros.node.demo.ledger import read_ledger

from .demo_wals import make_ledger


def test_ledger_gives_back_what_was_written(tmp_path: Path) -> None:
    """Publishers, messages in order, start and end."""
    ledger = make_ledger(tmp_path / "ledger", ["/a", "/a", "/b"], 3, best_effort=[1], latched=[2])
    assert ledger.topics == ["/a", "/b"]
    assert (ledger.published("/a"), ledger.total()) == (6, 9)
    assert [p.reliable for p in ledger.publishers] == [True, False, True]
    assert [p.latched for p in ledger.publishers] == [False, False, True]
    assert [sent.number for sent in ledger.sent[1]] == [1, 2, 3]
    assert 0 < ledger.start_ns < ledger.end_ns


def test_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    """The demo reads while the robot writes."""
    path = tmp_path / "ledger"
    make_ledger(path, ["/a"], 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    ledger = read_ledger(str(path))
    assert (ledger.total(), ledger.end_ns) == (3, 0)


def test_foreign_line_is_refused(tmp_path: Path) -> None:
    """A file that is no ledger must not read as an empty one."""
    path = tmp_path / "ledger"
    path.write_text('{"hello": 1}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="not a ledger line"):
        read_ledger(str(path))
