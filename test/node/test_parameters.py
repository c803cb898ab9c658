# SPDX-License-Identifier: Apache-2.0
"""The configuration as declared parameters of a node (spec 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy")

from rclpy.node import Node
from rclpy.parameter import Parameter

from thadam_ros.config.parameters import ParameterSpec
from thadam_ros.node.parameters import ParameterTable

SPECS = [
    ParameterSpec("a.text", "string", "x", "Some text."),
    ParameterSpec("a.list", "string_array", [], "Some names."),
    ParameterSpec("a.number", "integer", 5, "A number.", (1, 10)),
    ParameterSpec("a.ratio", "double", 0.5, "A ratio.", (0.0, None)),
    ParameterSpec("fixed", "bool", True, "Only at start.", None, True),
]
Make = Callable[..., ParameterTable]


@pytest.fixture
def make(context: Any) -> Iterator[Make]:
    """Make a table on a node that was given some values."""
    nodes: list[Node] = []

    def build(refuse: Callable[[], str | None] = lambda: None, **given: Any) -> ParameterTable:
        overrides = [Parameter(k.replace("__", "."), value=v) for k, v in given.items()]
        node = Node("table", context=context, parameter_overrides=overrides)
        nodes.append(node)
        table = ParameterTable(node, refuse)
        table.declare(SPECS)
        return table

    yield build
    for node in nodes:
        node.destroy_node()


def test_declared_parameters_carry_type_description_and_range(make: Make) -> None:
    """What ros2 param describe shows."""
    table = make()
    node = table._node
    assert node.describe_parameter("a.text").description == "Some text."
    number = node.describe_parameter("a.number").integer_range[0]
    assert (number.from_value, number.to_value) == (1, 10)
    assert node.describe_parameter("a.ratio").floating_point_range[0].from_value == 0.0
    assert node.describe_parameter("fixed").read_only
    assert table.value("a.list") == []


def test_only_what_somebody_gave_counts_as_given(make: Make) -> None:
    """Defaults are shown, not given; set values are."""
    table = make(a__text="mine", unknown__name=1)
    assert table.given() == {
        "a.text": "mine", "unknown.name": 1,
    }  # fmt: skip
    table._node.set_parameters([Parameter("a.number", value=7)])
    assert table.given()["a.number"] == 7


def test_new_defaults_are_shown_where_nothing_was_given(make: Make) -> None:
    """A corrected document is not overridden by what the old one said."""
    table = make(a__number=3)
    table.declare(
        [ParameterSpec("a.text", "string", "new", ""), ParameterSpec("a.number", "integer", 9, "")]
    )
    assert table.value("a.text") == "new"
    assert table.value("a.number") == 3
    assert table.given() == {"a.number": 3}


def test_a_wrong_type_or_range_reaches_the_loader(make: Make) -> None:
    """The node starts; the loader names it beside all other problems."""
    table = make(a__text=20, a__number=99, a__list=["x"])
    assert table.given() == {"a.text": 20, "a.number": 99, "a.list": ["x"]}


def test_changes_are_refused_with_the_reason(make: Make) -> None:
    """While the node says why, nothing of the configuration changes."""
    reason: list[str | None] = [None]
    table = make(lambda: reason[0])
    assert table._node.set_parameters([Parameter("a.text", value="y")])[0].successful
    reason[0] = "active: clean up first"
    (result,) = table._node.set_parameters([Parameter("a.text", value="z")])
    assert not result.successful
    assert result.reason == "active: clean up first"
    assert table.value("a.text") == "y"
    assert table._node.set_parameters([Parameter("use_sim_time", value=False)])[0].successful
    (result,) = table._node.set_parameters([Parameter("fixed", value=False)])
    assert not result.successful
