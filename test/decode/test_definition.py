# SPDX-License-Identifier: Apache-2.0
"""Definition texts become schemas, and hostile ones a reject in no time (spec 3.4)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_typestore

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.decode.definition import parse_definition, type_hash
from thadam_ros.decode.limits import MEMBERS_MAX, NESTING_MAX
from thadam_ros.decode.schema import (
    ListType,
    MessageSchema,
    PrimitiveType,
    StringType,
    StructRef,
)
from thadam_ros.errors import RecordError

from .messages import assert_same_as_reference, encode, render, schemas

EXAMPLE = """\
# A comment, then a blank line

std_msgs/Header header
uint8 OK=0   # a constant
string NAME = "a # b"
float32 ratio 1.5  # a default
string<=5 short "x"
wstring wide
wstring<=7 wide_bounded
byte b
char c
bool[3] flags [true, false, true]
float32[<=4] few
string<=3[<=2] words
Part part
other_pkg/Thing[] things
other_pkg/msg/Thing thing
================================================================================
MSG: example/Part
int8 x
================================================================================
MSG: other_pkg/Thing
builtin_interfaces/Time at
Inner inner
================================================================================
MSG: other_pkg/Inner
uint64[2] y
"""


def invalid(text: str, type_name: str = "p/msg/M") -> str:
    """Parse text that must be refused; return the reason."""
    with pytest.raises(RecordError) as caught:
        parse_definition(text, type_name)
    assert caught.value.code == "decode.definition_invalid"
    return caught.value.reason


def test_a_definition_gives_every_field_with_its_type() -> None:
    """All forms of a field, in wire order."""
    schema = parse_definition(EXAMPLE, "example/Everything")
    assert schema.type_name == "example/msg/Everything"
    assert {f.name: f.type for f in schema.fields} == {
        "header": StructRef("std_msgs/msg/Header"),
        "ratio": PrimitiveType("float32"),
        "short": StringType(bound=5),
        "wide": StringType(wide=True),
        "wide_bounded": StringType(wide=True, bound=7),
        "b": PrimitiveType("byte"),
        "c": PrimitiveType("uint8"),
        "flags": ListType(PrimitiveType("bool"), length=3),
        "few": ListType(PrimitiveType("float32"), bound=4),
        "words": ListType(StringType(bound=3), bound=2),
        "part": StructRef("example/msg/Part"),
        "things": ListType(StructRef("other_pkg/msg/Thing")),
        "thing": StructRef("other_pkg/msg/Thing"),
    }
    constants = schema.structs["example/msg/Everything"].constants
    assert [c.name for c in constants] == ["OK", "NAME"]
    assert "builtin_interfaces/msg/Time" in schema.structs
    assert "other_pkg/msg/Inner" in schema.structs


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schemas())
def test_a_rendered_schema_parses_back(schema: MessageSchema) -> None:
    """Text and schema are two spellings of the same thing."""
    parsed = parse_definition(render(schema), schema.type_name)
    assert {n: s.fields for n, s in parsed.structs.items()} == {
        n: s.fields for n, s in schema.structs.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "int32 a\r\nint32 b\r\n",
        "\tint32\ta\n  int32   b  # tail",
        "int32 a # x=3\nint32 b",
        '@key int32 a\n@unit(value="m") int32 b',
        "int32 a\nint32 C=1\nint32 b",
    ],
)
def test_spelling_does_not_matter(text: str) -> None:
    """Line ends, blanks, comments, annotations and constants change nothing."""
    schema = parse_definition(text, "p/msg/M")
    assert [(f.name, f.type) for f in schema.fields] == [
        ("a", PrimitiveType("int32")),
        ("b", PrimitiveType("int32")),
    ]


def test_header_and_time_are_known_without_text() -> None:
    """rosbag writers may leave them out."""
    schema = parse_definition("Header header\ntime t\nduration d", "p/msg/M")
    assert schema.arrow_type("/header/stamp/nanosec") == pa.uint32()
    assert schema.arrow_type("/t/sec") == schema.arrow_type("/d/sec") == pa.int32()


def test_arrow_types_are_the_messages_own() -> None:
    """Structs, lists, binary, strings; unsigned stays unsigned."""
    schema = parse_definition(EXAMPLE, "example/msg/Everything")
    assert schema.arrow_type("/things") == pa.list_(
        pa.struct(
            [
                ("at", pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])),
                ("inner", pa.struct([("y", pa.list_(pa.uint64()))])),
            ]
        )
    )
    assert schema.arrow_type("/flags") == pa.list_(pa.bool_())
    assert schema.arrow_type("/words") == pa.list_(pa.string())
    data = parse_definition("uint8[] a\nbyte[2] b\nchar[<=3] c\nint8[] d", "p/msg/M")
    assert [data.arrow_type(f"/{n}") for n in "abc"] == [pa.binary()] * 3
    assert data.arrow_type("/d") == pa.list_(pa.int8())


def test_an_empty_message_is_told_from_an_unknown_definition() -> None:
    """A comment makes an empty message; no text at all only for a type named Empty."""
    assert parse_definition("# nothing\n", "p/msg/M").fields == ()
    assert parse_definition("", "std_msgs/msg/Empty").fields == ()
    assert "empty" in invalid("")
    assert "empty" in invalid(" \n")


def test_idl_parts_are_understood_beside_msg_parts() -> None:
    """The mixed form of rosbag2 for packages that ship .idl files."""
    text = """\
{line}
IDL: p/msg/M
#include "q/msg/N.idl"
module p {{ module msg {{
  module M_Constants {{ const uint8 OK = 0; }};
  @verbatim (language="comment", text="a (b) <<")
  struct M {{
    @key q::msg::N n;
    sequence<double, 3> few;
    string<4> s; wstring w; octet o; boolean b;
    uint8 raw[5];
  }};
}}; }};
{line}
MSG: q/N
int16 x
""".format(line="=" * 80)
    schema = parse_definition(text, "p/msg/M")
    assert {f.name: f.type for f in schema.fields} == {
        "n": StructRef("q/msg/N"),
        "few": ListType(PrimitiveType("float64"), bound=3),
        "s": StringType(bound=4),
        "w": StringType(wide=True),
        "o": PrimitiveType("byte"),
        "b": PrimitiveType("bool"),
        "raw": ListType(PrimitiveType("uint8"), length=5),
    }


# Hostile texts


TOKENS = (
    *("int32 a", "string<=3 b", "P p", "float64[<=2] c", "uint8 X=1", "===", "MSG: p/P", "# x"),
    *("IDL: p/msg/P", "module p {", "struct M {", "}; };", "const long A = 3;", "@key"),
    *("[", "]", "<=", "=", "1", "\t", "  ", "é", "\x00"),
)


def outcome(text: str) -> str:
    """``schema`` when the text parses and hashes, else the reject code."""
    try:
        type_hash(parse_definition(text, "p/msg/M"))
    except RecordError as error:
        return error.code
    return "schema"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("M m", "contains itself"),
        ("A a\n===\nMSG: p/A\nB b\n===\nMSG: p/B\nA[] a", "contains itself"),
        ("Gone g", "does not define"),
        ("other/Gone g", "does not define"),
        ("int32", "no field name"),
        ("int32 a\nint32 a", "appears twice"),
        ("int32<=4 a", "only strings"),
        ("int32[0] a", "between 1"),
        ("int32[99999999999999] a", "is not a type"),
        ("int32[-1] a", "is not a type"),
        ("int32[<=] a", "is not a type"),
        ("int32[][] a", "is not a type"),
        ("int32 1a", "no field name"),
        ("int32 a-b", "is not a field name"),
        ("a/b/c/d/e f", "is not a type name"),
        ("../x f", "is not a type"),
        ("int32 a\n===\nint32 b", "separator"),
        ("int32 a\n===", "separator"),
        ("@optional int32 a", "optional"),
        ("float64[300000000] a", "bytes"),
        ("===\nMSG: q/Other\nint32 a", "does not define"),
        ("int32 a\n" * 200_000, "longer than"),
        ("===\nIDL: p/msg/M\nmodule p {", "IDL"),
        ("===\nIDL: p/msg/M\nmodule p { const long A = 1 << 1000000000; };", "not supported"),
        ("===\nIDL: p/msg/M\nmodule p { const long A = " + "(" * 40 + "1", "not supported"),
        ("===\nIDL: p/msg/M\n" + "module a {" * 4_000, "IDL"),
        ("===\nIDL: p/msg/M\nmodule p { const long A = B * B; };", "not supported"),
        ("===\nIDL: p/msg/M\n" + "/* " * 60_000, "ends inside"),
        ("===\nIDL: p/msg/M\n" + '\\"' * 60_000, "ends inside"),
        ("===\nIDL: p/msg/M\n" + "@a " * 30_000, "more than"),
        ("===\nIDL: p/msg/M\n" + "// x\n" * 60_000, "longer than"),
    ],
)
def test_a_hostile_definition_is_refused(text: str, part: str) -> None:
    """Each becomes decode.definition_invalid with a reason that says why."""
    assert part in invalid(text)


def test_a_definition_that_explodes_is_refused_by_arithmetic() -> None:
    """12 structures of 20 members each name 20^12 values."""
    parts = ["S0 a"]
    for level in range(12):
        inner = f"S{level + 1}" if level < 11 else "int8"
        fields = "\n".join(f"{inner} f{i}" for i in range(20))
        parts.append(f"===\nMSG: p/S{level}\n{fields}")
    assert str(MEMBERS_MAX) in invalid("\n".join(parts))


def test_the_deepest_nesting_that_is_allowed_decodes() -> None:
    """Nested loops of generated code stay within what CPython compiles."""
    depth = NESTING_MAX - 1
    parts = ["S0[] a"] + [f"===\nMSG: p/S{i}\nS{i + 1}[] a\nstring b" for i in range(depth)]
    parts[-1] = f"===\nMSG: p/S{depth - 1}\nstring[] a\nstring b"
    schema = parse_definition("\n".join(parts), "p/msg/M")
    value: dict[str, object] = {"a": ["x"], "b": "y"}
    for _ in range(depth - 1):
        value = {"a": [value, value], "b": "z"}
    message = encode(schema, {"a": [value]})
    assert_same_as_reference(schema, [message], scan_rows_max=(1_000,))


def test_deep_nesting_is_refused() -> None:
    """Recursion in our code has a limit of its own, far below Python's."""
    parts = ["S0 a"] + [f"===\nMSG: p/S{i}\nS{i + 1} a" for i in range(500)]
    parts.append("===\nMSG: p/S500\nint8 a")
    assert "deeper" in invalid("\n".join(parts))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(TOKENS),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_text_gives_a_schema_or_a_reject(tokens: list[str], lines: bool) -> None:
    """Nothing but a RecordError ever leaves the parser."""
    text = ("\n" if lines else " ").join(tokens)
    assert outcome(text) in ("schema", "decode.definition_invalid")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_arbitrary_characters_give_a_schema_or_a_reject(text: str) -> None:
    """Unicode, control characters, anything."""
    assert outcome(text) in ("schema", "decode.definition_invalid")


# Type hashes


def test_hashes_equal_those_of_the_well_known_store() -> None:
    """Every type that rosbags ships for Kilted, hashed by rosbags and by us."""
    store = get_typestore(Stores.ROS2_KILTED)
    catalog = TypeCatalog(prefixes=())
    checked = 0
    for name in store.fielddefs:
        text = catalog.definition(name)
        assert text is not None
        if "char " in text or "char[" in text:
            continue  # rosbags gives char IDL's type id, ROS 2 that of uint8
        assert type_hash(parse_definition(text, name)) == _hash_of(store, name)
        checked += 1
    assert checked > 100


def _hash_of(store: object, name: str) -> str:
    return store.hash_rihs01(name)  # type: ignore[attr-defined,no-any-return]


def installed_prefixes() -> list[str]:
    """Where ROS packages are installed here: a workspace, below it the installation."""
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    prefixes += [os.environ.get("VIRTUAL_ENV", ""), sys.prefix]
    return list(dict.fromkeys(filter(None, prefixes)))


def installed_descriptions() -> list[Path]:
    """Type description files of the ROS packages installed here."""
    return [
        path
        for prefix in installed_prefixes()
        for path in sorted(Path(prefix).glob("share/*/msg/*.json"))
    ]


def installed_idl(package: str, kind: str, short: str) -> str:
    """The IDL text of an installed type."""
    paths = (Path(p, "share", package, kind, f"{short}.idl") for p in installed_prefixes())
    return next(path for path in paths if path.is_file()).read_text("utf-8")


def test_hashes_equal_those_that_ros_generated() -> None:
    """Every installed package: our hash of its .msg (or .idl) is the one in its .json."""
    files = installed_descriptions()
    if not files:
        pytest.skip("no ROS packages are installed here")
    catalog = TypeCatalog(prefixes=installed_prefixes(), well_known=False)
    for file in files:
        name = f"{file.parents[1].name}/msg/{file.stem}"
        hashes = json.loads(file.read_text(encoding="utf-8"))["type_hashes"]
        expected = next(h["hash_string"] for h in hashes if h["type_name"] == name)
        text = catalog.definition(name)
        assert text is not None, name
        assert type_hash(parse_definition(text, name)) == expected, name


def test_idl_and_msg_of_one_type_have_one_hash() -> None:
    """Both texts of every installed type describe the same wire layout."""
    files = [f for f in installed_descriptions() if f.with_suffix(".msg").exists()]
    if not files:
        pytest.skip("no ROS packages are installed here")
    for file in files[::10]:
        name = f"{file.parents[1].name}/msg/{file.stem}"
        described = json.loads(file.read_text(encoding="utf-8"))
        parts = [f"{'=' * 80}\nIDL: {name}\n{file.with_suffix('.idl').read_text('utf-8')}"]
        for inner in described["type_description_msg"]["referenced_type_descriptions"]:
            package, kind, short = inner["type_name"].split("/")
            text = installed_idl(package, kind, short)
            parts.append(f"{'=' * 80}\nIDL: {inner['type_name']}\n{text}")
        expected = next(
            h["hash_string"] for h in described["type_hashes"] if h["type_name"] == name
        )
        assert type_hash(parse_definition("\n".join(parts), name)) == expected, name
