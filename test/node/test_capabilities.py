# SPDX-License-Identifier: Apache-2.0
"""Capabilities are found by looking and can be switched off (spec 7.2)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from rclpy.node import Node

from thadam_ros.errors import ConfigError
from thadam_ros.node import capabilities
from thadam_ros.node.capabilities import (
    DISABLE_VARIABLE,
    Capabilities,
    probe_capabilities,
    probe_message_info,
)


def test_a_present_distribution_has_what_the_fast_path_needs() -> None:
    """On the wheels the wait set, hashes and the description service are found."""
    found = probe_capabilities(())
    assert found.wait_set
    assert found.drain
    assert found.type_hash
    assert found.type_description


@pytest.mark.parametrize("name", Capabilities.names())
def test_each_capability_can_be_switched_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment or by the caller, and only that one."""
    complete = probe_capabilities(())
    monkeypatch.setenv(DISABLE_VARIABLE, name)
    reduced = probe_capabilities()
    assert not getattr(reduced, name)
    assert reduced == complete.without([name]) == probe_capabilities([name])


def test_an_unknown_capability_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing mistake does not silently test nothing."""
    monkeypatch.setenv(DISABLE_VARIABLE, "wait_set,waitset")
    with pytest.raises(ConfigError, match="waitset"):
        probe_capabilities()


def test_message_infos_are_looked_at(context: Any) -> None:
    """The probe agrees with an independently taken message."""
    from std_msgs.msg import Empty

    node = Node("probe", context=context)
    found = probe_message_info(node, probe_capabilities(()))
    publisher = node.create_publisher(Empty, "x", 1)
    subscription = node.create_subscription(Empty, "x", lambda m: None, 1, raw=True)
    info = None
    for _ in range(1000):
        publisher.publish(Empty())
        taken = subscription.handle.take_message(Empty, True)
        if taken is not None:
            info = taken[1]
            break
    node.destroy_node()
    assert info is not None
    assert found.sequence == (info.get("publication_sequence_number") is not None)
    assert found.publisher_gid == (info.get("publisher_gid") is not None)


def test_nothing_is_decided_by_a_version() -> None:
    """No distribution name and no version string stands in the module's code."""
    code = inspect.getsource(capabilities).split('"""', 2)[2]
    for word in ("ROS_DISTRO", "jazzy", "kilted", "humble", "__version__"):
        assert word not in code
