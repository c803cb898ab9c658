# SPDX-License-Identifier: Apache-2.0
"""IDL definition text -> structure definitions, by rosbags' IDL parser.

That parser backtracks and evaluates: nested parentheses cost exponential time, and a chain of
constants that square each other never ends. What ROS generates or people write for ROS has no
expressions, so text is first reduced to bare declarations with literals; anything else is refused
before the parser sees it.
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

IDL_CHARACTERS_MAX: Final = 1 << 16

_PREPROCESSOR = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
#: Each alternative also matches up to the end of the text, so that scanning stays linear.
_OPAQUE = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*(?P<text_end>"|\Z))
    |(?P<char>'(?:[^'\\]|\\.)*(?P<char_end>'|\Z))
    |//[^\n]*
    |(?P<note>/\*(?:[^*]|\*(?!/))*(?P<note_end>\*/|\Z))""",
    re.DOTALL | re.VERBOSE,
)
_TEXTS = re.compile(r'""(?:\s*"")+')
_EXPONENT = re.compile(r"(?<=[0-9.])[eE][-+]?[0-9]+")
_REFUSED = re.compile(
    r"[*/%|&^~\\]|<<|>>\s*[0-9(]"  # operators
    r"|[A-Za-z0-9_\])\"]\s*[-+]|[-+]\s*[^0-9.\s]"  # signs that are not a literal's
    r"|(?<![A-Za-z0-9_\s])\s*\(|\([^)]{0,1000}\("  # parentheses other than an annotation's
    r"|@optional\b|\bunion\b|\bmap\b"  # not plain CDR, or not in ROS
)


def parse_idl(text: str) -> Mapping[str, StructDefinition]:
    """Parse one IDL text.

    Returns:
        Full name -> definition of every structure in it.

    Raises:
        RecordError: ``decode.definition_invalid``.
    """
    bare = _TEXTS.sub('""', _OPAQUE.sub(_hollow, _PREPROCESSOR.sub("", text)))
    if len(bare) > IDL_CHARACTERS_MAX:
        raise _invalid(f"IDL has more than {IDL_CHARACTERS_MAX} characters beside its comments")
    if found := _REFUSED.search(_EXPONENT.sub("", bare)):
        raise _invalid(f"IDL construct {found[0].strip()[:20]!r} is not supported")
    try:
        types = get_types_from_idl(bare)
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


def _hollow(match: re.Match[str]) -> str:
    """Replace a comment by a blank and a literal by an empty one."""
    for kind, hollow in (("text", '""'), ("char", "'x'"), ("note", " ")):
        if match[kind] is not None:
            if not match[f"{kind}_end"]:
                raise _invalid("IDL ends inside a string or comment")
            return hollow
    return " "


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
