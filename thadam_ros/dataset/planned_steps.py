# SPDX-License-Identifier: Apache-2.0
"""The steps of a dataset: its own rules first, then the transforms in listed order (spec 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thadam_ros.config.schema import DatasetConfig, LimitsConfig, TransformConfig
from thadam_ros.dataset.plan import PlannedField
from thadam_ros.dataset.types import ColumnType
from thadam_ros.errors import Problem
from thadam_ros.transforms import NOT_BUILT, STEPS
from thadam_ros.transforms.gap import PUBLISHER_SEQUENCE, Gap
from thadam_ros.transforms.rules import FlagUnless, RejectUnless
from thadam_ros.transforms.stale import Stale
from thadam_ros.transforms.step import StepContext, StepPlan, nearest

#: Envelope columns an expression may read; times are integers, ns.
ENVELOPE_COLUMNS = {
    "_ingest_time": ColumnType("timestamp"),
    "_source_time": ColumnType("long"),
    "_event_time": ColumnType("timestamp"),
    "_quality_status": ColumnType("int"),
    "_quality_flags": ColumnType("int"),
    "_clock_synced": ColumnType("boolean"),
}


def plan_steps(
    config: DatasetConfig,
    transforms: Sequence[TransformConfig],
    fields: Sequence[PlannedField],
    limits: LimitsConfig,
    fetch: Callable[[str], str | None],
    problems: list[Problem],
    *,
    time_hash: str,
    has_time: bool,
    exploded: bool,
) -> list[StepPlan]:
    """Plan all steps of a dataset; mistakes are added to ``problems``.

    The names of a dataset's own rules hold a dot, so that no transform can share them.
    """
    columns = {**ENVELOPE_COLUMNS, **{field.name: field.type for field in fields}}
    if exploded:
        columns["sample_idx"] = ColumnType("int")
    settable = frozenset(field.name for field in fields if not field.identity)
    path = f"datasets.{config.name}"

    def context(at: str) -> StepContext:
        return StepContext(at, columns, settable, limits, fetch, has_time, time_hash, problems)

    steps: list[StepPlan | None] = []
    if config.flag_unless:
        at = context(f"{path}.flag_unless")
        steps.append(FlagUnless.plan("dataset.flag_unless", config.flag_unless, at))
    if config.reject_unless:
        at = context(f"{path}.reject_unless")
        steps.append(RejectUnless.plan("dataset.reject_unless", config.reject_unless, at))
    if config.gap and not (config.gap == PUBLISHER_SEQUENCE or config.gap.startswith("/")):
        message = "must be publisher_sequence or a pointer such as /seq."
        problems.append(Problem(f"{path}.gap", config.gap, message))
    elif config.gap:
        own = _Renamed(context(f"{path}.gap"), {"by": ""})
        steps.append(Gap.plan("dataset.gap", {"by": config.gap}, own.context))
        own.collect(problems)
    if config.stale_ns is not None:
        own = _Renamed(context(f"{path}.stale"), {"after": ""})
        steps.append(Stale.plan("dataset.stale", {"after": config.stale_ns}, own.context))
        own.collect(problems)
    seen: set[str] = set()
    for transform in transforms:
        if transform.name in seen:
            message = "is the name of two transforms."
            problems.append(Problem("transforms", transform.name, message))
        seen.add(transform.name)
        steps.append(_plan_transform(transform, context(f"transforms.{transform.name}")))
    return [step for step in steps if step is not None]


def _plan_transform(transform: TransformConfig, context: StepContext) -> StepPlan | None:
    if transform.kind in NOT_BUILT:
        context.problem("kind", transform.kind, "is not built yet in this version.")
        return None
    planner = STEPS.get(transform.kind)
    if planner is None:
        valid = ", ".join(sorted(STEPS))
        near = nearest(transform.kind, STEPS)
        context.problem("kind", transform.kind, f"is no transform; valid: {valid}.", near)
        return None
    return planner(transform.name, transform.options, context)


class _Renamed:
    """A context of its own whose problems are renamed: a short form has no ``by`` key."""

    def __init__(self, context: StepContext, keys: dict[str, str]) -> None:
        self._keys = keys
        self._path = context.path
        self.context = StepContext(
            context.path,
            context.columns,
            context.settable,
            context.limits,
            context.fetch,
            context.has_time,
            context.time_hash,
        )

    def collect(self, problems: list[Problem]) -> None:
        """Add the problems under the short form's path."""
        for problem in self.context.problems:
            key = problem.path.removeprefix(self._path).lstrip(".")
            path = self._path if self._keys.get(key) == "" else problem.path
            problems.append(Problem(path, problem.value, problem.message, problem.suggestion))
