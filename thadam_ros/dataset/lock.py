# SPDX-License-Identifier: Apache-2.0
"""The dataset lock: what a dataset version has promised to its readers (spec 3.2).

Beside the configuration stands a lock file that pins, per dataset and version, every column with
its type and field id, and the RIHS01 hash of the message type the columns were expanded from.
Under one version columns may be added and widened (``int -> long``, ``float -> double``); anything
else is refused with both schemas shown. Field ids are never reused: a version starts at
``FIRST_FIELD_ID`` and only counts up. Nothing here touches a file; the caller writes the rendered
text atomically.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from thadam_ros.dataset.envelope import FIRST_FIELD_ID
from thadam_ros.dataset.types import ColumnType, parse_type
from thadam_ros.errors import FormatError

LOCK_FORMAT = 1


@dataclass(frozen=True, slots=True)
class LockedColumn:
    """One pinned column.

    Attributes:
        pointer: Where its values came from, for people; empty for constants.
        element_id: Field id of a list's elements, None for scalars.
        unit: Unit of the stored values, if declared.
    """

    type: ColumnType
    field_id: int
    element_id: int | None = None
    pointer: str = ""
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class LockedVersion:
    """What one version of one dataset pins.

    Attributes:
        type_name: Message type, empty for untyped decoders.
        type_hash: ``RIHS01_...`` of that type when it was expanded, or empty.
        exploded: Whether rows carry ``sample_idx``.
        next_id: The smallest field id that was never given out.
        columns: By name.
    """

    type_name: str = ""
    type_hash: str = ""
    exploded: bool = False
    next_id: int = FIRST_FIELD_ID
    columns: Mapping[str, LockedColumn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DatasetLock:
    """A whole lock file: dataset name -> version -> what it pins."""

    datasets: Mapping[str, Mapping[int, LockedVersion]] = field(default_factory=dict)

    def version(self, dataset: str, version: int) -> LockedVersion | None:
        """Return what a version pins, None when it is new."""
        return self.datasets.get(dataset, {}).get(version)

    def with_version(self, dataset: str, version: int, pinned: LockedVersion) -> DatasetLock:
        """Return this lock with one version replaced or added."""
        versions = {**self.datasets.get(dataset, {}), version: pinned}
        return DatasetLock({**self.datasets, dataset: versions})


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column as the configuration asks for it; ``field_id`` only when it was written there."""

    name: str
    type: ColumnType
    pointer: str = ""
    unit: str | None = None
    field_id: int | None = None


def evolve(
    pinned: LockedVersion | None,
    wanted: Sequence[WantedColumn],
    *,
    type_name: str,
    type_hash: str,
    exploded: bool,
) -> tuple[LockedVersion, list[str]]:
    """Hold the wanted columns against what is pinned and give ids to new ones.

    Returns:
        The version to pin from now on, and one sentence per refusal; with refusals the version
        is not to be saved.
    """
    base = pinned or LockedVersion(type_name, type_hash, exploded)
    refusals = _refusals(base, wanted, type_name, type_hash, exploded) if pinned else []
    columns = dict(base.columns)
    taken = {i for column in columns.values() for i in (column.field_id, column.element_id)}
    taken |= {column.field_id for column in wanted}
    next_id = base.next_id

    def draw() -> int:
        nonlocal next_id
        while next_id in taken:
            next_id += 1
        next_id += 1
        return next_id - 1

    for want in wanted:
        known = columns.get(want.name)
        if known is not None:
            columns[want.name] = replace(
                known, type=want.type, pointer=want.pointer, unit=want.unit
            )
            continue
        field_id = draw() if want.field_id is None else want.field_id
        element_id = draw() if want.type.element else None
        columns[want.name] = LockedColumn(want.type, field_id, element_id, want.pointer, want.unit)
    used = [i for c in columns.values() for i in (c.field_id, c.element_id) if i is not None]
    next_id = max([next_id, *(i + 1 for i in used)])
    refusals += _id_clashes(columns.items())
    refusals += [
        f"{want.name}: its field id is {columns[want.name].field_id} and cannot become "
        f"{want.field_id}"
        for want in wanted
        if want.field_id is not None and want.field_id != columns[want.name].field_id
    ]
    return LockedVersion(type_name, type_hash, exploded, next_id, columns), refusals


def _refusals(
    pinned: LockedVersion,
    wanted: Sequence[WantedColumn],
    type_name: str,
    type_hash: str,
    exploded: bool,
) -> list[str]:
    refusals = []
    if type_name != pinned.type_name:
        refusals.append(f"the type was {pinned.type_name or 'none'}, now {type_name or 'none'}")
    elif type_hash != pinned.type_hash:
        refusals.append(
            f"the definition of {type_name} changed ({pinned.type_hash} -> {type_hash})"
        )
    if exploded != pinned.exploded:
        refusals.append("explode cannot be added or removed")
    by_name = {want.name: want for want in wanted}
    for name, column in pinned.columns.items():
        want = by_name.get(name)
        if want is None:
            refusals.append(f"{name}: a column cannot be removed or renamed")
        elif not want.type.widens(column.type):
            refusals.append(f"{name}: {column.type} cannot become {want.type}")
        elif want.unit != column.unit:
            refusals.append(
                f"{name}: the unit cannot change from {column.unit or 'none'} "
                f"to {want.unit or 'none'}"
            )
    return refusals


def _id_clashes(columns: Iterable[tuple[str, LockedColumn]]) -> list[str]:
    owner: dict[int, str] = {}
    clashes = []
    for name, column in columns:
        for field_id in (column.field_id, column.element_id):
            if field_id is None:
                continue
            if field_id < FIRST_FIELD_ID:
                clashes.append(f"{name}: field ids below {FIRST_FIELD_ID} belong to the envelope")
            if field_id in owner:
                clashes.append(f"{name}: field id {field_id} belongs to {owner[field_id]}")
            owner.setdefault(field_id, name)
    return clashes


def show_columns(columns: Mapping[str, LockedColumn]) -> str:
    """Return a schema in one line, by field id: ``100 robot string, 101 x double``."""
    ordered = sorted(columns.items(), key=lambda item: item[1].field_id)
    return ", ".join(f"{column.field_id} {name} {column.type}" for name, column in ordered)


def render_lock(lock: DatasetLock) -> str:
    """Return the text of a lock file; equal locks give equal texts."""
    document = {
        "format": LOCK_FORMAT,
        "datasets": {
            name: {str(version): _dump(pinned) for version, pinned in versions.items()}
            for name, versions in lock.datasets.items()
        },
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(document, option=options).decode()


def parse_lock(text: str | bytes) -> DatasetLock:
    """Parse a lock file.

    Raises:
        FormatError: If it is no lock file or has another format version.
    """
    try:
        document = orjson.loads(text)
        version = document["format"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        raise FormatError("not a dataset lock file") from exc
    if version != LOCK_FORMAT:
        raise FormatError(f"dataset lock format {version}, this software reads {LOCK_FORMAT}")
    try:
        return DatasetLock(
            {
                name: {int(number): _load(pinned) for number, pinned in versions.items()}
                for name, versions in document["datasets"].items()
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FormatError(f"the dataset lock file is malformed: {exc}") from exc


def _dump(pinned: LockedVersion) -> dict[str, object]:
    return {
        "type": pinned.type_name,
        "type_hash": pinned.type_hash,
        "exploded": pinned.exploded,
        "next_id": pinned.next_id,
        "columns": {
            name: {
                "type": str(column.type),
                "id": column.field_id,
                **({} if column.element_id is None else {"element_id": column.element_id}),
                **({"from": column.pointer} if column.pointer else {}),
                **({"unit": column.unit} if column.unit else {}),
            }
            for name, column in pinned.columns.items()
        },
    }


def _load(document: Mapping[str, object]) -> LockedVersion:
    columns = document["columns"]
    if not isinstance(columns, dict):
        raise TypeError("columns is no map")
    return LockedVersion(
        type_name=_text(document["type"]),
        type_hash=_text(document["type_hash"]),
        exploded=bool(document["exploded"]),
        next_id=_integer(document["next_id"]),
        columns={name: _load_column(name, column) for name, column in columns.items()},
    )


def _load_column(name: str, document: Mapping[str, object]) -> LockedColumn:
    kind = parse_type(_text(document["type"]))
    if kind is None:
        raise ValueError(f"column {name} has the unknown type {document['type']!r}")
    element_id = document.get("element_id")
    unit = document.get("unit")
    return LockedColumn(
        type=kind,
        field_id=_integer(document["id"]),
        element_id=None if element_id is None else _integer(element_id),
        pointer=_text(document.get("from", "")),
        unit=None if unit is None else _text(unit),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value
