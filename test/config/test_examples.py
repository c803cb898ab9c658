# SPDX-License-Identifier: Apache-2.0
"""Promises of the shipped configurations and of both spellings (spec 3.7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from thadam_ros.config.document import render_yaml
from thadam_ros.config.json_schema import json_schema
from thadam_ros.config.loader import load_document, load_parameters
from thadam_ros.config.parameter_files import parse_parameter_file
from thadam_ros.config.reference import replace_generated, schema_text
from thadam_ros.config.schema import Config

from .documents import CHECKOUT, ENV, specification_examples

SHIPPED = CHECKOUT / "config"
#: The two variables an unset machine still has to name.
DEMO_ENV = {**ENV, "THADAM_DEMO_DIR": "/tmp/demo"}


def _parameters(path: Path) -> Config:
    file = parse_parameter_file(path.read_text())
    assert not file.problems
    return load_parameters(file.flat, ENV)


def test_both_shipped_spellings_are_one_configuration() -> None:
    """thadam.yaml and thadam_params.yaml load to equal records and equal hashes."""
    document = load_document(SHIPPED / "thadam.yaml", ENV)
    assert _parameters(SHIPPED / "thadam_params.yaml") == document


def test_the_specification_examples_have_the_hash_of_the_shipped_ones() -> None:
    """Both spellings of the specification's example, read in place, are this configuration."""
    folder = specification_examples()
    shipped = load_document(SHIPPED / "thadam.yaml", ENV).config_hash
    assert load_document(folder / "thadam.yaml", ENV).config_hash == shipped
    assert _parameters(folder / "thadam_params.yaml").config_hash == shipped


def test_nav2_parameters_hand_the_lifecycle_to_the_manager() -> None:
    """The manager holds only thadam, and thadam does not start itself."""
    text = (SHIPPED / "nav2.yaml").read_text()
    assert parse_parameter_file(text, "thadam", "/r1").flat == {"autostart": False}
    manager = parse_parameter_file(text, "lifecycle_manager_data").flat
    assert manager["node_names"] == ["thadam"]


@pytest.mark.parametrize("name", ["thadam.yaml", "demo.yaml"])
def test_the_json_schema_accepts_what_is_shipped(name: str) -> None:
    """Also in the complete form that is written to config/<hash>.yaml."""
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema in this environment")
    validator = jsonschema.Draft202012Validator(json_schema())
    text = (SHIPPED / name).read_text()
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    complete = render_yaml(load_document(SHIPPED / name, DEMO_ENV))
    assert list(validator.iter_errors(yaml.safe_load(complete))) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("budget: 20GiB", "budget: 20"),
        ("commit_interval: 200ms", "commit_intervall: 200ms"),
        ("type: ros2", "type: ros3"),
        ("from: /temp_f", "from: temp_f"),
        ("qos: 1", "qos: 7"),
        ("kind: order", "kind: window"),
        ("database: fleet", "rotation: {max_rows: 1}"),
        ("schema: 1", "schema: 2"),
    ],
)
def test_the_json_schema_refuses_mistakes(old: str, new: str) -> None:
    """Units, unknown keys, types, ranges: what an editor can underline."""
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema in this environment")
    text = (SHIPPED / "thadam.yaml").read_text()
    # The first match may stand in the head comment about the schema file.
    body = text.split("# thadam_params.yaml", 1)[1]
    assert old in body
    wrong = yaml.safe_load(body.split("\n", 1)[1].replace(old, new, 1))
    assert list(jsonschema.Draft202012Validator(json_schema()).iter_errors(wrong))


def test_the_json_schema_is_one() -> None:
    """It follows its own meta-schema."""
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema in this environment")
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_generated_files_are_up_to_date() -> None:
    """Schema and page say what the settings say; thadam_ros.config.reference rewrites them."""
    assert (SHIPPED / "thadam.schema.json").read_text() == schema_text()
    json.loads(schema_text())
    page = (CHECKOUT / "docs" / "configuration.md").read_text()
    assert page == replace_generated(page)
