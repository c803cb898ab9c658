# SPDX-License-Identifier: Apache-2.0
"""What a dataset version promises, and how it may change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thadam_ros.config.schema import ExplodeConfig, FieldConfig
from thadam_ros.dataset.envelope import ENVELOPE_IDS, FIRST_FIELD_ID
from thadam_ros.dataset.lock import DatasetLock, parse_lock, render_lock
from thadam_ros.errors import FormatError

from .support import KITCHEN, dataset, plan_of, problems_of


def kitchen_dataset(fields, **changes):
    """A dataset of named pointers."""
    declared = {
        n: f if isinstance(f, FieldConfig) else FieldConfig(n, f) for n, f in fields.items()
    }
    return dataset(KITCHEN, fields=declared, **changes)


def locked(config, **options):
    """The lock after a first run of ``config``."""
    plan = plan_of(config, **options)
    return (options.get("lock") or DatasetLock()).with_version("table", config.version, plan.pinned)


def ids(plan):
    """Name -> field id of the declared columns."""
    return {field.name: field.field_id for field in plan.fields}


def test_envelope_ids_are_fixed_and_declared_ones_start_at_100():
    """A column's id tells which kind it is; nothing collides."""
    assert list(ENVELOPE_IDS.values()) == list(range(1, 13))
    plan = plan_of(kitchen_dataset({"b": "/f64", "a": "/floats"}), identity={"robot": "r"})
    found = {f.name: (f.field_id, f.element_id) for f in plan.fields}
    assert found == {"robot": (100, None), "b": (101, None), "a": (102, 103)}
    assert FIRST_FIELD_ID == 100


def test_list_elements_carry_their_own_field_id_in_the_schema():
    """Iceberg readers need an id for every element."""
    schema = plan_of(kitchen_dataset({"a": "/floats"})).arrow_schema("us")
    element = schema.field("a").type.value_field
    assert element.name == "element"
    assert element.metadata[b"PARQUET:field_id"] == b"101"


def test_ids_survive_reordering_and_new_columns_get_new_ids():
    """The lock, not the order of the document, decides ids; columns follow them."""
    lock = locked(kitchen_dataset({"x": "/f64", "y": "/f32"}))
    plan = plan_of(kitchen_dataset({"z": "/u8", "y": "/f32", "x": "/f64"}), lock=lock)
    assert ids(plan) == {"x": 100, "y": 101, "z": 102}
    assert list(ids(plan)) == ["x", "y", "z"]


def test_a_written_id_is_used_and_never_given_to_another():
    """id: in a field wins over the counter, which steps around it."""
    first = kitchen_dataset({"x": FieldConfig("x", "/f64", id=101), "y": "/f32", "z": "/u8"})
    assert ids(plan_of(first)) == {"y": 100, "x": 101, "z": 102}
    lock = locked(first)
    clash = kitchen_dataset(
        {"x": "/f64", "y": "/f32", "z": "/u8", "w": FieldConfig("w", "/u16", id=100)}
    )
    (problem,) = problems_of(clash, lock=lock)
    assert "field id 100 belongs to" in problem.message
    moved = kitchen_dataset({"x": FieldConfig("x", "/f64", id=300), "y": "/f32", "z": "/u8"})
    (problem,) = problems_of(moved, lock=lock)
    assert "cannot become 300" in problem.message


def test_ids_of_the_envelope_cannot_be_written():
    """Ids below 100 are refused with the valid range."""
    (problem,) = problems_of(kitchen_dataset({"x": FieldConfig("x", "/f64", id=5)}))
    assert problem.path == "datasets.table.fields.x.id"
    assert "100" in problem.message


def widen(**types):
    """Declare ``v`` with a type."""
    return kitchen_dataset({"v": FieldConfig("v", **types)})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (widen(pointer="/i32"), widen(pointer="/i32", type="long")),
        (widen(pointer="/f32"), widen(pointer="/f32", type="double")),
        (widen(pointer="/floats"), widen(pointer="/floats", type="list<double>")),
        (widen(pointer="/whole"), widen(pointer="/whole", type="list<long>")),
    ],
)
def test_columns_may_be_widened_and_keep_their_ids(before, after):
    """int -> long and float -> double, in lists too."""
    assert ids(plan_of(after, lock=locked(before))) == {"v": 100}


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (widen(pointer="/i32", type="long"), widen(pointer="/i32"), "long cannot become int"),
        (widen(pointer="/i32"), widen(pointer="/i32", type="double"), "int cannot become double"),
        (widen(pointer="/f64"), widen(pointer="/text"), "double cannot become string"),
        (widen(pointer="/f64"), kitchen_dataset({"w": "/f64"}), "cannot be removed or renamed"),
        (
            widen(pointer="/f64", unit="rad"),
            widen(pointer="/f64", unit="rad", convert_to="deg"),
            "the unit cannot change from rad to deg",
        ),
        (
            widen(pointer="/f64"),
            kitchen_dataset({"v": "/f64"}, explode=ExplodeConfig("/items")),
            "explode cannot be added",
        ),
    ],
)
def test_other_changes_are_refused_with_both_schemas(before, after, sentence):
    """The refusal shows what is pinned, what was asked for, and the way out."""
    (problem,) = problems_of(after, lock=locked(before))
    assert sentence in problem.message
    assert "Pinned: 100 v" in problem.message
    assert "Now: 1" in problem.message
    assert "version" in problem.message


def test_a_changed_message_definition_is_refused():
    """The RIHS01 hash is pinned; another definition under one version is another table."""
    config = kitchen_dataset({"v": "/f64"})
    lock = locked(config)
    pinned = lock.version("table", 1)
    assert pinned.type_hash.startswith("RIHS01_")
    older = lock.with_version("table", 1, replace(pinned, type_hash="RIHS01_" + "0" * 64))
    (problem,) = problems_of(config, lock=older)
    assert "definition of test_kit/msg/Kitchen changed" in problem.message
    assert pinned.type_hash in problem.message


def test_a_new_version_starts_fresh_and_keeps_the_old_one():
    """Raising the version allows anything; the old version's promises stay in the file."""
    lock = locked(widen(pointer="/f64"))
    after = kitchen_dataset({"w": "/text"}, version=2)
    both = locked(after, lock=lock)
    assert ids(plan_of(after, lock=lock)) == {"w": 100}
    assert both.version("table", 1) == lock.version("table", 1)


def test_a_lock_reads_back_as_written():
    """Rendering and parsing are inverse, and equal locks have equal texts."""
    config = kitchen_dataset(
        {"v": FieldConfig("v", "/f64", unit="rad"), "l": "/names"}, explode=ExplodeConfig("/items")
    )
    lock = locked(config, identity={"robot": "r"})
    assert parse_lock(render_lock(lock)) == lock
    assert render_lock(parse_lock(render_lock(lock))) == render_lock(lock)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 1}',
        '{"format": 1, "datasets": {"a": {"x": {}}}}',
        '{"format": 1, "datasets": {"a": {"1": {"type": "", "type_hash": "", "exploded": false,'
        ' "next_id": 100, "columns": {"c": {"type": "decimal", "id": 100}}}}}}',
    ],
)
def test_a_text_that_is_no_lock_is_refused(text):
    """A damaged lock is never taken for an empty one."""
    with pytest.raises(FormatError):
        parse_lock(text)


def test_an_unknown_lock_format_names_both_versions():
    """A newer lock is not read with older eyes."""
    with pytest.raises(FormatError, match=r"format 9.*reads 1"):
        parse_lock('{"format": 9, "datasets": {}}')
