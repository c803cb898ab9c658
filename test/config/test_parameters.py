# SPDX-License-Identifier: Apache-2.0
"""Promises of the parameter spelling (spec 3.7, 7.3)."""

from __future__ import annotations

import array

import pytest
import yaml

from thadam_ros.config.canonical import document_tree
from thadam_ros.config.loader import load_document, load_parameters, merged_document, read_document
from thadam_ros.config.parameters import (
    PROCESS_PARAMETERS,
    ParameterSpec,
    parameter_specs,
    parameters_from_tree,
    tree_from_parameters,
)

from .documents import CHECKOUT, ENV, SMALL, load_small, parameter_problems, problems_of, small

EXAMPLE = CHECKOUT / "config" / "thadam.yaml"


def _specs() -> dict[str, ParameterSpec]:
    return {spec.name: spec for spec in parameter_specs(read_document(EXAMPLE).tree)}


def test_a_document_survives_the_way_through_parameters() -> None:
    """Document to parameters to configuration keeps the hash, unexpanded and complete alike."""
    config = load_document(EXAMPLE, ENV)
    written = parameters_from_tree(read_document(EXAMPLE).tree)
    assert load_parameters(written, ENV).config_hash == config.config_hash
    complete = parameters_from_tree(document_tree(config))
    assert load_parameters(complete, {}).config_hash == config.config_hash


def test_what_a_node_declares_loads_to_the_same_hash() -> None:
    """The values of all descriptors, as ``ros2 param dump`` writes them, are the configuration."""
    config = load_document(EXAMPLE, ENV)
    dumped = {spec.name: spec.default for spec in _specs().values()}
    dumped.update({name: spec.default for name, spec in PROCESS_PARAMETERS.items()})
    again = yaml.safe_load(yaml.safe_dump(dumped))
    assert load_parameters(again, ENV).config_hash == config.config_hash
    # A second dump, of what was declared from the first, changes nothing either.
    tree = tree_from_parameters(again)
    second = {spec.name: spec.default for spec in parameter_specs(tree)}
    assert load_parameters(second, ENV).config_hash == config.config_hash


def test_every_descriptor_has_a_type_that_fits_its_value() -> None:
    """rclpy refuses a declared type that differs from the value's."""
    python = {"bool": bool, "integer": int, "double": float, "string": str}
    for spec in _specs().values():
        scalar = spec.type.removesuffix("_array")
        values = spec.default if spec.type.endswith("_array") else [spec.default]
        assert isinstance(values, list)
        assert all(type(value) is python[scalar] for value in values), spec
        assert spec.description
    assert _specs()["sources.cell.qos"].range == (0, 2)
    assert _specs()["sinks.lake.rotation.max_rows"].default == 1_000_000


def test_names_stay_dotted_where_keys_hold_slashes() -> None:
    """A topic is a key of the tree: only dots separate."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    flat["sources.robot.topics./odom.depth"] = 50
    ros2 = load_parameters(flat, ENV).sources["robot"].ros2
    assert ros2 is not None
    assert ros2.topics["/odom"].depth == 50


def test_leaves_override_the_document_below() -> None:
    """One leaf changes, the rest is the document's; a short form counts as its ``from``."""
    base = small(("all_fields: true", "fields: {x: /linear_acceleration/x}"))
    config = load_parameters(
        {
            "wal.compression": "zstd",
            "datasets.imu.fields.x.unit": "m/s**2",
            "edge.data_dir": "/elsewhere",
        },
        ENV,
        base,
    )
    assert config.wal.compression == "zstd"
    assert config.edge.data_dir == "/elsewhere"
    assert config.datasets["imu"].fields["x"].pointer == "/linear_acceleration/x"
    assert config.datasets["imu"].fields["x"].unit == "m/s**2"
    assert config.datasets["temperature"] == load_small().datasets["temperature"]


def test_config_file_names_the_document(tmp_path: object) -> None:
    """The parameter is enough, environment included; a missing file is one clear problem."""
    path = CHECKOUT / "config" / "thadam.yaml"
    env = {**ENV, "PLACE": str(path)}
    config = load_parameters({"config_file": "$(env PLACE)"}, env)
    assert config.config_hash == load_document(path, ENV).config_hash
    (problem,) = parameter_problems({"config_file": "/does/not/exist.yaml"})
    assert "cannot be read" in problem.message


def test_an_entry_over_a_document_must_be_listed() -> None:
    """A mistyped dataset name in an override cannot make a new dataset."""
    found = parameter_problems({"datasets.imuu.version": 2}, SMALL)
    assert "datasets.imuu" in [p.path for p in found]
    found = parameter_problems({"dataset_names": ["imu"]}, SMALL)
    assert [p.path for p in found] == ["datasets.temperature"]


def test_empty_values_mean_not_given() -> None:
    """Declared but unset parameters change nothing, whatever array type an empty list has."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    expected = load_parameters(flat, ENV).config_hash
    empty: dict[str, object] = {
        "edge.lock_file": "",
        "sources.robot.exclude": [],
        "sources.robot.also": array.array("q"),
        "datasets.imu.exclude": b"",
        "wal.budget": None,
        "transform_names": [],
    }
    assert load_parameters({**flat, **empty}, ENV).config_hash == expected


@pytest.mark.parametrize(
    "name",
    [
        "use_sim_time",
        "qos_overrides./odom.subscription.depth",
        "autostart",
        "isolate_chains",
        "log_level",
        "metrics_port",
        "config_file",
    ],
)
def test_parameters_of_the_process_are_no_part_of_the_configuration(name: str) -> None:
    """They change no hash."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    value: object = "" if name == "config_file" else 0
    assert (
        load_parameters({**flat, name: value}, ENV).config_hash
        == load_parameters(flat, ENV).config_hash
    )


def test_transforms_run_in_the_order_of_their_list() -> None:
    """A map has no order; transform_names has."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    for name in ("a", "b", "c"):
        flat[f"transforms.{name}.kind"] = "order"
    flat["transform_names"] = ["c", "a", "b"]
    assert [t.name for t in load_parameters(flat, ENV).transforms] == ["c", "a", "b"]
    base = small(("sinks:", "transforms: [{name: b, kind: order}, {name: a, kind: order}]\nsinks:"))
    assert [t.name for t in load_document(base, ENV).transforms] == ["b", "a"]
    assert [t.name for t in load_parameters({}, ENV, base).transforms] == ["b", "a"]


def test_numbers_take_the_declared_type() -> None:
    """rcl makes 1 an integer and 1.0 a double, whatever the setting wants."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    text = small(
        ("sinks:", "files: {f: {watch: /w, source: robot, sink: lake, datasets: [imu], "
         "dead_letter: {dir: /d, max_invalid_fraction: 1}}}\nsinks:")
    )  # fmt: skip
    assert not problems_of(text)
    as_float = {**flat, "limits.json_depth": 10.0}
    as_int = {**flat, "limits.json_depth": 10}
    assert load_parameters(as_float, ENV).config_hash == load_parameters(as_int, ENV).config_hash
    (problem,) = parameter_problems({**flat, "limits.json_depth": 10.5})
    assert problem.path == "limits.json_depth"


def test_simulated_time_gives_ros_stamps_the_domain_sim() -> None:
    """It is part of the hash and of the merged document, and leaves other sources alone."""
    flat = parameters_from_tree(read_document(SMALL).tree)
    real = load_parameters(flat, ENV)
    simulated = load_parameters({**flat, "use_sim_time": True}, ENV)
    time = simulated.datasets["imu"].time
    assert time is not None
    assert time.domain == "sim"
    assert simulated.row_hashes["imu"] != real.row_hashes["imu"]
    assert simulated.row_hashes["temperature"] == real.row_hashes["temperature"]


def test_merging_leaves_its_inputs_alone() -> None:
    """A node may merge again after a parameter changed."""
    base = read_document(SMALL).tree
    before = yaml.safe_dump(base)
    tree_from_parameters({"wal.compression": "zstd", "edge.identity.site": "x"}, base)
    assert yaml.safe_dump(base) == before
    document = merged_document({"wal.compression": "zstd"}, ENV, SMALL)
    assert document.tree["wal"] == {"compression": "zstd"}


def test_endlessly_nested_names_are_a_problem() -> None:
    """A name with a thousand dots is refused like a document that deep."""
    found = parameter_problems({"wal." + "x." * 2000 + "y": 1})
    assert any("nests deeper" in p.message for p in found)
    assert all(len(str(p)) < 1000 for p in found)
