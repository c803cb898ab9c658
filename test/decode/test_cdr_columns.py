# SPDX-License-Identifier: Apache-2.0
"""The column decoder is the reference decoder, only faster (spec 3.4, 8.1)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thadam_ros.decode.cdr_columns import CdrColumnDecoder
from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.schema import MessageSchema, StructRef
from thadam_ros.errors import RecordError

from .messages import (
    assert_same_as_reference,
    decode_columns,
    encode,
    pack,
    random_value,
    schemas,
)

SLOW = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


def random_messages(schema: MessageSchema, rng: random.Random, count: int) -> list[bytes]:
    """Valid payloads of both endiannesses; half of the time all of one layout."""
    root = StructRef(schema.type_name)
    alike = random_value(schema, root, rng) if rng.random() < 0.5 else None
    return [
        encode(schema, alike or random_value(schema, root, rng), rng.random() < 0.8)
        for _ in range(count)
    ]


def damage(message: bytes, rng: random.Random) -> bytes:
    """Damage that a wire, a disk or a wrong definition may do to a payload."""
    kind = rng.randrange(8)
    raw = bytearray(message)
    if kind == 0 or len(raw) < 2:
        return message[: rng.randint(0, len(message))]
    if kind == 1:
        return message + bytes(rng.randint(1, 9))
    if kind == 2:
        raw[1] ^= 1
    elif kind == 3 and len(raw) > 8:
        at = rng.randrange(4, len(raw) - 3) & -4
        raw[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", bytes(4), b"\x02\0\0\0", b"\0\0\0\x01"])
    elif kind == 4:
        raw[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 0x80, 0xC3, 0xFF])
    elif kind == 5:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == 6:
        return bytes(rng.randrange(256) for _ in range(rng.randint(0, 40)))
    return bytes(raw)


@SLOW
@given(schemas(), st.integers(0, 2**32), st.integers(1, 9))
def test_columns_equal_the_reference_on_valid_messages(
    schema: MessageSchema, seed: int, count: int
) -> None:
    """Random definitions, values and endianness: the whole message comes out the same."""
    assert_same_as_reference(schema, random_messages(schema, random.Random(seed), count))


@SLOW
@given(schemas(), st.integers(0, 2**32), st.integers(1, 9))
def test_columns_equal_the_reference_on_damaged_messages(
    schema: MessageSchema, seed: int, count: int
) -> None:
    """Any damage costs only the damaged message, with the same code and reason."""
    rng = random.Random(seed)
    messages = random_messages(schema, rng, count)
    for index in range(count):
        for _ in range(rng.choice([0, 1, 1, 3])):
            messages[index] = damage(messages[index], rng)
    assert_same_as_reference(schema, messages)


@SLOW
@given(schemas(), st.integers(0, 2**32), st.integers(1, 6))
def test_columns_equal_the_reference_for_wanted_fields(
    schema: MessageSchema, seed: int, count: int
) -> None:
    """A random choice of pointers, structures among them, on partly damaged messages."""
    rng = random.Random(seed)
    messages = random_messages(schema, rng, count)
    messages = [damage(m, rng) if rng.random() < 0.3 else m for m in messages]
    everything = [pointer for pointer, _ in schema.leaves()]
    everything += sorted({p.rpartition("/")[0] for p in everything})
    pointers = list(dict.fromkeys(rng.choices(everything or [""], k=3)))
    assert_same_as_reference(schema, messages, pointers)


@SLOW
@given(schemas(), st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_columns_equal_the_reference_on_arbitrary_bytes(
    schema: MessageSchema, bodies: list[bytes]
) -> None:
    """Bytes that were never a message are judged alike."""
    headers = (b"\x00\x01\x00\x00", b"\x00\x00\x00\x00")
    assert_same_as_reference(schema, [headers[i % 2] + body for i, body in enumerate(bodies)])


NESTED = """\
Status[] status
===
MSG: p/Status
byte level
string name
KeyValue[] values
===
MSG: p/KeyValue
string key
string value
"""


def nested_value(rng: random.Random) -> dict[str, object]:
    """A value of NESTED with lists of very different lengths."""
    return {
        "status": [
            {
                "level": rng.randrange(256),
                "name": "n" * rng.randrange(6),
                "values": [
                    {"key": "k" * rng.randrange(4), "value": "v" * rng.randrange(9)}
                    for _ in range(rng.choice([0, 1, 2, 17]))
                ],
            }
            for _ in range(rng.choice([0, 1, 3, 40]))
        ]
    }


def test_columns_equal_the_reference_on_nested_lists_of_many_messages() -> None:
    """Array steps, and generated code for the tail of the long lists, meet in one batch."""
    schema = parse_definition(NESTED, "p/msg/Array")
    rng = random.Random(5)
    messages = [encode(schema, nested_value(rng)) for _ in range(120)]
    assert_same_as_reference(schema, messages, scan_rows_max=(1, 32))


@pytest.mark.parametrize(
    "members",
    [
        "float64 x\nuint8 c",
        "uint8 c\nfloat64 x",
        "uint8 a\nint16 b\nuint8 c\nfloat32 d",
        "int32 a\nuint8[3] b",
        "Q[2] q\nuint8 c\n===\nMSG: p/Q\nuint8 c\nint64 x",
        "uint8 c\nQ[3] q\nQ last\n===\nMSG: p/Q\nint16 x\nuint8 c",
    ],
)
def test_lists_of_fixed_structures_are_padded_like_the_reference(members: str) -> None:
    """Elements of mixed alignment at every phase, at the top, in arrays and in variable lists."""
    text = (
        "string s\nP[] top\nuint8 gap\nP[3] array\nOuter[] outer\n===\nMSG: p/Outer\n"
        f"string s\nP[] list\nuint8 gap\nP[2] pair\n===\nMSG: p/P\n{members}"
    )
    schema = parse_definition(text, "p/msg/M")
    rng = random.Random(members)
    for little in (True, False):
        values = [random_value(schema, StructRef(schema.type_name), rng) for _ in range(40)]
        messages = [encode(schema, value, little) for value in values]
        assert_same_as_reference(schema, messages, scan_rows_max=(1, 1_000))
        cut = [message[: rng.randint(4, len(message))] for message in messages]
        assert_same_as_reference(schema, cut, scan_rows_max=(1, 1_000))


def test_damage_deep_in_nested_lists_costs_only_its_message() -> None:
    """One message of many is cut inside its last list; the others keep their values."""
    schema = parse_definition(NESTED, "p/msg/Array")
    rng = random.Random(6)
    messages = [encode(schema, nested_value(rng)) for _ in range(80)]
    longest = max(range(80), key=lambda i: len(messages[i]))
    messages[longest] = messages[longest][:-5]
    got = decode_columns(schema, messages, ["/status"])
    assert got.ok.sum() == 79
    assert set(got.errors) == {longest}
    assert_same_as_reference(schema, messages, ["/status"], (1, 32))


def test_messages_may_come_in_any_order_and_overlap() -> None:
    """Starts need not ascend: rows follow the order in which messages are named."""
    schema = parse_definition("string a\nfloat64[] b\nstring c", "p/msg/M")
    values = [{"a": "x" * i, "b": [float(i)] * i, "c": "é" * i} for i in range(6)]
    payload, starts, ends = pack([encode(schema, value) for value in values])
    order = np.array([3, 1, 1, 5, 0])
    decoder = CdrColumnDecoder(schema, ["/a", "/b", "/c"])
    got = decoder.decode(payload, starts[order], ends[order])
    for name in "abc":
        expected = [values[i][name] for i in order]
        assert got.columns[f"/{name}"].to_pylist() == expected


def test_messages_of_one_layout_need_not_be_evenly_spaced() -> None:
    """The same layout at odd distances in the buffer, as between other topics' messages."""
    schema = parse_definition("uint8 a\nfloat64 b\nint16 c\nfloat64[2] d", "p/msg/M")
    raw = [encode(schema, {"a": i, "b": i / 3, "c": -i, "d": [1.0 * i, 2.0 * i]}) for i in range(7)]
    gaps = [3, 0, 11, 1, 8, 2, 5]
    payload = b"".join(b"\xee" * gap + message for gap, message in zip(gaps, raw, strict=True))
    starts = np.cumsum(gaps) + np.arange(7) * len(raw[0])
    buffer = np.frombuffer(payload, np.uint8)
    pointers = ["/a", "/b", "/c", "/d"]
    got = CdrColumnDecoder(schema, pointers).decode(buffer, starts, starts + len(raw[0]))
    assert got.columns["/b"].to_pylist() == [i / 3 for i in range(7)]
    assert got.columns["/c"].to_pylist() == [-i for i in range(7)]
    assert got.columns["/d"].to_pylist() == [[1.0 * i, 2.0 * i] for i in range(7)]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_columns_do_not_share_memory_with_the_payload(count: int) -> None:
    """The buffer may be a mapped segment that is deleted or reused while the columns live."""
    schema = parse_definition(
        "float64 a\nuint8[3] b\nstring c\nint32[] d\nbool e\nP[] f\n===\nMSG: p/P\nfloat64 x",
        "p/msg/M",
    )
    value = {"a": 1.5, "b": b"xyz", "c": "text", "d": [7, 8], "e": True, "f": [{"x": 2.5}]}
    payload, starts, ends = pack([encode(schema, value)] * count)
    payload = payload.copy()
    got = CdrColumnDecoder(schema, [""]).decode(payload, starts, ends)
    payload[:] = 0xFF
    assert got.columns[""].to_pylist() == [value] * count


@pytest.mark.parametrize("count", [1, 2, 50])
def test_columns_are_aligned_in_memory(count: int) -> None:
    """Readers of Arrow memory may rely on it, however values lie in the payload."""
    schema = parse_definition("uint8[3] skipped\nuint8 a\nfloat64 b\nfloat64[2] c", "p/msg/M")
    value = {"skipped": b"abc", "a": 1, "b": 2.0, "c": [3.0, 4.0]}
    got = decode_columns(schema, [encode(schema, value)] * count, ["/a", "/b", "/c"])
    assert got.columns["/b"].buffers()[1].address % 8 == 0
    assert got.columns["/c"].values.buffers()[1].address % 8 == 0
    assert got.columns["/c"].to_pylist() == [[3.0, 4.0]] * count


def test_no_messages_give_empty_columns_of_the_right_type() -> None:
    """n = 0 is an ordinary batch."""
    schema = parse_definition("string a\nint32[] b", "p/msg/M")
    nothing = np.zeros(0, np.int64)
    got = CdrColumnDecoder(schema, ["/a", "/b"]).decode(np.zeros(0, np.uint8), nothing, nothing)
    assert got.n == 0
    assert got.columns["/a"].type == pa.string()
    assert got.columns["/b"].type == pa.list_(pa.int32())
    assert len(got.columns["/b"]) == 0


def test_an_unknown_pointer_is_refused_when_the_decoder_is_made() -> None:
    """A wrong pointer is found before any message arrives."""
    schema = parse_definition("int32 a\nint32[] b", "p/msg/M")
    for pointer in ("/c", "a", "/a/x", "/b/0", "/"):
        with pytest.raises(RecordError) as caught:
            CdrColumnDecoder(schema, [pointer])
        assert caught.value.code == "schema.pointer_unknown"


def test_a_huge_length_allocates_nothing_in_proportion() -> None:
    """A length of four billion in a tiny payload is judged by arithmetic alone."""
    huge = b"\xff\xff\xff\xff"
    for text in ("float64[] a", "string[] a", "P[] a\n===\nMSG: p/P\nfloat64 x\nuint8 y"):
        schema = parse_definition(text, "p/msg/M")
        payload, starts, ends = pack([b"\0\1\0\0" + huge + bytes(16)] * 3)
        before = pa.total_allocated_bytes()
        got = CdrColumnDecoder(schema, ["/a"]).decode(payload, starts, ends)
        assert pa.total_allocated_bytes() - before < 1 << 20
        assert {code for code, _ in got.errors.values()} == {"decode.length"}


def test_an_array_of_millions_of_strings_ends_with_the_payload() -> None:
    """The length of an array comes from the definition; the walk still ends with the bytes."""
    schema = parse_definition("string[400000000] a", "p/msg/M")
    message = b"\0\1\0\0" + b"\x02\0\0\0a\0\0\0" * 50
    got = decode_columns(schema, [message] * 40, ["/a"])
    assert {code for code, _ in got.errors.values()} == {"decode.truncated"}


def test_a_message_behind_its_buffer_is_the_callers_mistake() -> None:
    """Offsets beyond the buffer are no bad data and raise."""
    schema = parse_definition("int32 a", "p/msg/M")
    decoder = CdrColumnDecoder(schema, ["/a"])
    with pytest.raises(ValueError, match="behind its buffer"):
        decoder.decode(np.zeros(20, np.uint8), np.array([0]), np.array([21]))


def test_more_than_arrow_can_address_is_refused() -> None:
    """Offsets are int32; the caller decodes in parts, nothing wraps around."""
    schema = parse_definition("string a", "p/msg/M")
    decoder = CdrColumnDecoder(schema, ["/a"])
    starts = np.zeros(5_000, np.int64)
    with pytest.raises(ValueError, match="decode in parts"):
        decoder.decode(np.zeros(1 << 19, np.uint8), starts, starts + (1 << 19))


def test_one_decoder_serves_several_threads() -> None:
    """Chains may share a decoder: concurrent calls do not disturb each other."""
    schema = parse_definition(NESTED, "p/msg/Array")
    decoder = CdrColumnDecoder(schema, ["/status"], scan_rows_max=8)
    batches = []
    for seed in range(8):
        rng = random.Random(seed)
        batches.append(pack([encode(schema, nested_value(rng)) for _ in range(20)]))
    expected = [decoder.decode(*batch).columns["/status"] for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda batch: decoder.decode(*batch), batches * 4))
    for index, got in enumerate(found):
        assert got.columns["/status"].equals(expected[index % 8])
