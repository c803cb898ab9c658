# SPDX-License-Identifier: Apache-2.0
"""Stores that rows are delivered to, one driver per ``type`` of a sink (spec 5.1).

A new driver is one module and one line in :data:`DRIVERS`. Drivers are imported when a
configuration names them, so that their libraries are needed by those alone who use them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from thadam_ros.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from thadam_ros.sinks.contract import SinkDriver


class DriverEntry(NamedTuple):
    """Where a driver lives and what it needs.

    Attributes:
        target: ``module:Class``; empty when this version knows the name but has no driver.
        extra: The optional extra of this package that installs the libraries; empty for a driver
            that needs none.
        libraries: Import names that the driver needs beyond the core's own.
    """

    target: str
    extra: str
    libraries: tuple[str, ...]


#: ``sinks.<name>.type`` -> driver.
DRIVERS: Mapping[str, DriverEntry] = MappingProxyType(
    {
        "parquet": DriverEntry("thadam_ros.sinks.parquet.driver:ParquetDriver", "", ()),
        "clickhouse": DriverEntry("", "clickhouse", ("clickhouse_connect",)),
        "kafka": DriverEntry("", "kafka", ("aiokafka",)),
        "nats": DriverEntry("", "nats", ("nats",)),
        "mqtt": DriverEntry("", "mqtt", ("paho",)),
    }
)


def load_driver(
    sink_type: str, drivers: Mapping[str, DriverEntry] = DRIVERS
) -> Callable[..., SinkDriver]:
    """Import the driver class of a sink type.

    Raises:
        FatalError: The type is unknown or has no driver in this version, or a library is missing;
            the message says what to install or which types there are.
    """
    usable = ", ".join(name for name, entry in drivers.items() if entry.target)
    entry = drivers.get(sink_type)
    if entry is None:
        raise FatalError(f"there is no sink type {sink_type!r}; types with a driver: {usable}")
    if not entry.target:
        raise FatalError(
            f"sink type {sink_type!r} has no driver in this version; types with a driver: {usable}"
        )
    module_name, _, class_name = entry.target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in entry.libraries:
            raise
        raise FatalError(
            f"sink type {sink_type!r} needs the Python module {exc.name!r}; "
            f"install it with: pip install 'thadam_ros[{entry.extra}]'"
        ) from exc
    driver: Callable[..., SinkDriver] = getattr(module, class_name)
    return driver
