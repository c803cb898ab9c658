# SPDX-License-Identifier: Apache-2.0
"""Payloads made by rclpy (rmw_fastrtps) decode to the values they were made from (spec 8.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thadam_ros.decode.cdr_reference import decode_message
from thadam_ros.decode.definition import parse_definition, type_hash

from .make_golden import GOLDEN, TYPES, cases
from .messages import decode_columns

STORED = json.loads(GOLDEN.read_text(encoding="utf-8"))


def plain(value: object) -> object:
    """Decoded values with bytes as lists of numbers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | bytes):
        return [plain(item) for item in value]
    return value


def check(case: dict[str, Any]) -> None:
    """Both decoders give the values of a case, and its definition has the hash ROS gave it."""
    schema = parse_definition(case["definition"], case["type"])
    assert type_hash(schema) == case["type_hash"]
    payloads = [bytes.fromhex(payload) for payload in case["payloads"]]
    got = decode_columns(schema, payloads)
    assert got.ok.all(), got.errors
    assert [plain(value) for value in got.columns[""].to_pylist()] == case["values"]
    reference = [decode_message(schema, payload) for payload in payloads]
    assert [plain(message.value) for message in reference] == case["values"]
    assert not got.surplus.any()
    assert not any(message.surplus for message in reference)


@pytest.mark.parametrize("case", STORED, ids=lambda case: case["type"])
def test_stored_golden_bytes_decode(case: dict[str, Any]) -> None:
    """Bytes that rclpy of Kilted wrote once."""
    check(case)


def test_bytes_behind_the_estimated_size_are_surplus() -> None:
    """rclpy overestimates these; what follows the estimate is flagged, what it covers is not."""
    overlong = 0
    for case in STORED:
        schema = parse_definition(case["definition"], case["type"])
        for payload in map(bytes.fromhex, case["payloads"]):
            extended = payload + bytes(8)
            assert decode_message(schema, extended).surplus, case["type"]
            assert decode_columns(schema, [extended]).surplus.all()
            shortened = payload[:-4]
            overlong += int(decode_columns(schema, [shortened]).ok.all())
    assert overlong > 5


def test_golden_bytes_cover_every_type_that_was_chosen() -> None:
    """The file is up to date with its maker."""
    assert [case["type"] for case in STORED] == list(TYPES)


@pytest.mark.ros
def test_bytes_that_rclpy_writes_now_decode() -> None:
    """The same with the ROS that is installed here."""
    pytest.importorskip("rclpy")
    pytest.importorskip("test_msgs")
    for case in cases(11):
        check(case)
