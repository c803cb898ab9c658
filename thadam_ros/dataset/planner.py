# SPDX-License-Identifier: Apache-2.0
"""How a dataset declaration becomes a plan; every mistake is noted, none is raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from thadam_ros.config.schema import DatasetConfig, LimitsConfig, TransformConfig
from thadam_ros.dataset.lock import (
    DatasetLock,
    LockedVersion,
    WantedColumn,
    evolve,
    show_columns,
)
from thadam_ros.dataset.plan import Catalog, DatasetPlan, PlannedField
from thadam_ros.dataset.planned_columns import plan_columns
from thadam_ros.dataset.planned_identity import plan_identity
from thadam_ros.dataset.planned_sources import Sources
from thadam_ros.dataset.planned_steps import plan_steps
from thadam_ros.dataset.planned_time import plan_key, plan_time, time_hash
from thadam_ros.decode.definition import normalize_type_name, parse_definition
from thadam_ros.decode.schema import MessageSchema, type_hash
from thadam_ros.errors import Problem, RecordError


def plan(
    config: DatasetConfig,
    edge_identity: Mapping[str, str],
    catalog: Catalog,
    lock: DatasetLock | None,
    limits: LimitsConfig,
    transforms: Sequence[TransformConfig],
    row_hash: str,
) -> tuple[DatasetPlan, list[Problem]]:
    """Return the plan and all problems; ``transforms`` are those that run for this dataset."""
    problems: list[Problem] = []
    schema: MessageSchema | None = None
    if config.decode == "cdr":
        schema = _load_schema(config, catalog, problems)
        if schema is None:
            return DatasetPlan(config, row_hash=row_hash), problems
    sources = Sources(config, schema, problems)
    notes: list[str] = []
    fields = plan_columns(sources, plan_identity(sources, edge_identity), notes)
    time = plan_time(sources)
    key = plan_key(sources, edge_identity)
    pinned = lock.version(config.name, config.version) if lock else None
    fields, version = _give_ids(sources, fields, pinned)
    steps = plan_steps(
        config,
        transforms,
        fields,
        limits,
        sources.fetch,
        problems,
        time_hash=time_hash(sources, time),
        has_time=time is not None,
        exploded=sources.explode is not None,
    )
    if config.dedup and not config.event_id_key:
        sources.problem("dedup", None, "needs event_id.key: only a key from content repeats.")
    supported = schema is not None
    planned = DatasetPlan(
        config=config,
        fields=tuple(fields),
        type_name=schema.type_name if schema else "",
        pointers=tuple(sources.pointers),
        explode=sources.explode,
        time=time,
        key=key,
        dedup=config.dedup,
        fetched=sources.fetched,
        steps=tuple(steps),
        row_hash=row_hash,
        pinned=version,
        notes=tuple(notes),
        supported=supported,
        reason="" if supported else f"decode: {config.decode} is not built yet in this version",
    )
    return planned, problems


def _load_schema(
    config: DatasetConfig, catalog: Catalog, problems: list[Problem]
) -> MessageSchema | None:
    def problem(message: str) -> None:
        problems.append(Problem(f"datasets.{config.name}.type", config.type, message))

    name = config.type
    if not name:
        problem("is required for decode: cdr, such as sensor_msgs/msg/Imu.")
        return None
    try:
        full = normalize_type_name(name)
        text = catalog.definition(full)
        if text is None:
            problem("has no definition; install or source the package that holds the message.")
            return None
        return parse_definition(text, full)
    except RecordError as exc:
        problem(f"{exc.reason}.")
        return None


def _give_ids(
    sources: Sources, fields: Sequence[PlannedField], pinned: LockedVersion | None
) -> tuple[list[PlannedField], LockedVersion]:
    """Number the columns, by the lock where it knows them; notes what the lock refuses."""
    config, schema = sources.config, sources.schema
    wanted = [
        WantedColumn(
            f.name,
            f.type,
            f.source.pointer if f.source else "",
            f.unit,
            config.fields[f.name].id if f.name in config.fields else None,
        )
        for f in fields
    ]
    version, refusals = evolve(
        pinned,
        wanted,
        type_name=schema.type_name if schema else "",
        type_hash=type_hash(schema) if schema else "",
        exploded=sources.explode is not None,
    )
    for refusal in refusals:
        shown = ""
        if pinned:
            asked = {want.name: version.columns[want.name] for want in wanted}
            shown = (
                f" Pinned: {show_columns(pinned.columns)}. Now: {show_columns(asked)}."
                " Raise `version` to start a new table."
            )
        sources.problem("version", config.version, f"{refusal}.{shown}")
    numbered = [
        replace(
            f,
            field_id=version.columns[f.name].field_id,
            element_id=version.columns[f.name].element_id,
        )
        for f in fields
    ]
    return sorted(numbered, key=lambda f: f.field_id), version
