# SPDX-License-Identifier: Apache-2.0
"""Which QoS is asked for (spec 7.2)."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("rclpy", reason="thadam_ros.node needs rclpy")

from rclpy.qos import QoSCompatibility, qos_check_compatible

from thadam_ros.config.schema import TopicOptions
from thadam_ros.node.qos import (
    DEPTH_BYTES_MAX,
    WEAKEST,
    QosClass,
    default_depth,
    merge_options,
    parse_qos_overrides,
    requested_classes,
    to_profile,
)

CLASSES = [
    QosClass(r, d) for r in ("reliable", "best_effort") for d in ("transient_local", "volatile")
]
NONE = TopicOptions()


@pytest.mark.parametrize(("offered", "requested"), itertools.product(CLASSES, CLASSES))
def test_matching_agrees_with_the_middleware(offered: QosClass, requested: QosClass) -> None:
    """The rule is the one rmw applies."""
    verdict, _ = qos_check_compatible(to_profile(offered, 1), to_profile(requested, 1))
    assert offered.satisfies(requested) == (verdict != QoSCompatibility.ERROR)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("split", [True, False])
def test_every_publisher_reaches_a_subscription(count: int, split: bool) -> None:
    """Whatever is offered, no publisher is left without a matching subscription."""
    for offered in itertools.combinations(CLASSES, count):
        requested = requested_classes(offered, NONE, split)
        for one in offered:
            assert any(one.satisfies(r) for r in requested)
        assert split or len(requested) == 1


def test_a_publisher_keeps_its_own_guarantees_when_split() -> None:
    """A latched, reliable publisher is asked for all it offers beside a poorer one."""
    strong, weak = QosClass("reliable", "transient_local"), WEAKEST
    assert requested_classes([weak, strong], NONE, True) == (strong, weak)
    assert requested_classes([weak, strong], NONE, False) == (weak,)


def test_the_configuration_overrides_what_is_offered() -> None:
    """An override holds for every publisher, also one it shuts out."""
    requested = requested_classes([WEAKEST], TopicOptions(reliability="reliable"), True)
    assert requested == (QosClass("reliable", "volatile"),)
    assert not WEAKEST.satisfies(requested[0])


def test_depth_covers_two_seconds_within_16_mib() -> None:
    """max(50, 2 s of the rate), less for big messages, never zero."""
    assert default_depth(10.0, 100.0) == 50
    assert default_depth(500.0, 100.0) == 1000
    assert default_depth(10.0, 1 << 20) == 16
    assert default_depth(10.0, 2 * DEPTH_BYTES_MAX) == 1


def test_qos_overrides_parameters_are_read_and_mistakes_named() -> None:
    """ROS's own spelling works; a wrong policy or value is a problem, a publisher's is not ours."""
    options, problems = parse_qos_overrides(
        {
            "qos_overrides./a/b.subscription.reliability": "best_effort",
            "qos_overrides./a/b.subscription.depth": 7,
            "qos_overrides./a/b.publisher.depth": 3,
            "qos_overrides./c.subscription.durability": "eternal",
            "qos_overrides./c.subscription.speed": 1,
            "other": 1,
        }
    )
    assert options == {"/a/b": TopicOptions(reliability="best_effort", depth=7)}
    assert [p.path for p in problems] == [
        "qos_overrides./c.subscription.durability",
        "qos_overrides./c.subscription.speed",
    ]
    base = TopicOptions(reliability="reliable", max_rate_hz=5.0)
    merged = merge_options(base, options["/a/b"])
    assert merged == TopicOptions(reliability="best_effort", depth=7, max_rate_hz=5.0)
