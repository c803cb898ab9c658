# SPDX-License-Identifier: Apache-2.0
"""What the steps with keyed state share: snapshots, commit and rollback."""

from __future__ import annotations

from typing import Any

from thadam_ros.transforms.state import KeyedState


class Stateful:
    """Owns a :class:`KeyedState` whose values are tuples of integers."""

    def __init__(self, keys_max: int) -> None:
        self._state: KeyedState[str, tuple[int, ...]] = KeyedState(keys_max)

    def snapshot(self) -> object:
        """Return ``[[label, integers...], ...]`` in order of first appearance."""
        return [[label, *value] for label, value in self._state.items()]

    def restore(self, state: Any) -> None:
        """Continue from :meth:`snapshot`; None is a fresh start."""
        self._state.load([(label, tuple(value)) for label, *value in state or []])

    def commit(self) -> None:
        """Keep the changes of the last run."""
        self._state.commit()

    def rollback(self) -> None:
        """Undo the changes of the last run."""
        self._state.rollback()
