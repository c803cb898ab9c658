# SPDX-License-Identifier: Apache-2.0
"""Smallest sizes, from which lengths are judged before anything is allocated."""

from __future__ import annotations

import pytest

from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.limits import minimum_size, minimum_sizes

from .messages import decode_columns


@pytest.mark.parametrize(
    ("field", "size"),
    [
        ("bool", 1),
        ("float64", 8),
        ("string", 5),
        ("wstring", 4),
        ("int32[]", 4),
        ("int32[<=9]", 4),
        ("int16[5]", 10),
        ("string[3]", 15),
        ("P", 13),
        ("P[2]", 26),
        ("E", 1),
    ],
)
def test_the_smallest_size_of_a_value_leaves_out_padding(field: str, size: int) -> None:
    """What a value takes at least, wherever it stands."""
    text = f"{field} a\n===\nMSG: p/P\nint64 x\nstring y\n===\nMSG: p/E\n# no fields"
    schema = parse_definition(text, "p/msg/M")
    sizes = minimum_sizes(schema.structs, schema.type_name)
    assert minimum_size(schema.fields[0].type, sizes) == size
    assert sizes["p/msg/M"] == size


@pytest.mark.parametrize("missing", [0, 1])
def test_a_length_is_refused_as_soon_as_the_smallest_elements_cannot_fit(missing: int) -> None:
    """Two strings of 5 bytes at least: 10 bytes may hold them, 9 cannot."""
    schema = parse_definition("string[] a", "p/msg/M")
    body = b"\x02\0\0\0" + b"\x01\0\0\0\0" + b"\x07\0\0\0\0"
    got = decode_columns(schema, [b"\0\1\0\0" + body[: len(body) - missing]])
    ((code, _),) = got.errors.values()
    assert code == ("decode.length" if missing else "decode.truncated")
