# SPDX-License-Identifier: Apache-2.0
"""Checks across records: references, combinations, rules of the specification's chapters.

Each check is a pure function from a configuration to problems and runs however broken the
document is: the loader drops what a check says about a value that was replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from thadam_ros.config.checks import datasets, edge, sinks
from thadam_ros.config.schema import Config
from thadam_ros.errors import Problem

CHECKS: Final[tuple[Callable[[Config], list[Problem]], ...]] = (
    edge.check_presence,
    edge.check_wal,
    edge.check_sources,
    datasets.check_matches,
    datasets.check_fields,
    datasets.check_columns,
    datasets.check_events,
    sinks.check_sinks,
    sinks.check_transforms,
    sinks.check_files,
    edge.check_quarantine,
)
