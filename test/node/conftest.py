# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the ROS tests: a domain of their own, executors in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder: it needs ROS."""
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.ros)


@pytest.fixture(scope="session")
def domain_id() -> Iterator[int]:
    """A ROS_DOMAIN_ID that no other test run on this machine uses."""
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    coordinator = pytest.importorskip("domain_coordinator", reason="needs domain_coordinator")
    with coordinator.domain_id() as number:
        yield int(number)


@pytest.fixture
def context(domain_id: int) -> Iterator[Any]:
    """A ROS context on the tests' domain."""
    import rclpy
    from rclpy.context import Context

    made = Context()
    rclpy.init(context=made, domain_id=domain_id)
    yield made
    if made.ok():
        made.shutdown()


@pytest.fixture
def spin(context: Any) -> Iterator[Callable[..., Any]]:
    """Spin nodes in a multi-threaded executor of their own, until the test ends."""
    from rclpy.executors import MultiThreadedExecutor

    from .support import Spinner

    spinners: list[Spinner] = []
    spun: list[Any] = []

    def start(*nodes: Any, threads: int = 4) -> Any:
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
def client_node(context: Any) -> Iterator[Any]:
    """A node that only makes calls, spun by a thread of its own."""
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    from .support import Spinner

    node = Node("test_client", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    spinner = Spinner(executor)
    yield node
    spinner.close()
    node.destroy_node()
