# SPDX-License-Identifier: Apache-2.0
"""Two ways to take raw messages: a thread of our own on a wait set, or executor callbacks.

The thread (measured: 20 k/s of small messages over 8 topics without a gap, 23-40 µs of process CPU
a message) waits on all raw subscriptions and a guard condition and takes up to 256 messages of each
ready subscription per wake. ``WaitSet`` is private API of rclpy, so the callbacks stay as the
fallback (15 k/s, 55-132 µs), chosen at run time by :mod:`thadam_ros.node.capabilities`.

Both hand whole batches to ``deliver``. Both make subscriptions with ``add``; after ``remove``
returned, the subscription is not touched any more and may be destroyed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rclpy.callback_groups import (
    CallbackGroup,
    MutuallyExclusiveCallbackGroup,
    ReentrantCallbackGroup,
)
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.node import Node

from thadam_ros.model.message import SourceBatch
from thadam_ros.node.capabilities import UntouchedGroup
from thadam_ros.node.raw_subscription import RawSubscription

#: The thread wakes at least this often, to see a request to stop whose wake-up was lost.
_WAIT_MAX_NS = 500_000_000
#: Rest between two wakes. A wake costs some 20 µs, a message 1-2 µs: at high rates a wake then
#: takes a handful of messages, at low rates every message still has one of its own.
_REST_S = 0.004
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0

Deliver = Callable[[SourceBatch], None]
Report = Callable[[BaseException], None]
#: Creates the subscription with the given callback.
Make = Callable[[Callable[..., None]], RawSubscription]


class Drainer(Protocol):
    """Moves messages of raw subscriptions into batches."""

    @property
    def callback_group(self) -> CallbackGroup:
        """The group in which raw subscriptions must be created."""

    def add(self, make: Make) -> RawSubscription:
        """Create a subscription with the callback it needs, and begin to take from it."""

    def remove(self, raw: RawSubscription) -> None:
        """Take what waits, then never touch the subscription again."""

    def close(self, timeout_s: float) -> bool:
        """Take what waits everywhere and stop; False when the thread did not end in time."""


class WaitSetDrainer:
    """Takes messages in a thread of its own."""

    def __init__(
        self, node: Node, source_id: str, deliver: Deliver, on_bug: Report, name: str
    ) -> None:
        """Start the thread.

        Args:
            deliver: Takes a batch that is not empty; must not block.
            on_bug: Told of an unexpected exception; the thread goes on after a pause.
        """
        self.callback_group = UntouchedGroup()
        self._node = node
        self._source_id = source_id
        self._deliver = deliver
        self._on_bug = on_bug
        self._raws: dict[int, RawSubscription] = {}
        self._commands: deque[tuple[str, RawSubscription, threading.Event]] = deque()
        self._stopping = threading.Event()
        # Not the executor's: nobody but this thread may clear it.
        self._guard = node.create_guard_condition(lambda: None, callback_group=_never())
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def add(self, make: Make) -> RawSubscription:
        raw = make(lambda message: None)
        self._command("add", raw)
        return raw

    def remove(self, raw: RawSubscription) -> None:
        self._command("remove", raw)

    def close(self, timeout_s: float) -> bool:
        self._stopping.set()
        self._guard.trigger()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._node.destroy_guard_condition(self._guard)
        return True

    def _command(self, what: str, raw: RawSubscription) -> None:
        done = threading.Event()
        self._commands.append((what, raw, done))
        self._guard.trigger()
        while not done.wait(0.5):
            if not self._thread.is_alive():
                self._apply_commands()

    def _apply_commands(self) -> bool:
        changed = False
        while self._commands:
            what, raw, done = self._commands.popleft()
            if what == "add":
                self._raws[raw.pointer] = raw
            else:
                self._raws.pop(raw.pointer, None)
                self._take_all([raw])
            changed = True
            done.set()
        return changed

    def _run(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            try:
                self._loop()
                backoff_s = _BACKOFF_FIRST_S
            except BaseException as exc:  # noqa: BLE001 - the edge of this component (spec 1.6)
                self._on_bug(exc)
                self._stopping.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        try:
            self._apply_commands()
            self._take_all(list(self._raws.values()))
        except BaseException as exc:  # noqa: BLE001
            self._on_bug(exc)

    def _loop(self) -> None:
        wait_set = None
        guard = self._guard.handle
        while not self._stopping.is_set():
            if self._apply_commands() or wait_set is None:
                context: Any = self._node.context.handle
                wait_set = _rclpy.WaitSet(len(self._raws), 1, 0, 0, 0, 0, context)
                handles = [raw.subscription.handle for raw in self._raws.values()]
            wait_set.clear_entities()
            for handle in handles:
                wait_set.add_subscription(handle)
            wait_set.add_guard_condition(guard)
            wait_set.wait(_WAIT_MAX_NS)
            batch = SourceBatch(self._source_id)
            try:
                for pointer in wait_set.get_ready_entities("subscription"):
                    self._raws[pointer].drain(batch)
            finally:
                if batch.payloads:
                    self._deliver(batch)
                    time.sleep(_REST_S)

    def _take_all(self, raws: list[RawSubscription]) -> None:
        more = True
        while more:
            more = False
            batch = SourceBatch(self._source_id)
            try:
                for raw in raws:
                    more |= raw.drain(batch)
            finally:
                if batch.payloads:
                    self._deliver(batch)


class CallbackDrainer:
    """Takes messages in executor callbacks; each callback drains what else waits, if it can."""

    def __init__(
        self, node: Node, source_id: str, deliver: Deliver, on_bug: Report, *, drain: bool
    ) -> None:
        self.callback_group = MutuallyExclusiveCallbackGroup()
        self._source_id = source_id
        self._deliver = deliver
        self._on_bug = on_bug
        self._drain = drain
        # Also held while a subscription is made: its first callback must find it.
        self._lock = threading.Lock()
        self._active: dict[int, RawSubscription] = {}

    def add(self, make: Make) -> RawSubscription:
        made: list[RawSubscription] = []

        def with_info(message: bytes, info: Any) -> None:
            try:
                with self._lock:
                    if made and made[0].pointer in self._active:
                        self._take(made[0], (message, info))
            except BaseException as exc:  # noqa: BLE001 - it would end the executor
                self._on_bug(exc)

        with self._lock:
            raw = make(with_info)
            made.append(raw)
            self._active[raw.pointer] = raw
        return raw

    def remove(self, raw: RawSubscription) -> None:
        with self._lock:
            if self._active.pop(raw.pointer, None) is not None:
                self._take(raw, None)

    def close(self, timeout_s: float) -> bool:
        with self._lock:
            for raw in self._active.values():
                self._take(raw, None)
            self._active.clear()
        return True

    def _take(self, raw: RawSubscription, first: tuple[bytes, Any] | None) -> None:
        batch = SourceBatch(self._source_id)
        try:
            if first is not None:
                raw.topic.admit(first, batch)
            if self._drain:
                raw.drain(batch)
        finally:
            if batch.payloads:
                self._deliver(batch)


class _NeverGroup(ReentrantCallbackGroup):
    def can_execute(self, entity: Any) -> Any:
        return False


def _never() -> CallbackGroup:
    return _NeverGroup()
