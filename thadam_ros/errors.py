# SPDX-License-Identifier: Apache-2.0
"""The error tree. Policy switches on the type, never on message text (spec 1.6).

::

    ThadamError
    ├── RecordError       this event or message cannot be processed     -> reject
    ├── TransientError    the store or broker may work later            -> backoff, Degraded
    │   └── StorageFullError   ENOSPC, EDQUOT or a budget               -> backoff, Degraded
    └── FatalError        needs a person or another document            -> Failed
        ├── ConfigError        one or more problems in a configuration
        ├── LockHeldError      another process owns the directory
        ├── FormatError        not our file, or a version we cannot read
        └── SchemaRefusedError the store or the lock file refuses a schema

Anything else that is raised is a bug: caught at the component's edge and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ThadamError(Exception):
    """Base of every error this package raises on purpose."""


class RecordError(ThadamError):
    """One message or event cannot be processed; it becomes a reject.

    Attributes:
        code: A reject code of :mod:`thadam_ros.model.codes`, such as ``decode.truncated``.
        reason: One short sentence without payload bytes.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class TransientError(ThadamError):
    """The same call may succeed later."""


class StorageFullError(TransientError):
    """The disk, the quota or a budget is exhausted."""


class FatalError(ThadamError):
    """Retrying without a change from outside is pointless."""


class LockHeldError(FatalError):
    """Another process holds the lock; the message says who."""


class FormatError(FatalError):
    """A file is not ours or has a version this software cannot read; the message names both."""


class SchemaRefusedError(FatalError):
    """A schema changed in a way that needs a new dataset version; both schemas are shown."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration.

    Attributes:
        path: Dotted path of the value, such as ``datasets.imu.match.topics``.
        value: What stands there, as written (None when something is missing).
        message: One sentence: what is wrong and what would be valid.
        suggestion: The nearest valid name, if there is one.
        line: Line of the document, from 1, where it is known.
    """

    path: str
    value: object
    message: str
    suggestion: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        shown = "" if self.value is None else f" = {self.value!r}"
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{place}{self.path or '<document>'}{shown}: {self.message}{hint}"


class ConfigError(FatalError):
    """The configuration has problems; all of them, not just the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))
