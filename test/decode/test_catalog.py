# SPDX-License-Identifier: Apache-2.0
"""Definitions are found on this machine in a fixed order, without ROS (spec 1.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from thadam_ros.decode.catalog import TypeCatalog, ament_prefixes
from thadam_ros.decode.definition import parse_definition


def install(prefix: Path, name: str, text: str, suffix: str = "msg") -> None:
    """Write an interface file where a ROS package installs it."""
    package, kind, short = name.split("/")
    path = prefix / "share" / package / kind / f"{short}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_installed_files_are_joined_with_their_dependencies(tmp_path: Path) -> None:
    """Each dependency once, its own dependencies too."""
    install(tmp_path, "a/msg/Top", "b/Mid first\nLow second\nb/Mid[] again\n")
    install(tmp_path, "a/msg/Low", "int8 x\n")
    install(tmp_path, "b/msg/Mid", "Low low\n")
    install(tmp_path, "b/msg/Low", "int16 y\n")
    text = TypeCatalog([str(tmp_path)]).definition("a/Top")
    assert text is not None
    assert text.count("MSG: b/Mid") == 1
    schema = parse_definition(text, "a/msg/Top")
    assert set(schema.structs) == {"a/msg/Top", "a/msg/Low", "b/msg/Mid", "b/msg/Low"}


def test_earlier_prefixes_win_as_in_an_overlay(tmp_path: Path) -> None:
    """The first prefix of AMENT_PREFIX_PATH is the overlay."""
    install(tmp_path / "over", "a/msg/T", "int8 overlay\n")
    install(tmp_path / "under", "a/msg/T", "int8 underlay\n")
    prefixes = ament_prefixes({"AMENT_PREFIX_PATH": f"{tmp_path}/over:{tmp_path}/under"})
    assert "overlay" in str(TypeCatalog(prefixes).definition("a/msg/T"))
    assert ament_prefixes({}) == ()


def test_a_package_with_idl_files_only_is_found(tmp_path: Path) -> None:
    """An .idl file that refers to a .msg file gives the mixed form."""
    idl = "module a { module msg { struct T { b::msg::Part part; }; }; };"
    install(tmp_path, "a/msg/T", idl, "idl")
    install(tmp_path, "b/msg/Part", "int8 x\n")
    text = TypeCatalog([str(tmp_path)]).definition("a/msg/T")
    assert text is not None
    assert parse_definition(text, "a/msg/T").arrow_type("/part/x") is not None


def test_well_known_types_need_no_installation() -> None:
    """A laptop without ROS knows the common interfaces."""
    catalog = TypeCatalog(prefixes=())
    text = catalog.definition("sensor_msgs/msg/Imu")
    assert text is not None
    assert len(parse_definition(text, "sensor_msgs/msg/Imu").fields) == 7
    bare = TypeCatalog(prefixes=(), well_known=False)
    assert bare.definition("sensor_msgs/msg/Imu") is None


def test_given_definitions_win_over_everything(tmp_path: Path) -> None:
    """A bag's own definition is better than what happens to be installed."""
    install(tmp_path, "std_msgs/msg/String", "int8 installed\n")
    given = {"std_msgs/String": "int8 given\n", "q/msg/Nothing": ""}
    catalog = TypeCatalog([str(tmp_path)], given)
    assert catalog.definition("std_msgs/msg/String") == "int8 given\n"
    nothing = catalog.definition("q/msg/Nothing")
    assert nothing is not None
    assert parse_definition(nothing, "q/msg/Nothing").fields == ()


def test_an_empty_message_has_a_text() -> None:
    """std_msgs/Empty must not look like an unknown type."""
    text = TypeCatalog(prefixes=()).definition("std_msgs/msg/Empty")
    assert text is not None
    assert text.strip()
    assert parse_definition(text, "std_msgs/msg/Empty").fields == ()


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", "a/../T", "a/msg/../../T", "a/msg/T/x/y", "a/msg/T\0"]
)
def test_a_name_that_is_no_type_name_is_unknown(tmp_path: Path, name: str) -> None:
    """No path outside the prefix is ever opened."""
    (tmp_path / "T.msg").write_text("int8 x\n", encoding="utf-8")
    assert TypeCatalog([str(tmp_path / "p")]).definition(name) is None


def test_an_incomplete_or_broken_installation_falls_back_to_the_store(tmp_path: Path) -> None:
    """A missing dependency or an unparseable file is as good as no file."""
    install(tmp_path, "std_msgs/msg/Bool", "this is no definition\n")
    install(tmp_path, "geometry_msgs/msg/Pose", "Gone gone\n")
    install(tmp_path, "q/msg/T", "Gone gone\n")
    catalog = TypeCatalog([str(tmp_path)])
    assert "bool data" in str(catalog.definition("std_msgs/msg/Bool"))
    assert "Quaternion" in str(catalog.definition("geometry_msgs/msg/Pose"))
    assert catalog.definition("q/msg/T") is None
