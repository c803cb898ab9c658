# SPDX-License-Identifier: Apache-2.0
"""Every line of the tables in docs/decoding.md, shown on bytes (spec 3.4)."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from thadam_ros.decode.cdr_reference import decode_message
from thadam_ros.decode.definition import parse_definition
from thadam_ros.errors import RecordError
from thadam_ros.model.codes import REJECT_CODES

from .messages import assert_same_as_reference, decode_columns

LE, BE = b"\x00\x01\x00\x00", b"\x00\x00\x00\x00"


@dataclass(frozen=True)
class Case:
    """A line of a table: what arrives, and what becomes of it.

    Attributes:
        outcome: A reject code, ``value`` or ``value, surplus``.
        value: The whole message, for values.
        pointers: Wanted fields when it is not the whole message.
    """

    name: str
    text: str
    payload: bytes
    outcome: str
    value: object = None
    pointers: tuple[str, ...] = ("",)


def u32(*numbers: int) -> bytes:
    """Little-endian uint32."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


HI = u32(3) + b"hi\0"

HEADERS = (
    Case("payload-empty", "int32 a", b"", "decode.truncated"),
    Case("payload-below-header", "int32 a", b"\x00\x01\x00", "decode.truncated"),
    Case("payload-header-only", "int32 a", LE, "decode.truncated"),
    Case("header-xcdr2", "int32 a", b"\x00\x07\x00\x00" + u32(1), "decode.encapsulation"),
    Case("header-parameter-list", "int32 a", b"\x00\x03\0\0" + u32(1), "decode.encapsulation"),
    Case("header-zstd-frame", "int32 a", b"\x28\xb5\x2f\xfd" + u32(1), "decode.encapsulation"),
    Case("header-options", "int32 a", b"\x00\x01\xab\xcd" + u32(7), "value", {"a": 7}),
    Case("header-big-endian", "int32 a", BE + b"\0\0\0\x07", "value", {"a": 7}),
    Case("endianness-contradiction", "string a\nint32[] b",
         LE + struct.pack(">I", 3) + b"hi\0\0" + struct.pack(">Ii", 1, 9), "decode.endianness"),
    Case("endianness-undetectable", "int32 a", LE + b"\0\0\0\x07", "value", {"a": 7 << 24}),
)  # fmt: skip

STRUCTURE = (
    Case("number-cut-off", "int8 a\nint64 b", LE + bytes(12), "decode.truncated"),
    Case("array-cut-off", "int32[4] a", LE + u32(1, 2, 3), "decode.truncated"),
    Case("string-cut-off", "string a", LE + u32(9) + b"hi\0", "decode.truncated"),
    Case("string-length-zero", "string a", LE + u32(0), "decode.string"),
    Case("string-without-terminator", "string a", LE + u32(2) + b"hi", "decode.string"),
    Case("string-over-bound", "string<=1 a", LE + HI, "decode.length"),
    Case("wstring-cut-off", "wstring a", LE + u32(3, 65, 66), "decode.truncated"),
    Case("wstring-over-bound", "wstring<=1 a", LE + u32(2, 65, 66), "decode.length"),
    Case("sequence-over-payload", "int32[] a", LE + u32(3, 1, 2), "decode.length"),
    Case("sequence-huge", "string[] a", LE + u32(0xFFFFFFFF) + HI, "decode.length"),
    Case("sequence-over-bound", "int32[<=1] a", LE + u32(2, 1, 2), "decode.length"),
    Case("sequence-padding-cut-off", "int64[] a", LE + u32(1) + bytes(8), "decode.truncated"),
    Case("sequence-element-cut-off", "string[] a",
         LE + u32(2) + HI + b"\0\0\0", "decode.truncated"),
    Case("sequence-empty", "int64[] a\nint32 b", LE + u32(0, 7), "value", {"a": [], "b": 7}),
    Case("two-errors", "string a\nint32[] b", LE + u32(2) + b"hi\0\0" + u32(99), "decode.string"),
)  # fmt: skip

CONTENT = (
    Case("string-not-utf8", "string a", LE + u32(3) + b"\xc3\x28\0", "decode.string"),
    Case("string-not-utf8-unwanted", "string a\nint32 b",
         LE + u32(4) + b"\xc3\x28\x28\0" + u32(5), "value", 5, ("/b",)),
    Case("string-with-nul", "string a", LE + u32(4) + b"a\0b\0", "value", {"a": "a\0b"}),
    Case("wstring-lone-surrogate", "wstring a", LE + u32(1, 0xD800), "decode.string"),
    Case("wstring-beyond-unicode", "wstring a", LE + u32(1, 0x110000), "decode.string"),
    Case("wstring-surrogate-pair", "wstring a",
         LE + u32(2, 0xD83D, 0xDE00), "value", {"a": "\U0001f600"}),
    Case("wstring-code-point", "wstring a", LE + u32(1, 0x1F600), "value", {"a": "\U0001f600"}),
    Case("boolean-not-0-or-1", "bool a", LE + b"\x02", "decode.boolean"),
    Case("boolean-in-list", "bool[] a", LE + u32(2) + b"\x01\xff", "decode.boolean"),
    Case("boolean-unwanted", "bool a\nint8 b", LE + b"\x02\x07", "value", 7, ("/b",)),
    Case("text-before-booleans", "bool a\nstring b",
         LE + b"\x02\0\0\0" + u32(2) + b"\xff\0", "decode.string"),
    Case("nanosec-too-large", "time t",
         LE + u32(5, 2_000_000_000), "value", {"t": {"sec": 5, "nanosec": 2_000_000_000}}),
    Case("stamp-zero", "time t", LE + u32(0, 0), "value", {"t": {"sec": 0, "nanosec": 0}}),
    Case("stamp-negative", "time t",
         LE + struct.pack("<iI", -1, 0), "value", {"t": {"sec": -1, "nanosec": 0}}),
    Case("float-infinite", "float32 a", LE + struct.pack("<f", math.inf), "value", {"a": math.inf}),
    Case("uint64-above-int64", "uint64 a", LE + b"\xff" * 8, "value", {"a": 2**64 - 1}),
)  # fmt: skip

TRAILING = (
    Case("padding-to-4", "int8 a", LE + b"\x07\xee\xee\xee", "value", {"a": 7}),
    Case("padding-not-to-4", "int8 a", LE + b"\x07\xee\xee", "value, surplus", {"a": 7}),
    Case("surplus", "int32 a", LE + u32(7) + bytes(4), "value, surplus", {"a": 7}),
    Case("surplus-second-message", "int32 a", LE + u32(1) + LE + u32(2),
         "value, surplus", {"a": 1}),
    Case("estimated-size", "float64[] a", LE + u32(0) + b"\xee" * 4, "value", {"a": []}),
    Case("empty-message", "# no fields", LE + b"\x55", "value", {}),
    Case("empty-message-cut-off", "# no fields", LE, "decode.truncated"),
)  # fmt: skip

DEFINITIONS = (
    ("definition-empty", ""),
    ("definition-unparseable", "int32"),
    ("definition-dependency-missing", "Gone gone"),
    ("definition-recursive", "M again"),
    ("definition-too-long", "int8 a\n" * 200_000),
    ("definition-too-many-members", "\n".join(f"int8 a{i}" for i in range(17_000))),
    ("definition-message-too-large", "float64[4000000000] a"),
    ("definition-optional-member", "@optional int32 a"),
)

CASES = (*HEADERS, *STRUCTURE, *CONTENT, *TRAILING)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_malformed_payload_has_its_defined_outcome(case: Case) -> None:
    """Both decoders, alone and beside a copy of itself."""
    schema = parse_definition(case.text, "p/msg/M")
    got = decode_columns(schema, [case.payload, case.payload], case.pointers)
    assert_same_as_reference(schema, [case.payload] * 2, case.pointers)
    if not case.outcome.startswith("value"):
        assert [code for code, _ in got.errors.values()] == [case.outcome] * 2
        assert case.outcome in REJECT_CODES
        with pytest.raises(RecordError) as caught:
            decode_message(schema, case.payload, case.pointers)
        assert caught.value.code == case.outcome
        return
    assert got.ok.all(), got.errors
    assert got.surplus.all() == case.outcome.endswith("surplus")
    assert got.columns[case.pointers[0]].to_pylist() == [case.value] * 2


@pytest.mark.parametrize(("name", "text"), DEFINITIONS, ids=[name for name, _ in DEFINITIONS])
def test_a_bad_definition_is_a_reject(name: str, text: str) -> None:
    """Before any message is looked at."""
    with pytest.raises(RecordError) as caught:
        parse_definition(text, "p/msg/M")
    assert caught.value.code == "decode.definition_invalid", name


def test_reasons_never_carry_payload_bytes() -> None:
    """A reason is stored and shown; what it is about may be confidential."""
    schema = parse_definition("string a\nstring b", "p/msg/M")
    secret = b"hunter2"
    for tail in (u32(8) + secret + b"x", u32(9) + secret + b"\xff\0", u32(99) + secret):
        payload = LE + u32(8) + secret + b"\0" + tail
        got = decode_columns(schema, [payload])
        ((_, reason),) = got.errors.values()
        assert "hunter2" not in reason


def test_the_document_and_these_cases_are_the_same_list(checkout: Path) -> None:
    """docs/decoding.md has one line per case, with the same outcome, and nothing else."""
    text = (checkout / "docs" / "decoding.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ([^|]+) \|$", text, re.MULTILINE)
    documented = {name: outcome.replace("`", "").strip() for name, outcome in lines}
    assert len(documented) == len(lines)
    expected = {case.name: case.outcome for case in CASES}
    expected.update({name: "decode.definition_invalid" for name, _ in DEFINITIONS})
    assert documented == expected
