# SPDX-License-Identifier: Apache-2.0
"""The balance sheet over logs made by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.chain.cursor import Cursor, CursorStore
from thadam_ros.chain.state import ChainState
from thadam_ros.model.position import Position
from thadam_ros.node.demo.arrivals import is_same, read_wal
from thadam_ros.node.demo.balance import make_sheet, stamped_counts, total
from thadam_ros.node.demo.checks import sheet_checks
from thadam_ros.node.demo.ledger import Sent, digest
from thadam_ros.storage.filesystem import OsFileSystem

from .demo_wals import LogMaker, make_ledger

TOPICS = ("/a", "/b")


def counts_of(**topics: dict[str, int]) -> ChainCounts:
    """Counts of a chain; ``a={"delivered": 3}`` stands for topic /a."""
    return ChainCounts(messages={f"/{name}": Counter(found) for name, found in topics.items()})


@pytest.mark.parametrize("with_gids", [True, False])
def test_sheet_closes_with_losses_and_messages_received_again(
    tmp_path: Path, with_gids: bool
) -> None:
    """By gid and number, and by bytes alone where a distribution tells neither."""
    ledger = make_ledger(tmp_path / "ledger", TOPICS, 10, with_gids=with_gids)
    with LogMaker(tmp_path / "wal", TOPICS, with_gids=with_gids) as log:
        log.add(0, range(1, 6))
        log.add(1, range(1, 11))
        log.add(0, range(8, 11))
        log.add(1, [10])
    contents = read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())
    assert contents.missing == [[6, 7], []]
    assert (dict(contents.again), dict(contents.unknown)) == ({"/b": 1}, {})
    counts = counts_of(a={"delivered": 7, "quarantined": 1}, b={"delivered": 11})
    sheet = make_sheet(ledger, contents, counts, {})
    assert [(line.topic, line.lost, line.received_again) for line in sheet] == [
        ("/a", 2, 0),
        ("/b", 0, 1),
    ]
    assert [line.difference for line in sheet] == [0, 0]
    assert total(sheet).published == 20
    assert all(check.is_fine for check in sheet_checks("lake", sheet))


def test_message_that_the_chain_forgot_shows_as_a_difference(tmp_path: Path) -> None:
    """The sheet is no tautology: the outcomes come from the chain alone."""
    ledger = make_ledger(tmp_path / "ledger", TOPICS, 3)
    with LogMaker(tmp_path / "wal", TOPICS) as log:
        log.add(0, range(1, 4))
        log.add(1, range(1, 4))
    contents = read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())
    sheet = make_sheet(ledger, contents, counts_of(a={"delivered": 2}, b={"delivered": 4}), {})
    assert [line.difference for line in sheet] == [1, -1]
    assert sheet_checks("lake", sheet)[0].found == {"/a": 1, "/b": -1}


def test_refused_messages_are_not_counted_as_lost(tmp_path: Path) -> None:
    """Capture says how many it refused; these are missing in the log too."""
    ledger = make_ledger(tmp_path / "ledger", TOPICS, 5)
    with LogMaker(tmp_path / "wal", TOPICS) as log:
        log.add(0, [1, 2])
        log.add(1, range(1, 6))
    contents = read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())
    counts = counts_of(a={"delivered": 2}, b={"delivered": 5})
    line = make_sheet(ledger, contents, counts, {"/a": 2})[0]
    assert (line.refused, line.lost, line.difference) == (2, 1, 0)


def test_altered_and_unknown_records_are_told_apart(tmp_path: Path) -> None:
    """Other bytes under a known number, and a number nobody published."""
    ledger = make_ledger(tmp_path / "ledger", TOPICS, 3)
    with LogMaker(tmp_path / "wal", TOPICS) as log:
        log.add(0, [1, 2, 3], altered=True)
        log.add(1, [1, 2, 3, 4])
    contents = read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())
    assert (dict(contents.altered), dict(contents.unknown)) == ({"/a": 3}, {"/b": 1})


def test_padding_that_rtps_adds_is_no_change(tmp_path: Path) -> None:
    """A payload's length becomes a multiple of four on the wire."""
    sent = Sent(0, 1, 0, 0, 5, digest(b"12345"))
    assert is_same(memoryview(b"12345"), sent)
    assert is_same(memoryview(b"12345\0\0\0"), sent)
    assert not is_same(memoryview(b"12345\0\0\0\0"), sent)
    assert not is_same(memoryview(b"1234"), sent)
    assert not is_same(memoryview(b"12346\0\0\0"), sent)


def test_topic_that_nobody_published_stands_in_the_sheet(tmp_path: Path) -> None:
    """What only the chain knows cannot balance."""
    ledger = make_ledger(tmp_path / "ledger", TOPICS, 1)
    with LogMaker(tmp_path / "wal", TOPICS) as log:
        log.add(0, [1])
        log.add(1, [1])
    contents = read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())
    one = {"delivered": 1}
    sheet = make_sheet(ledger, contents, counts_of(a=one, b=one, ghost=one), {})
    assert (sheet[-1].topic, sheet[-1].difference) == ("/ghost", -1)


def test_counts_come_from_the_state_that_the_cursor_names(tmp_path: Path) -> None:
    """One rename commits cursor and counts, so they are exact across kills."""
    fs = OsFileSystem()
    assert stamped_counts(str(tmp_path), fs) == (Cursor(), ChainCounts())
    counts = counts_of(a={"delivered": 5})
    cursor = Cursor(Position(0, 9), 77, 3)
    CursorStore(str(tmp_path), fs).commit(cursor, ChainState({}, counts).encode())
    assert stamped_counts(str(tmp_path), fs) == (cursor, counts)
