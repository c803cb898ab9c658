# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the ROS tests: a domain of their own, executors in threads, lifecycle clients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs rclpy")

os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.context import Context
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node

T = TypeVar("T")

#: Generous: the machines that run these tests are shared and small.
DEADLINE_S = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs ROS."""
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.ros)


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
        future = self._get.call_async(GetState.Request())
        wait_until(future.done, "answer to get_state")
        return str(future.result().current_state.label)

    def configure(self) -> bool:
        return self.change(Transition.TRANSITION_CONFIGURE)

    def activate(self) -> bool:
        return self.change(Transition.TRANSITION_ACTIVATE)

    def deactivate(self) -> bool:
        return self.change(Transition.TRANSITION_DEACTIVATE)

    def cleanup(self) -> bool:
        return self.change(Transition.TRANSITION_CLEANUP)


@pytest.fixture(scope="session")
def domain_id() -> Iterator[int]:
    """A ROS_DOMAIN_ID that no other test run on this machine uses."""
    coordinator = pytest.importorskip("domain_coordinator", reason="needs domain_coordinator")
    with coordinator.domain_id() as number:
        yield int(number)


@pytest.fixture
def context(domain_id: int) -> Iterator[Context]:
    """A ROS context on the tests' domain."""
    made = Context()
    rclpy.init(context=made, domain_id=domain_id)
    yield made
    if made.ok():
        made.shutdown()


@pytest.fixture
def spin(context: Context) -> Iterator[Callable[..., Spinner]]:
    """Spin nodes in a multi-threaded executor of their own, until the test ends."""
    spinners: list[Spinner] = []
    spun: list[Node] = []

    def start(*nodes: Node, threads: int = 4) -> Spinner:
        executor = MultiThreadedExecutor(num_threads=threads, context=context)
        for node in nodes:
            executor.add_node(node)
            spun.append(node)
        spinners.append(Spinner(executor))
        return spinners[-1]

    yield start
    for spinner in spinners:
        spinner.close()
    for node in spun:
        node.destroy_node()


@pytest.fixture
def client_node(context: Context) -> Iterator[Node]:
    """A node that only makes calls, spun by a thread of its own."""
    node = Node("test_client", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    spinner = Spinner(executor)
    yield node
    spinner.close()
    node.destroy_node()
