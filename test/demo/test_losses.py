# SPDX-License-Identifier: Apache-2.0
"""Which losses a kill explains."""

from __future__ import annotations

from pathlib import Path

from thadam_ros.node.demo.arrivals import WalContents, read_wal
from thadam_ros.node.demo.ledger import Ledger
from thadam_ros.node.demo.losses import kill_losses, unexplained_losses
from thadam_ros.storage.filesystem import OsFileSystem

from .demo_wals import SECOND_NS, START_NS, LogMaker, make_ledger

INTERVAL_NS = 200_000_000
#: The kill: just after message 10 was sent.
KILL_NS = START_NS + 10 * SECOND_NS + SECOND_NS // 2


def run(tmp_path: Path, *parts: range, latched: tuple[int, ...] = ()) -> tuple[Ledger, WalContents]:
    """A publisher of 20 messages, of which only ``parts`` arrived."""
    ledger = make_ledger(tmp_path / "ledger", ["/a"], 20, latched=latched)
    with LogMaker(tmp_path / "wal", ["/a"]) as log:
        for part in parts:
            log.add(0, part)
    return ledger, read_wal(str(tmp_path / "wal"), ledger, OsFileSystem())


def test_loss_window_and_blind_time_of_a_kill_are_explained(tmp_path: Path) -> None:
    """Message 10 was not durable, 11 to 14 were published while nobody listened."""
    ledger, contents = run(tmp_path, range(1, 10), range(15, 21))
    assert unexplained_losses(ledger, contents, [KILL_NS], INTERVAL_NS) == []
    (loss,) = kill_losses(ledger, contents, [KILL_NS])
    assert (loss.before, loss.after) == (1, 4)
    assert loss.window_ns == SECOND_NS // 2
    assert loss.blind_ns == 4 * SECOND_NS + SECOND_NS // 2 + 1_000


def test_older_loss_before_the_kill_is_not_explained(tmp_path: Path) -> None:
    """Message 9 was sent 1.5 s before the kill: it should have been durable."""
    ledger, contents = run(tmp_path, range(1, 9), range(15, 21))
    found = unexplained_losses(ledger, contents, [KILL_NS], INTERVAL_NS)
    assert [sent.number for sent in found] == [9]


def test_loss_after_the_restarted_process_listens_is_not_explained(tmp_path: Path) -> None:
    """Message 17 is missing although 15 and 16 were taken."""
    ledger, contents = run(tmp_path, range(1, 11), range(15, 17), range(18, 21))
    found = unexplained_losses(ledger, contents, [KILL_NS], INTERVAL_NS)
    assert [sent.number for sent in found] == [17]


def test_loss_without_a_kill_is_not_explained(tmp_path: Path) -> None:
    """Reliable means reliable."""
    ledger, contents = run(tmp_path, range(1, 5), range(6, 21))
    assert [s.number for s in unexplained_losses(ledger, contents, [], INTERVAL_NS)] == [5]


def test_latched_loss_is_never_explained(tmp_path: Path) -> None:
    """The next process is given a latched message again."""
    ledger, contents = run(tmp_path, range(1, 10), range(15, 21), latched=(0,))
    found = unexplained_losses(ledger, contents, [KILL_NS], INTERVAL_NS)
    assert [sent.number for sent in found] == [10, 11, 12, 13, 14]


def test_kill_of_a_process_that_never_listened_explains_everything_since_the_one_before(
    tmp_path: Path,
) -> None:
    """Killed again while it started: all of that time nobody listened."""
    second_ns = KILL_NS + 3 * SECOND_NS
    ledger, contents = run(tmp_path, range(1, 11), range(15, 21))
    assert unexplained_losses(ledger, contents, [KILL_NS, second_ns], INTERVAL_NS) == []
    first, second = kill_losses(ledger, contents, [KILL_NS, second_ns])
    assert (first.before, first.after) == (0, 3)
    assert (second.before, second.after) == (0, 1)


def test_topic_captured_by_one_weak_subscription_is_not_reliable(tmp_path: Path) -> None:
    """Without gids a topic with a best-effort publisher has no better subscription."""
    topics = ["/a", "/a"]
    for with_gids, unexplained in ((True, [5]), (False, [])):
        folder = tmp_path / str(with_gids)
        folder.mkdir()
        ledger = make_ledger(folder / "ledger", topics, 20, best_effort=[1], with_gids=with_gids)
        with LogMaker(folder / "wal", topics, with_gids=with_gids) as log:
            log.add(0, [*range(1, 5), *range(6, 21)])
            log.add(1, range(1, 21))
        contents = read_wal(str(folder / "wal"), ledger, OsFileSystem())
        found = unexplained_losses(ledger, contents, [], INTERVAL_NS)
        assert [sent.number for sent in found] == unexplained
