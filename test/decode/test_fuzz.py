# SPDX-License-Identifier: Apache-2.0
"""Mutated real payloads and definitions, seeded; the long form runs 20 s each (spec 8.1)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from thadam_ros.decode.definition import parse_definition, type_hash
from thadam_ros.errors import RecordError

from .make_golden import GOLDEN
from .messages import assert_same_as_reference

STORED = json.loads(GOLDEN.read_text(encoding="utf-8"))
LONG_S = 20.0

IDL = """\
#include "p/msg/N.idl"
module p { module msg { module M_Constants { const string S = "x"; const double D = -1.5e-3; };
  typedef double double__9[9];
  @verbatim (language="comment", text="a" "b")
  struct M { @key int32 a; sequence<string<4>, 3> b; double__9 c; wstring d; /* e */ octet f; };
}; };
"""
TOKENS = (
    *("(", ")", "[", "]", "<", ">", "<=", "{", "}", ";", "=", "#", "//", "/*", "*/", '"', "'"),
    *("int32 ", "string", "Header h", "@a(", "@optional ", "sequence<", "typedef ", "const "),
    *("\n", "\t", " ", "\x00", "é", "1", "99999999999", "-", "*", "::", "MSG: p/P\n", "=" * 80),
)


def rounds(request: pytest.FixtureRequest, least: int) -> Iterator[random.Random]:
    """Generators of a fixed seed each: ``least``, or with --long as many as fit into 20 s."""
    deadline = time.monotonic() + LONG_S
    long = request.config.getoption("--long")
    number = 0
    while number < least or (long and time.monotonic() < deadline):
        yield random.Random(number)
        number += 1


def mutate_bytes(raw: bytes, rng: random.Random) -> bytes:
    """A few random edits, of lengths most of all."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at : at + 4] = rng.choice([0, 1, 2, 255, 2**16, 2**31, 2**32 - 1]).to_bytes(
                4, rng.choice(["little", "big"])
            )
        elif kind == 1:
            del data[at : at + rng.randint(1, 12)]
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 12)))
        elif data and kind == 3:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        else:
            data = data[:at]
    return bytes(data)


def mutate_text(text: str, rng: random.Random) -> str:
    """A few random edits with tokens of both grammars."""
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        until = at + rng.choice([0, 0, 1, 8])
        token = rng.choice(TOKENS) * rng.choice([1, 1, 1, 40])
        if rng.random() < 0.2:
            start = rng.randrange(len(text) + 1)
            token = text[start : start + rng.randint(1, 300)]
        text = text[:at] + token + text[until:]
    return text


def test_mutated_payloads_are_judged_alike_by_both_decoders(
    request: pytest.FixtureRequest,
) -> None:
    """Whatever happens to real payloads: no other exception, the same values and codes."""
    schemas = [parse_definition(case["definition"], case["type"]) for case in STORED]
    for rng in rounds(request, 60):
        index = rng.randrange(len(STORED))
        payloads = [bytes.fromhex(payload) for payload in STORED[index]["payloads"]]
        batch = [mutate_bytes(rng.choice(payloads), rng) for _ in range(8)] + payloads
        rng.shuffle(batch)
        rows_max = rng.choice([1, 4, 1_000])
        assert_same_as_reference(schemas[index], batch, scan_rows_max=(rows_max,))


def test_mutated_definitions_give_a_schema_or_a_reject(request: pytest.FixtureRequest) -> None:
    """Both grammars; a schema that comes out can be hashed and used."""
    found = {"usable": 0, "decode.definition_invalid": 0}
    for rng in rounds(request, 500):
        case: dict[str, Any] = rng.choice(STORED)
        text, name = case["definition"], case["type"]
        if rng.random() < 0.3:
            text, name = f"{'=' * 80}\nIDL: p/msg/M\n{IDL}", "p/msg/M"
        found[outcome(mutate_text(text, rng), name)] += 1
    assert min(found.values()) > 20, found


def outcome(text: str, name: str) -> str:
    """``usable`` when a message can be decoded with the definition, else the reject code."""
    try:
        schema = parse_definition(text, name)
    except RecordError as error:
        return error.code
    assert type_hash(schema)
    assert_same_as_reference(schema, [b"\0\1\0\0" + bytes(64), b"\0\1\0\0\xff"], scan_rows_max=(1,))
    return "usable"
