# SPDX-License-Identifier: Apache-2.0
"""Losses by publication numbers (spec 7.2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thadam_ros.node.counters import GAPS_MAX, PublisherSequence, TopicCounters


def test_numbers_one_after_another_lose_nothing() -> None:
    """A publisher heard from its middle on has lost nothing."""
    sequence = PublisherSequence(1)
    assert all(sequence.observe(n) for n in range(700, 900))
    assert sequence.lost == 0


def test_a_gap_is_a_loss_and_a_late_arrival_closes_it() -> None:
    """What arrives out of order was not lost."""
    sequence = PublisherSequence(1)
    for number in (1, 2, 6):
        assert sequence.observe(number)
    assert sequence.lost == 3
    assert sequence.observe(4)
    assert sequence.lost == 2
    assert not sequence.observe(4)
    assert sequence.observe(5)
    assert sequence.observe(3)
    assert sequence.lost == 0


def test_history_before_the_first_number_is_taken() -> None:
    """A latched sample that is older than what was seen is news, and what lies between no loss."""
    sequence = PublisherSequence(1)
    assert sequence.observe(10)
    assert sequence.observe(7)
    assert sequence.lost == 0


@given(st.lists(st.integers(1, 60), max_size=80))
def test_every_number_is_taken_exactly_once(numbers: list[int]) -> None:
    """Against a set: nothing is taken twice, nothing is missed, gaps after the first are losses."""
    sequence = PublisherSequence(1)
    seen: set[int] = set()
    for number in numbers:
        assert sequence.observe(number) == (number not in seen)
        seen.add(number)
    first = numbers[0] if numbers else 0
    lost = set(range(first, max(seen, default=-1) + 1)) - seen
    assert sequence.lost == len(lost)


def test_remembered_gaps_are_bounded() -> None:
    """Every second number lost for ever costs bounded memory, and every loss is counted."""
    sequence = PublisherSequence(1)
    for number in range(0, 8 * GAPS_MAX, 2):
        sequence.observe(number)
    assert len(sequence._gaps) == GAPS_MAX
    assert sequence.lost == 4 * GAPS_MAX - 1


def test_losses_of_a_publisher_that_left_are_kept() -> None:
    """The topic's loss never falls because a publisher goes away."""
    counters = TopicCounters(sequenced=True)
    gone = counters.publishers[b"gid"] = PublisherSequence(1)
    gone.observe(1)
    gone.observe(4)
    counters.forget_publisher(b"gid")
    assert counters.lost() == 2
    assert counters.publishers == {}


def test_without_numbers_the_middleware_s_count_is_used() -> None:
    """message_lost events count until a numbered message was seen."""
    counters = TopicCounters(message_lost_events=3)
    assert counters.lost() == 3
