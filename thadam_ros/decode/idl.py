# SPDX-License-Identifier: Apache-2.0
"""IDL definition text -> structure definitions, by rosbags' IDL parser.

That parser backtracks: nested parentheses cost exponential time and ``1 << 1000000000`` is
evaluated. Neither occurs in interface files that ROS generates, so both are refused up front.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rosbags.interfaces import Nodetype
from rosbags.typesys import TypesysError, get_types_from_idl

from thadam_ros.decode.schema import (
    PRIMITIVES,
    Constant,
    FieldType,
    ListType,
    PrimitiveType,
    SchemaField,
    StringType,
    StructDefinition,
    StructRef,
)
from thadam_ros.errors import RecordError

IDL_CHARACTERS_MAX: Final = 1 << 18

_PREPROCESSOR = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_REFUSED = re.compile(r"<<|>>|(?<![A-Za-z0-9_ ])\s*\(|\([^)]*\(|@optional\b|\bunion\b|\bmap\b")


def parse_idl(text: str) -> Mapping[str, StructDefinition]:
    """Parse one IDL text.

    Returns:
        Full name -> definition of every structure in it.

    Raises:
        RecordError: ``decode.definition_invalid``.
    """
    if len(text) > IDL_CHARACTERS_MAX:
        raise _invalid(f"IDL text is longer than {IDL_CHARACTERS_MAX} characters")
    bare = _COMMENT.sub(" ", _STRING.sub('""', text))
    if found := _REFUSED.search(bare):
        raise _invalid(f"IDL construct {found[0].strip()[:20]!r} is not supported")
    try:
        types = get_types_from_idl(_PREPROCESSOR.sub("", text))
    except (TypesysError, RecursionError, AssertionError, KeyError, ValueError) as error:
        raise _invalid(f"IDL cannot be parsed ({type(error).__name__})") from error
    structs: dict[str, StructDefinition] = {}
    for name, (constants, fields) in types.items():
        members = tuple(SchemaField(n, _convert(desc)) for n, desc in fields)
        if len({m.name for m in members}) != len(members):
            raise _invalid(f"{name}: a field appears twice")
        structs[name] = StructDefinition(
            name,
            tuple(m for m in members if m.name != "structure_needs_at_least_one_member"),
            tuple(Constant(n, _convert((Nodetype.BASE, (t, 0))), str(v)) for n, t, v in constants),
        )
    return structs


def _convert(desc: tuple[Any, Any]) -> FieldType:
    kind, detail = desc
    if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        inner, count = detail
        element = _convert(inner)
        assert not isinstance(element, ListType)
        if kind == Nodetype.ARRAY:
            if not 0 < count < 1 << 32:
                raise _invalid(f"array length {count!r} is impossible")
            return ListType(element, length=count)
        return ListType(element, bound=count or None)
    if kind == Nodetype.NAME:
        return StructRef(detail)
    name, bound = detail
    if name in ("string", "wstring"):
        return StringType(wide=name == "wstring", bound=bound or None)
    if name not in PRIMITIVES:
        raise _invalid(f"IDL type {name!r} is not supported")
    return PrimitiveType(name)


def _invalid(reason: str) -> RecordError:
    return RecordError("decode.definition_invalid", reason)
