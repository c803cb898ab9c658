# SPDX-License-Identifier: Apache-2.0
"""The contract of a transform: planned once against a dataset's columns, then run over rows.

A plan is frozen and shared; ``build`` gives a step that owns its state and belongs to one
pipeline. Steps see all rows of a record group, dead ones included, and change rows only through
the methods of :class:`~thadam_ros.transforms.rows.Rows`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import orjson

from thadam_ros.config.schema import LimitsConfig
from thadam_ros.dataset.types import ColumnType
from thadam_ros.errors import Problem

if TYPE_CHECKING:
    from thadam_ros.transforms.rows import Rows


class Step(Protocol):
    """One transform at work.

    ``apply`` runs once per record group; afterwards exactly one of ``commit`` and ``rollback``.
    """

    def apply(self, rows: Rows) -> None:
        """Flag, reject, drop or change rows."""

    def snapshot(self) -> object:
        """Return everything that can change a later row, as JSON values; None when stateless."""

    def restore(self, state: object) -> None:
        """Continue from :meth:`snapshot`; None means a fresh start."""

    def commit(self) -> None:
        """Keep the state changes of the last ``apply``."""

    def rollback(self) -> None:
        """Undo the state changes of the last ``apply``."""


class StepPlan(Protocol):
    """One transform, checked and compiled."""

    @property
    def name(self) -> str:
        """Name in the configuration; unique inside a dataset."""

    @property
    def state_hash(self) -> str:
        """Hash of what gives the state its meaning; another hash discards the state."""

    def build(self) -> Step:
        """Return a step with fresh state."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step may refer to while it is planned.

    Attributes:
        path: Dotted path of the step in the configuration.
        columns: Columns an expression may name -> their type, envelope columns included.
        settable: Columns a ``set`` may change.
        fetch: Makes a message pointer available as a column of that name; returns a sentence
            when the message has no such number.
        has_time: The dataset declares ``time:``.
        time_hash: Hash of what gives ``_source_time`` and the identity their meaning.
    """

    path: str
    columns: Mapping[str, ColumnType]
    settable: frozenset[str]
    limits: LimitsConfig
    fetch: Callable[[str], str | None]
    has_time: bool = False
    time_hash: str = ""
    problems: list[Problem] = field(default_factory=list)

    def problem(self, key: str, value: object, message: str, suggestion: str | None = None) -> None:
        """Note one mistake at ``<path>.<key>``."""
        path = f"{self.path}.{key}" if key else self.path
        self.problems.append(Problem(path, value, message, suggestion))

    def known(self, key: str, names: Iterable[str]) -> bool:
        """Tell whether all columns exist; notes a problem for each that does not."""
        missing = [name for name in names if name not in self.columns]
        for name in missing:
            self.problem(key, name, "there is no such column.", nearest(name, self.columns))
        return not missing


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``."""
    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def stable_hash(*parts: object) -> str:
    """Return 32 hex digits over JSON values, independent of map order."""
    raw = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(raw).hexdigest()[:32]
