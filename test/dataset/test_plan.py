# SPDX-License-Identifier: Apache-2.0
"""What planning refuses, and how it says so."""

from __future__ import annotations

import pytest

from thadam_ros.config.schema import (
    DedupConfig,
    ExplodeConfig,
    FieldConfig,
    LimitsConfig,
    TimeConfig,
    TransformConfig,
)
from thadam_ros.dataset.plan import plan_dataset
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.transforms import NOT_BUILT

from .support import CATALOG, KITCHEN, LIMITS, dataset, plan_of, problems_of

X = {"x": FieldConfig("x", "/f64")}


def kitchen_dataset(**changes):
    """A dataset with one good field and ``changes``."""
    return dataset(KITCHEN, **{"fields": X, **changes})


def field(**values):
    """A dataset whose only field has these settings."""
    return kitchen_dataset(fields={"x": FieldConfig("x", **values)})


@pytest.mark.parametrize(
    ("config", "path", "part", "suggestion"),
    [
        (dataset(None), "type", "is required", None),
        (dataset("no_such/msg/Type"), "type", "no definition", None),
        (dataset("not a type"), "type", "not a type name", None),
        (field(pointer="/f46"), "fields.x", "no such field", "/f64"),
        (field(pointer="f64"), "fields.x", "no such field", "/f64"),
        (field(pointer="/single"), "fields.x.from", "name one of its fields", None),
        (field(pointer="/items"), "fields.x.from", "use explode", None),
        (field(pointer="./name"), "fields.x", "does not explode", None),
        (field(), "fields.x", "needs `from`", None),
        (field(pointer="/f64", metric="m"), "fields.x.metric", "sparkplug_b", None),
        (field(pointer="/f64", type="flaot"), "fields.x.type", "no column type", "float"),
        (field(pointer="/f64", type="float"), "fields.x.type", "cannot hold", "double"),
        (field(pointer="/f64", type="int"), "fields.x.type", "cannot hold", "double"),
        (field(pointer="/text", type="double"), "fields.x.type", "cannot hold", "string"),
        (field(pointer="/blob", type="object_ref"), "fields.x.type", "not built yet", None),
        (field(pointer="/f64", unit="parsec/blink"), "fields.x.unit", "not a unit", None),
        (
            field(pointer="/f64", unit="m", convert_to="s"),
            "fields.x.convert_to",
            "cannot be converted",
            None,
        ),
        (field(pointer="/f64", convert_to="m"), "fields.x.convert_to", "needs `unit`", None),
        (field(pointer="/text", unit="m"), "fields.x.unit", "is for numbers", None),
        (
            field(pointer="/f64", unit="m", convert_to="mm", type="long"),
            "fields.x.type",
            "must be float or double",
            None,
        ),
        (field(pointer="/f64", type="timestamp"), "fields.x.unit", "must be one of s, ms", None),
        (
            kitchen_dataset(identity={"x": "constant"}),
            "fields.x",
            "same name as an identity level",
            None,
        ),
        (kitchen_dataset(identity={"level": "/f64"}), "identity.level", "is float64", None),
        (kitchen_dataset(identity={"level": "{topik.1}"}), "identity.level", "unknown place", None),
        (kitchen_dataset(identity={"level": "{device}"}), "identity.level", "sparkplug_b", None),
        (kitchen_dataset(identity={"robot": "b"}), "identity.robot", "repeats", None),
        (kitchen_dataset(time=TimeConfig("/f64", "utc")), "time.unit", "must be one of", None),
        (kitchen_dataset(time=TimeConfig("/text", "utc")), "time.from", "no Time", None),
        (kitchen_dataset(time=TimeConfig("/stamp", "udc")), "time.domain", "no time domain", "utc"),
        (
            kitchen_dataset(time=TimeConfig("/stamp", "utc", unit="s")),
            "time.unit",
            "is for numbers",
            None,
        ),
        (kitchen_dataset(event_id_key=("/tex",)), "event_id.key", "no such field", "/text"),
        (kitchen_dataset(event_id_key=("robt",)), "event_id.key", "no identity level", "robot"),
        (kitchen_dataset(event_id_key=("/names",)), "event_id.key", "one value", None),
        (kitchen_dataset(dedup=DedupConfig(1)), "dedup", "needs event_id.key", None),
        (kitchen_dataset(explode=ExplodeConfig("/f64")), "explode", "no array", None),
        (kitchen_dataset(explode=ExplodeConfig("/blob")), "explode", "is bytes", None),
        (kitchen_dataset(explode=ExplodeConfig("/itms")), "explode", "no such field", "/items"),
        (kitchen_dataset(gap="/text"), "gap", "no whole number", None),
        (kitchen_dataset(gap="/nothing"), "gap", "no such field", None),
        (kitchen_dataset(gap="x"), "gap", "publisher_sequence or a pointer", None),
        (kitchen_dataset(flag_unless={"INVALD": "x > 0"}), "flag_unless", "no flag", "INVALID"),
        (kitchen_dataset(flag_unless={"TIME_CORRECTED": "x > 0"}), "flag_unless", "no flag", None),
        (kitchen_dataset(flag_unless={"STALE": "y > 0"}), "flag_unless.STALE", "no column", None),
        (kitchen_dataset(reject_unless={"a": "x + 1"}), "reject_unless.a", "true or false", None),
        (
            kitchen_dataset(all_fields=True, exclude=("/sttamp",)),
            "exclude",
            "matches no field",
            "/stamp",
        ),
    ],
)
def test_a_mistake_is_named_with_its_path_and_a_way_out(config, path, part, suggestion):
    """One sentence per mistake; the nearest valid name where there is one."""
    problems = problems_of(config, identity={"robot": "r"})
    found = [p for p in problems if p.path == f"datasets.table.{path}"]
    assert found, [str(p) for p in problems]
    assert part in found[0].message
    if suggestion is not None:
        assert found[0].suggestion == suggestion


def test_all_mistakes_come_at_once():
    """A wrong type, unit and rule in one document are three problems."""
    config = kitchen_dataset(
        fields={
            "a": FieldConfig("a", "/f64", type="int"),
            "b": FieldConfig("b", "/nope"),
            "c": FieldConfig("c", "/f32", unit="nonsense"),
        },
        time=TimeConfig("/nowhere", "utc"),
    )
    assert len(problems_of(config)) == 4


def test_zipped_arrays_name_their_elements():
    """An element pointer starts with a zipped array's last segment."""
    config = kitchen_dataset(
        explode=ExplodeConfig(zip=("/names", "/whole")),
        fields={"n": FieldConfig("n", "./nams"), "m": FieldConfig("m", "./whole/x")},
    )
    first, second = problems_of(config)
    assert first.suggestion == "./names"
    assert "goes into /whole" in second.message


@pytest.mark.parametrize("kind", [*NOT_BUILT, "poze"])
def test_a_transform_that_this_version_does_not_run_is_refused(kind):
    """Reserved and later kinds are never silently skipped."""
    step = TransformConfig("later", kind, "table")
    (problem,) = problems_of(kitchen_dataset(), transforms=[step])
    assert problem.path == "transforms.later.kind"
    assert ("not built yet in this version" in problem.message) == (kind in NOT_BUILT)


def test_steps_of_other_datasets_and_sinks_are_left_out():
    """dataset: and sinks: select; without a sink all steps are planned."""
    good = {"keep": "x > 0"}
    steps = [
        TransformConfig("a", "filter", "table", options=good),
        TransformConfig("b", "filter", "other", options={"keep": "unknown > 0"}),
        TransformConfig("c", "filter", sinks=("lake",), options=good),
    ]
    config = kitchen_dataset()
    for sink, names in ((None, "ac"), ("lake", "ac"), ("warehouse", "a")):
        plan, problems = plan_dataset(config, {}, CATALOG, None, LIMITS, steps, sink=sink)
        assert problems == []
        assert [step.name for step in plan.steps] == list(names)


def test_names_of_columns_are_checked_after_expansion():
    """Equal and over-long names are refused with the pointer they come from."""
    long_name = "a" * 40
    text = f"t/Inner {long_name}\nfloat64 {long_name}_x\n" + "=" * 80
    text += f"\nMSG: t/Inner\nfloat64 x\nfloat64 {'b' * 40}\n"
    catalog = TypeCatalog(prefixes=(), definitions={"t/msg/Outer": text})
    config = dataset("t/msg/Outer", all_fields=True)
    problems = plan_dataset(config, {}, catalog, None, LIMITS)[1]
    equal, long = sorted(problems, key=lambda problem: len(problem.path))
    assert "same name as the column of" in equal.message
    assert "at most 63" in long.message


def test_an_override_replaces_the_expanded_column():
    """fields: entries win over all_fields, with or without a pointer of their own."""
    config = kitchen_dataset(
        all_fields=True,
        exclude=("/single", "/stamp"),
        fields={
            "f32": FieldConfig("f32", type="double"),
            "f64": FieldConfig("f64", "/f32", unit="rad", convert_to="deg"),
        },
    )
    plan = plan_of(config)
    fields = {f.name: f for f in plan.fields}
    assert str(fields["f32"].type) == "double"
    assert fields["f64"].source.pointer == "/f32"
    assert "single_name" not in fields
    assert any("/items" in note and "explode" in note for note in plan.notes)


def test_an_untyped_dataset_is_planned_from_its_declaration():
    """JSON needs types; with them it has a schema and a reason why it does not run yet."""
    fields = {"t": FieldConfig("t", "/t", type="double", unit="degF", convert_to="degC")}
    plan = plan_of(dataset(None, decode="json", fields=fields))
    assert not plan.supported
    assert "json" in plan.reason
    assert plan.arrow_schema("us").field("t").metadata[b"unit"] == b"degC"
    (problem,) = problems_of(dataset(None, decode="json", fields={"t": FieldConfig("t", "/t")}))
    assert problem.path == "datasets.table.fields.t.type"


def test_the_cost_of_a_rule_is_limited():
    """limits.predicate_cost refuses an expression before any row is seen."""
    rule = {"INVALID": " and ".join(["x > 0"] * 20)}
    (problem,) = problems_of(
        kitchen_dataset(flag_unless=rule), limits=LimitsConfig(predicate_cost=20)
    )
    assert "predicate_cost allows 20" in problem.message


def test_an_override_that_names_nothing_is_a_problem():
    """Settings for a column that exclude took away would change nothing."""
    excluded = kitchen_dataset(
        all_fields=True, exclude=("/f32",), fields={"f32": FieldConfig("f32", type="double")}
    )
    (problem,) = problems_of(excluded)
    assert problem.path == "datasets.table.fields.f32"
    wrong = kitchen_dataset(all_fields=True, fields={"f64": FieldConfig("f64", type="int")})
    (problem,) = problems_of(wrong)
    assert problem.path == "datasets.table.fields.f64.type"
