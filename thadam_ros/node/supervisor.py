# SPDX-License-Identifier: Apache-2.0
"""Brings lifecycle nodes up at start, and failed ones up again (spec 1.6, 7.1).

A node is *wanted* once autostart or somebody activated it, until somebody deactivates or cleans it
up. A wanted node that left *active* with a cause is tried again: after a random part of its
``retry_failed_every`` when the cause may lie outside, and only after the document or a parameter
changed when the configuration is wrong.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from thadam_ros.errors import ConfigError, LockHeldError
from thadam_ros.model.clock import Clock

#: A lock that another process holds is usually that process ending: looked at again soon.
LOCK_RETRY_S = 5.0


class Supervised(Protocol):
    """What the supervisor needs of a node."""

    cause: BaseException | None
    next_retry_ns: int

    @property
    def state_label(self) -> str: ...

    def trigger_configure(self) -> object: ...

    def trigger_activate(self) -> object: ...


class Supervisor:
    """Looks after the nodes of one process; :meth:`tick` is called by a timer."""

    def __init__(
        self,
        nodes: Sequence[tuple[Supervised, Callable[[], float]]],
        clock: Clock,
        document_signature: Callable[[], object],
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Prepare.

        Args:
            nodes: In the order of their start, each with its ``retry_failed_every`` in seconds.
            document_signature: Changes when the document or a parameter does.
            draw: Random numbers in [0, 1).
        """
        self._nodes = list(nodes)
        self._clock = clock
        self._signature = document_signature
        self._draw = draw
        self._wanted = [False] * len(self._nodes)
        self._labels = ["unconfigured"] * len(self._nodes)
        self._retry_at_ns: list[int | None] = [None] * len(self._nodes)
        self._refused_signature: list[object] = [None] * len(self._nodes)
        self._stopped = threading.Event()
        self._busy = threading.Lock()

    def autostart(self) -> None:
        """Configure and activate every node; one that fails never stops the others."""
        for index in range(len(self._nodes)):
            self._wanted[index] = True
            self._bring_up(index)

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Bring nothing up any more; from any thread.

        Returns:
            False when a node is still being brought up after ``timeout_s``.
        """
        self._stopped.set()
        if not self._busy.acquire(timeout=timeout_s):
            return False
        self._busy.release()
        return True

    def tick(self) -> None:
        """Note what operators did, and try failed nodes again when it is time."""
        for index in range(len(self._nodes)):
            if self._stopped.is_set():
                return
            self._note(index)
            if self._is_due(index):
                self._bring_up(index)

    def _note(self, index: int) -> None:
        node, before = self._nodes[index][0], self._labels[index]
        label = node.state_label
        self._labels[index] = label
        if label == "active":
            self._wanted[index] = True
            self._retry_at_ns[index] = None
            node.next_retry_ns = 0
        elif node.cause is None and (
            label in ("unconfigured", "finalized") or (label == "inactive" and before == "active")
        ):
            self._wanted[index] = False

    def _is_due(self, index: int) -> bool:
        node, every = self._nodes[index]
        if not self._wanted[index] or node.cause is None:
            return False
        if node.state_label not in ("unconfigured", "inactive"):
            return False
        if isinstance(node.cause, ConfigError):
            node.next_retry_ns = 0
            signature = self._signature()
            if self._refused_signature[index] is None:
                self._refused_signature[index] = signature
            return signature != self._refused_signature[index]
        return self._retry_is_due(index, node, every())

    def _retry_is_due(self, index: int, node: Supervised, every_s: float) -> bool:
        if every_s <= 0:
            return False
        if isinstance(node.cause, LockHeldError):
            every_s = min(every_s, LOCK_RETRY_S)
        now_ns = self._clock.monotonic_ns()
        due_ns = self._retry_at_ns[index]
        if due_ns is None:
            wait_ns = int(self._draw() * every_s * 1e9)
            self._retry_at_ns[index] = now_ns + wait_ns
            node.next_retry_ns = self._clock.time_ns() + wait_ns
            return False
        return now_ns >= due_ns

    def _bring_up(self, index: int) -> None:
        node = self._nodes[index][0]
        with self._busy:
            self._retry_at_ns[index] = None
            self._refused_signature[index] = self._signature()
            if node.state_label == "unconfigured" and not self._stopped.is_set():
                node.trigger_configure()
            if node.state_label == "inactive" and not self._stopped.is_set():
                node.trigger_activate()
            self._labels[index] = node.state_label
