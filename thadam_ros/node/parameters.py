# SPDX-License-Identifier: Apache-2.0
"""The configuration as declared ROS parameters of one node (spec 7.3).

Parameters are declared one by one from the schema, never from whatever was given: an empty list
would crash that, and a mistyped name would pass unseen. What was given and is not declared stays
visible to the loader, which refuses it with a suggestion.

A declared value counts as *given* when it came from the command line or a parameter file, or was
set since. Values that merely show what the document or the schema says do not: the document may be
corrected and configured again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterException,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from thadam_ros.config.kinds import Duration, Refused
from thadam_ros.config.parameters import ParameterSpec
from thadam_ros.errors import ConfigError, Problem

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_DOUBLE_MAX = 1.7976931348623157e308

#: Set by ROS tooling at any time; not read by configure.
_ALWAYS_CHANGEABLE = frozenset({"use_sim_time"})


class ParameterTable:
    """Declares and reads the parameters of one node."""

    def __init__(self, node: Node, refuse_change: Callable[[], str | None]) -> None:
        """Prepare.

        Args:
            refuse_change: Why nothing may be changed now, None when it may.
        """
        self._node = node
        self._refuse_change = refuse_change
        #: Name -> what is shown without being given.
        self._shown: dict[str, object] = {}
        self._declaring = False
        #: Name -> value, as the command line and the parameter files gave them.
        self.overrides: dict[str, object] = {
            name: parameter.value for name, parameter in _overrides_of(node).items()
        }
        node.add_on_set_parameters_callback(self._on_set)

    def declare(self, specs: Iterable[ParameterSpec]) -> None:
        """Declare what is new, and show new defaults where nothing was given."""
        self._declaring = True
        try:
            for spec in specs:
                self._declare(spec)
        finally:
            self._declaring = False

    def given(self) -> dict[str, object]:
        """Return every value that somebody gave, declared or not, by full name."""
        values = dict(self.overrides)
        for name, shown in self._shown.items():
            value = self.value(name)
            if name in self.overrides or value != shown:
                values[name] = value
        return values

    def value(self, name: str) -> Any:
        """Return the present value of a declared parameter, None when it is not set."""
        parameter = self._node.get_parameter_or(name, None)
        return None if parameter is None else _plain(parameter.value)

    def _declare(self, spec: ParameterSpec) -> None:
        default = _plain(spec.default)
        if self._node.has_parameter(spec.name):
            if spec.name not in self._shown or self._shown[spec.name] == default:
                return
            if spec.name in self.overrides or self.value(spec.name) != self._shown[spec.name]:
                self._shown[spec.name] = default
                return
            if spec.read_only:
                return
            self._node.undeclare_parameter(spec.name)
        self._shown[spec.name] = default
        try:
            self._node.declare_parameter(spec.name, default, _descriptor(spec))
        except (InvalidParameterTypeException, InvalidParameterValueException):
            # Given with another type or out of range. The loader says so, with all other problems.
            self._node.declare_parameter(
                spec.name,
                self.overrides.get(spec.name),
                ParameterDescriptor(description=spec.description, dynamic_typing=True),
            )
        except ParameterException as exc:
            self._node.get_logger().warning(f"parameter {spec.name}: {exc}")

    def _on_set(self, parameters: list[Parameter[Any]]) -> SetParametersResult:
        if self._declaring or all(p.name in _ALWAYS_CHANGEABLE for p in parameters):
            return SetParametersResult(successful=True)
        if not any(p.name in self._shown for p in parameters):
            return SetParametersResult(successful=True)
        reason = self._refuse_change()
        if reason is None:
            return SetParametersResult(successful=True)
        return SetParametersResult(successful=False, reason=reason)


def drain_timeout_s(table: ParameterTable) -> float:
    """Return the parameter ``drain_timeout`` in seconds.

    Raises:
        ConfigError: If it is no duration.
    """
    value = table.value("drain_timeout")
    try:
        return Duration(low=0).check(value) / 1e9
    except Refused as exc:
        raise ConfigError([Problem("drain_timeout", value, str(exc))]) from exc


def _overrides_of(node: Node) -> Mapping[str, Any]:
    # rclpy offers no public way to see overrides that nobody declared.
    overrides: Mapping[str, Any] = node._parameter_overrides
    return overrides


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        return list(value)
    return value


def _descriptor(spec: ParameterSpec) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=spec.description,
        read_only=spec.read_only,
        # rclpy takes an empty list for one of bytes; without a value, reading many at once fails.
        dynamic_typing=spec.default == [] or spec.default == (),
    )
    if spec.range is None:
        return descriptor
    low, high = spec.range
    if spec.type == "integer":
        # Bounds beyond 64 bits cannot be told.
        with contextlib.suppress(AssertionError, OverflowError):
            descriptor.integer_range = [
                IntegerRange(
                    from_value=_INT64_MIN if low is None else int(low),
                    to_value=_INT64_MAX if high is None else int(high),
                    step=1,
                )
            ]
    elif spec.type == "double":
        descriptor.floating_point_range = [
            FloatingPointRange(
                from_value=-_DOUBLE_MAX if low is None else float(low),
                to_value=_DOUBLE_MAX if high is None else float(high),
                step=0.0,
            )
        ]
    return descriptor
