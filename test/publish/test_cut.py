# SPDX-License-Identifier: Apache-2.0
"""When a cut is due (spec 5.2)."""

from __future__ import annotations

import pytest

from thadam_ros.publish.cut import PRESSED_AGE_NS, CutPolicy

HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize(
    ("age_ns", "size", "requested", "due"),
    [
        (0, 0, False, False),
        (HOUR_NS - 1, 99, False, False),
        (HOUR_NS, 0, False, True),
        (0, 100, False, True),
        (0, 0, True, True),
    ],
)
def test_age_bytes_or_a_request_make_a_cut_due(
    age_ns: int, size: int, requested: bool, due: bool
) -> None:
    """Each of them alone."""
    assert CutPolicy(HOUR_NS, 100).due(7, 7 + age_ns, size, requested) is due


def test_without_a_submission_nothing_is_due() -> None:
    """There is nothing to stamp."""
    policy = CutPolicy(HOUR_NS, 100, pressed=lambda: True)
    assert not policy.due(None, HOUR_NS, 1000, True)


def test_a_wal_short_of_space_makes_a_cut_due_after_a_second() -> None:
    """Not after each submission: objects would become tiny."""
    asked: list[bool] = []

    def pressed() -> bool:
        asked.append(True)
        return True

    policy = CutPolicy(HOUR_NS, 100, pressed=pressed)
    assert not policy.due(7, 7 + PRESSED_AGE_NS - 1, 0, False)
    assert asked == []
    assert policy.due(7, 7 + PRESSED_AGE_NS, 0, False)
    assert not CutPolicy(HOUR_NS, 100).due(7, 7 + PRESSED_AGE_NS, 0, False)


def test_an_age_below_a_second_is_not_made_longer_by_pressure() -> None:
    """Whoever cuts every 30 ms goes on doing so."""
    policy = CutPolicy(30_000_000, 100, pressed=lambda: True)
    assert policy.pressed_age_ns == 30_000_000
    assert policy.due(0, 30_000_000, 0, False)
