# SPDX-License-Identifier: Apache-2.0
"""Reservation of ROS domains."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from thadam_ros.node.demo.domain import free_domain


def test_domains_reserved_at_once_differ() -> None:
    """Two demos side by side never share a graph."""
    with ExitStack() as stack:
        numbers = [stack.enter_context(free_domain()) for _ in range(10)]
    assert len(set(numbers)) == 10
    assert all(1 <= number <= 100 for number in numbers)


def test_domain_of_the_user_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own nodes stay alone."""
    drawn = set()
    for own in range(1, 30):
        monkeypatch.setenv("ROS_DOMAIN_ID", str(own))
        with free_domain() as number:
            drawn.add(number == own)
    assert drawn == {False}
