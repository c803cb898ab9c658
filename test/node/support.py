# SPDX-License-Identifier: Apache-2.0
"""Executors in threads, lifecycle clients, polling: what the ROS tests share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.node import Node

T = TypeVar("T")

#: Generous: the machines that run these tests are shared and small.
DEADLINE_S = 30.0
#: Asks again when an answer does not come for this long.
ASK_AGAIN_S = 3.0


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Poll until ``condition`` is truthy and return its value, or fail naming ``what``."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


class Spinner:
    """An executor in a thread."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._spin, name="test-executor")
        self._thread.start()

    def _spin(self) -> None:
        try:
            while not self._stop.is_set():
                self.executor.spin_once(timeout_sec=0.05)
        except BaseException as exc:
            self.error = exc

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        self.executor.wake()
        self._thread.join()
        self.executor.shutdown()


class LifecycleClient:
    """Talks to a lifecycle node as any fleet tool does: through its services."""

    def __init__(self, node: Node, target: str) -> None:
        self._change = node.create_client(ChangeState, f"{target}/change_state")
        self._get = node.create_client(GetState, f"{target}/get_state")

    def wait(self) -> None:
        assert self._change.wait_for_service(DEADLINE_S)
        assert self._get.wait_for_service(DEADLINE_S)

    def change_async(self, transition_id: int) -> Any:
        request = ChangeState.Request()
        request.transition.id = transition_id
        return self._change.call_async(request)

    def change(self, transition_id: int) -> bool:
        future = self.change_async(transition_id)
        wait_until(future.done, f"answer to transition {transition_id}")
        return bool(future.result().success)

    def state(self) -> str:
        # A service can be visible before the way back for its answers is: such a call gets no
        # answer, and asking again does.
        asked = [self._get.call_async(GetState.Request())]
        again = time.monotonic() + ASK_AGAIN_S

        def answered() -> Any:
            nonlocal again
            if time.monotonic() > again:
                again += ASK_AGAIN_S
                asked.append(self._get.call_async(GetState.Request()))
            return next((future for future in asked if future.done()), None)

        answer = wait_until(answered, "answer to get_state")
        return str(answer.result().current_state.label)

    def configure(self) -> bool:
        return self.change(Transition.TRANSITION_CONFIGURE)

    def activate(self) -> bool:
        return self.change(Transition.TRANSITION_ACTIVATE)

    def deactivate(self) -> bool:
        return self.change(Transition.TRANSITION_DEACTIVATE)

    def cleanup(self) -> bool:
        return self.change(Transition.TRANSITION_CLEANUP)
