# SPDX-License-Identifier: Apache-2.0
"""The writer at its limits: what is refused, how it is counted, how it goes on by itself."""

from __future__ import annotations

import os

import pytest

import thadam_ros.wal.writer as writer_module
from thadam_ros.model.position import Position
from thadam_ros.testing.space import SettableSpace
from thadam_ros.testing.wal import list_valid_frames, make_batch
from thadam_ros.wal.writer import WalWriter

from .conftest import OpenWriter
from .test_writer import DEADLINE_S, NEVER_NS, segment_sizes, wait_until

#: A batch of this payload takes 540 bytes against the limits, a little more on disk.
PAYLOAD = b"p" * 500


def fill(writer: WalWriter, limit: int = 10_000) -> int:
    """Append and flush until a batch is refused; return how many were accepted."""
    for count in range(limit):
        if not writer.append(make_batch([PAYLOAD])):
            return count
        assert writer.flush(DEADLINE_S)
    raise AssertionError("nothing was refused")


def test_capture_stops_at_the_budget_and_says_so(open_writer: OpenWriter, wal_dir: str) -> None:
    """Every refusal is counted by its cause; what was accepted is durable and inside the budget."""
    writer = open_writer(budget_bytes=20_000, min_free_bytes=0, segment_bytes=4_000)
    accepted = fill(writer)
    assert not writer.append(make_batch([PAYLOAD, PAYLOAD]))
    statistics = writer.statistics()
    assert statistics.held_up_by == "budget"
    assert statistics.refused_by_cause == {"budget": 3}
    assert (statistics.refused_batches, statistics.refused_records) == (2, 3)
    assert (statistics.storage_full, statistics.failed) == (False, False)
    assert statistics.records == accepted
    assert statistics.wal_bytes == sum(segment_sizes(wal_dir))
    assert 18_000 < statistics.wal_bytes < statistics.budget_bytes + 1_000
    assert [f.position for f in list_valid_frames(wal_dir)] == list(range(accepted))


def test_what_waits_for_its_commit_counts_against_the_budget(open_writer: OpenWriter) -> None:
    """The budget holds for what was promised, not only for what is written."""
    writer = open_writer(budget_bytes=20_000, min_free_bytes=0, commit_interval_ns=NEVER_NS)
    accepted = 0
    while writer.append(make_batch([PAYLOAD])):
        accepted += 1
    assert accepted == 20_000 // 540
    assert writer.flush(DEADLINE_S)
    assert writer.statistics().wal_bytes < 21_000


def test_capture_resumes_when_a_segment_was_deleted(open_writer: OpenWriter, wal_dir: str) -> None:
    """No restart, no waiting for a timer: the next batch is accepted."""
    writer = open_writer(budget_bytes=20_000, min_free_bytes=0, segment_bytes=4_000)
    accepted = fill(writer)
    oldest = min(name for name in os.listdir(wal_dir) if name.endswith(".wal"))
    size = os.path.getsize(os.path.join(wal_dir, oldest))
    os.unlink(os.path.join(wal_dir, oldest))
    segments = writer.statistics().segments
    writer.deleted(1, size)
    statistics = writer.statistics()
    assert (statistics.held_up_by, statistics.segments) == ("", segments - 1)
    assert (statistics.deleted_segments, statistics.deleted_bytes) == (1, size)
    assert writer.append(make_batch([PAYLOAD]))
    assert writer.flush(DEADLINE_S)
    assert writer.durable == Position(0, accepted)
    assert writer.statistics().wal_bytes == sum(segment_sizes(wal_dir))


def test_min_free_stops_capture_and_lets_it_go_on_by_itself(open_writer: OpenWriter) -> None:
    """Nobody appends and nobody flushes: the writer sees that there is room again."""
    fs = SettableSpace(free=1_000_000)
    writer = open_writer(fs=fs, budget_bytes=1 << 20, min_free_bytes=500_000)
    assert writer.append(make_batch([PAYLOAD]))
    assert writer.flush(DEADLINE_S)
    fs.free = 500_100
    writer.append(make_batch([b"x"]))
    assert writer.flush(DEADLINE_S)
    assert not writer.append(make_batch([PAYLOAD]))
    statistics = writer.statistics()
    assert statistics.held_up_by == "min_free"
    assert statistics.refused_by_cause == {"min_free": 1}
    assert (statistics.filesystem_free_bytes, statistics.min_free_bytes) == (500_100, 500_000)
    fs.free = 1_000_000
    wait_until(lambda: not writer.statistics().held_up_by)
    assert writer.append(make_batch([PAYLOAD]))
    assert writer.flush(DEADLINE_S)
    assert writer.statistics().refused_records == 1


def test_min_free_does_not_keep_back_what_was_accepted(open_writer: OpenWriter) -> None:
    """Space that others took meanwhile costs no accepted message as long as it fits."""
    fs = SettableSpace(free=1_000_000)
    writer = open_writer(
        fs=fs, budget_bytes=1 << 20, min_free_bytes=500_000, commit_interval_ns=NEVER_NS
    )
    assert writer.append(make_batch([PAYLOAD]))
    fs.free = 1_000
    assert writer.flush(DEADLINE_S)
    writer.close()
    assert writer.statistics().lost_records == 0


def test_a_budget_that_one_segment_fills_does_not_end_capture_for_good(
    open_writer: OpenWriter, wal_dir: str
) -> None:
    """The newest segment is never deleted: one more batch ends it, so that it can go."""
    writer = open_writer(budget_bytes=20_000, min_free_bytes=0, segment_bytes=64 << 10)
    assert writer.append(make_batch([b"x" * 9_000]))
    assert writer.flush(DEADLINE_S)
    assert len(segment_sizes(wal_dir)) == 1
    assert writer.budget.segment_bytes > 9_000
    assert writer.append(make_batch([b"x" * 12_000]))
    assert writer.flush(DEADLINE_S)
    assert not writer.append(make_batch([PAYLOAD]))
    sizes = segment_sizes(wal_dir)
    assert len(sizes) == 2
    os.unlink(os.path.join(wal_dir, min(n for n in os.listdir(wal_dir) if n.endswith(".wal"))))
    writer.deleted(1, sizes[0])
    assert writer.append(make_batch([PAYLOAD]))


def test_a_log_that_is_over_its_budget_at_open_refuses_at_once(
    open_writer: OpenWriter,
) -> None:
    """Bytes of earlier runs count."""
    writer = open_writer(budget_bytes=40_000, min_free_bytes=0, segment_bytes=4_000)
    fill(writer)
    writer.close()
    again = open_writer(budget_bytes=20_000, min_free_bytes=0, segment_bytes=4_000)
    assert not again.append(make_batch([PAYLOAD]))
    assert again.statistics().held_up_by == "budget"
    assert again.statistics().wal_bytes > 20_000


def test_a_full_disk_asks_for_deletions_and_tries_again_once_there_was_one(
    open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after a refusal ends with the deletion, and its commit goes through."""
    monkeypatch.setattr(writer_module, "_RETRY_FIRST_NS", NEVER_NS)
    monkeypatch.setattr(writer_module, "_RETRY_LAST_NS", NEVER_NS)
    fs = SettableSpace()
    writer = open_writer(fs=fs, budget_bytes=1 << 20, min_free_bytes=0, segment_bytes=4_000)
    fill_to = 12
    for _ in range(fill_to):
        assert writer.append(make_batch([PAYLOAD]))
        assert writer.flush(DEADLINE_S)
    asked: list[bool] = []
    writer.on_pressed = lambda: asked.append(writer.usage().refused)
    fs.full = True
    assert writer.append(make_batch([PAYLOAD]))
    wait_until(lambda: len(asked) >= 1)
    assert asked[0]
    assert writer.statistics().storage_full
    fs.full = False
    writer.deleted(1, 100)
    assert writer.flush(DEADLINE_S)
    assert not writer.statistics().storage_full
    assert not writer.usage().refused


def test_refusals_of_a_full_disk_have_their_own_cause(open_writer: OpenWriter) -> None:
    """The ceiling is reached because the disk takes nothing: that is what the counter says."""
    fs = SettableSpace()
    writer = open_writer(fs=fs, budget_bytes=1 << 20, min_free_bytes=0, pending_bytes_max=2_000)
    fs.full = True
    assert writer.append(make_batch([PAYLOAD]))
    wait_until(lambda: writer.statistics().storage_full)
    while writer.append(make_batch([PAYLOAD])):
        pass
    assert writer.statistics().refused_by_cause == {"storage_full": 1}
    fs.full = False
    assert writer.flush(DEADLINE_S)


def test_a_filesystem_that_cannot_be_asked_stops_nothing(open_writer: OpenWriter) -> None:
    """The last figure stays in force and the error is shown."""

    class Mute(SettableSpace):
        broken = False

        def free_bytes(self, path: str) -> int:
            if self.broken:
                raise OSError(5, "no answer")
            return super().free_bytes(path)

    fs = Mute()
    writer = open_writer(fs=fs, budget_bytes=1 << 20, min_free_bytes=0)
    fs.broken = True
    for _ in range(2):
        assert writer.append(make_batch([PAYLOAD]))
        assert writer.flush(DEADLINE_S)
    assert "no answer" in writer.statistics().last_error
    assert writer.statistics().filesystem_free_bytes == fs.free
