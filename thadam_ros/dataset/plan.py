# SPDX-License-Identifier: Apache-2.0
"""The plan of a dataset: everything a declaration means, worked out once (spec 3.2).

``plan_dataset`` is pure and reports all mistakes at once. A plan is frozen; any number of
pipelines may run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from thadam_ros.config.schema import DatasetConfig, DedupConfig, LimitsConfig, TransformConfig
from thadam_ros.dataset.envelope import LABEL_TYPE, envelope_fields
from thadam_ros.dataset.identity import Template
from thadam_ros.dataset.lock import DatasetLock, LockedVersion
from thadam_ros.dataset.message import Leaf
from thadam_ros.dataset.types import ColumnType, field_id_metadata
from thadam_ros.dataset.units import AffineMap
from thadam_ros.errors import Problem
from thadam_ros.transforms.step import StepPlan


class Catalog(Protocol):
    """What planning needs of :class:`thadam_ros.decode.catalog.TypeCatalog`."""

    def definition(self, type_name: str) -> str | None:
        """Return the definition text of a type, or None."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where values come from.

    Attributes:
        leaf: What is read; for an exploded array its pointer is relative to the element.
        array: Pointer of the exploded array, None for a field of the message itself.
    """

    leaf: Leaf
    array: str | None = None

    @property
    def pointer(self) -> str:
        """How people read it: ``/status/name`` also for elements."""
        return (self.array or "") + self.leaf.pointer


@dataclass(frozen=True, slots=True)
class PlannedField:
    """One column besides the envelope.

    Attributes:
        template: Value of an identity level, None for pointers.
        source: Where values come from, None for identity templates.
        identity: It is an identity level (a label column).
        conversion: Applied to the numbers before they become the column's type.
        tick_ns: For a timestamp made from a number: ns per unit.
        unit: Unit of the stored values.
    """

    name: str
    type: ColumnType
    field_id: int
    element_id: int | None = None
    template: Template | None = None
    source: Source | None = None
    identity: bool = False
    required: bool = False
    conversion: AffineMap | None = None
    tick_ns: int | None = None
    unit: str | None = None

    def arrow_field(self, timestamp_unit: str) -> pa.Field:
        """Return the Arrow field with its Parquet field id."""
        kind = LABEL_TYPE if self.identity else self.type.arrow(timestamp_unit, self.element_id)
        return pa.field(self.name, kind, True, field_id_metadata(self.field_id, self.unit))


@dataclass(frozen=True, slots=True)
class PlannedTime:
    """``time:``; ``tick_ns`` is None for Time structures."""

    source: Source
    domain: str
    tick_ns: int | None
    max_skew_ns: int
    correct_offset_ns: int | None


@dataclass(frozen=True, slots=True)
class PlannedExplode:
    """``explode:``; one array of structures or primitives, or several parallel arrays.

    Attributes:
        arrays: Pointers of the arrays; the first decides the length unless it may be empty.
    """

    arrays: tuple[str, ...]
    empty_as_null: bool = False


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of ``event_id.key``: an identity template or a field of the message."""

    name: str
    template: Template | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """What a dataset pipeline runs.

    Attributes:
        fields: Columns after the envelope, by field id.
        type_name: Full name of the message type; empty for untyped decoders.
        pointers: What the decoder is asked for.
        fetched: Message pointers that steps need beside the columns -> source.
        steps: The dataset's own rules, then the transforms, in order.
        pinned: What the lock file is to hold for this version.
        notes: What a person should know, one sentence each.
        supported: Whether this version can run it; otherwise ``reason`` says why not.
    """

    config: DatasetConfig
    fields: tuple[PlannedField, ...] = ()
    type_name: str = ""
    pointers: tuple[str, ...] = ()
    explode: PlannedExplode | None = None
    time: PlannedTime | None = None
    key: tuple[KeyPart, ...] = ()
    dedup: DedupConfig | None = None
    fetched: Mapping[str, Source] = field(default_factory=dict)
    steps: tuple[StepPlan, ...] = ()
    row_hash: str = ""
    pinned: LockedVersion = field(default_factory=LockedVersion)
    notes: tuple[str, ...] = ()
    supported: bool = True
    reason: str = ""

    def arrow_schema(self, timestamp_unit: str) -> pa.Schema:
        """Return the schema of the rows: envelope, then columns by field id.

        Args:
            timestamp_unit: ``us`` or ``ns``.
        """
        envelope = envelope_fields(timestamp_unit, self.explode is not None)
        return pa.schema([*envelope, *(f.arrow_field(timestamp_unit) for f in self.fields)])


def plan_dataset(
    config: DatasetConfig,
    edge_identity: Mapping[str, str],
    catalog: Catalog,
    lock: DatasetLock | None,
    limits: LimitsConfig,
    transforms: Sequence[TransformConfig] = (),
    row_hash: str = "",
    *,
    sink: str | None = None,
) -> tuple[DatasetPlan, list[Problem]]:
    """Work out what a dataset declaration means.

    Args:
        edge_identity: Constant levels of the edge; they come before the dataset's own.
        catalog: Finds message definitions.
        lock: What was promised before; None starts fresh.
        transforms: All steps of the configuration; those of other datasets are left out here.
        row_hash: Row hash of the dataset, kept in its rejects.
        sink: Leave out steps that do not run for this sink; None keeps all.

    Returns:
        The plan and all problems; with problems the plan must not be run. The lock to save is
        ``lock.with_version(config.name, config.version, plan.pinned)``.
    """
    from thadam_ros.dataset.planner import plan

    own = [t for t in transforms if t.dataset in (None, config.name)]
    if sink is not None:
        own = [t for t in own if not t.sinks or sink in t.sinks]
    return plan(config, edge_identity, catalog, lock, limits, own, row_hash)
