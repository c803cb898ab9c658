# SPDX-License-Identifier: Apache-2.0
"""Message definition text -> :class:`MessageSchema`.

The text is the concatenated ``ros2msg`` form of rosbag2 and MCAP: the definition of the message,
then for each dependency a line of ``=`` and a line ``MSG: pkg/Name``. A part may instead be IDL
(``IDL: pkg/msg/Name``), which rosbags parses. The .msg grammar is read here and not by rosbags,
whose .msg parser has no ``wstring`` and gives ``char`` a type id that ROS 2 does not use.

Definitions come from other machines: size, nesting and expansion are limited, recursion and
missing types are found before a decoder is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from thadam_ros.decode.idl import parse_idl
from thadam_ros.decode.limits import check_limits
from thadam_ros.decode.schema import (
    PRIMITIVES,
    Constant,
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    SchemaField,
    StringType,
    StructDefinition,
    StructRef,
    type_hash,
)
from thadam_ros.errors import RecordError

__all__ = ["MessageSchema", "dependencies", "normalize_type_name", "parse_definition"]
__all__ += ["type_hash"]

TEXT_CHARACTERS_MAX: Final = 1 << 20
#: IDL is parsed with backtracking: about a second for this much of the worst kind.
IDL_CHARACTERS_MAX: Final = 1 << 18

#: Known without text: rosbag writers leave some of these out.
_IMPLICIT: Final[dict[str, StructDefinition]] = {
    definition.name: definition
    for definition in (
        StructDefinition(
            "builtin_interfaces/msg/Time",
            (
                SchemaField("sec", PrimitiveType("int32")),
                SchemaField("nanosec", PrimitiveType("uint32")),
            ),
        ),
        StructDefinition(
            "builtin_interfaces/msg/Duration",
            (
                SchemaField("sec", PrimitiveType("int32")),
                SchemaField("nanosec", PrimitiveType("uint32")),
            ),
        ),
        StructDefinition(
            "std_msgs/msg/Header",
            (
                SchemaField("stamp", StructRef("builtin_interfaces/msg/Time")),
                SchemaField("frame_id", StringType()),
            ),
        ),
    )
}

#: Names that stand for a structure wherever they appear (ROS 1 text converted by rosbags).
_ALIASES: Final = {
    "Header": "std_msgs/msg/Header",
    "time": "builtin_interfaces/msg/Time",
    "duration": "builtin_interfaces/msg/Duration",
}

_SEPARATOR = re.compile(r"={3,}[ \t]*")
_SECTION = re.compile(r"(MSG|IDL):[ \t]*([A-Za-z0-9_/]+)[ \t]*")
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:/[A-Za-z][A-Za-z0-9_]*){1,3}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BASE_TYPE = re.compile(r"([A-Za-z][A-Za-z0-9_/]*)(?:<=([0-9]{1,10}))?")
_BRACKETS = re.compile(r"\[(?:(<=)?([0-9]{1,10}))?\]")
_ANNOTATION = re.compile(r"@([a-z_]+)(?:\([^)]*\))?[ \t]*")
_LOOKS_LIKE_IDL = re.compile(r"^\s*(?:#include\b|module\b|//|/\*)", re.MULTILINE)
_COUNT_MAX: Final = (1 << 32) - 1


def parse_definition(text: str, type_name: str) -> MessageSchema:
    """Parse concatenated definition text.

    Args:
        text: Definition of ``type_name`` first, dependencies after separator lines.
        type_name: ``pkg/msg/Name`` (``pkg/Name`` is understood).

    Raises:
        RecordError: ``decode.definition_invalid``: not parseable, a type is missing, recursive,
            or beyond the limits of :mod:`.limits`; blank text without a single comment is
            taken for an unknown definition unless the type is ``Empty``.
    """
    name = normalize_type_name(type_name)
    if len(text) > TEXT_CHARACTERS_MAX:
        raise _invalid(f"the text of {name} is longer than {TEXT_CHARACTERS_MAX} characters")
    if not text.strip() and not name.endswith("/Empty"):
        raise _invalid(f"the definition of {name} is empty")
    structs: dict[str, StructDefinition] = {}
    idl_characters = 0
    for kind, section_name, body in _sections(text, name):
        if kind == "IDL":
            idl_characters += len(body)
            if idl_characters > IDL_CHARACTERS_MAX:
                raise _invalid(f"the IDL of {name} is longer than {IDL_CHARACTERS_MAX} characters")
            found = parse_idl(body)
        else:
            found = {section_name: _parse_msg(body, section_name)}
        for key, struct in found.items():
            # The first definition wins: rosbag2 repeats dependencies, and repeats are equal.
            structs.setdefault(key, struct)
    if name not in structs:
        raise _invalid(f"the text does not define {name}")
    reachable = _reachable(structs, name)
    check_limits(reachable, name)
    return MessageSchema(name, reachable)


def normalize_type_name(type_name: str) -> str:
    """Return ``pkg/msg/Name`` for ``pkg/Name``; longer names stay as they are.

    Raises:
        RecordError: ``decode.definition_invalid`` when it is not a type name.
    """
    if not _TYPE_NAME.fullmatch(type_name):
        raise _invalid(f"{type_name[:80]!r} is not a type name")
    parts = type_name.split("/")
    return "/".join((parts[0], "msg", parts[1])) if len(parts) == 2 else type_name


def dependencies(text: str, type_name: str, *, idl: bool = False) -> list[str]:
    """Return the full names that the text of one .msg or .idl file refers to, each once.

    Raises:
        RecordError: ``decode.definition_invalid`` when the text cannot be parsed.
    """
    if not idl:
        return list(dict.fromkeys(_references(_parse_msg(text, normalize_type_name(type_name)))))
    structs = parse_idl(text)
    names = dict.fromkeys(name for struct in structs.values() for name in _references(struct))
    return [name for name in names if name not in structs]


def _invalid(reason: str) -> RecordError:
    return RecordError("decode.definition_invalid", reason)


def _sections(text: str, type_name: str) -> Iterator[tuple[str, str, str]]:
    """Yield (MSG or IDL, full type name, body) of each part of a concatenated text."""
    kind, name, lines = "", type_name, list[str]()
    expect_header = False
    for line in text.splitlines():
        header = _SECTION.fullmatch(line.strip()) if expect_header else None
        if header:
            kind, name = header[1], normalize_type_name(header[2])
        elif expect_header:
            raise _invalid("a separator line is not followed by 'MSG: pkg/Name'")
        expect_header = False
        if header:
            continue
        if _SEPARATOR.fullmatch(line.strip()):
            if kind or any(x.strip() for x in lines):
                yield _section(kind, name, lines)
            kind, lines, expect_header = "", [], True
        else:
            lines.append(line)
    if expect_header:
        raise _invalid("a separator line is not followed by 'MSG: pkg/Name'")
    yield _section(kind, name, lines)


def _section(kind: str, name: str, lines: list[str]) -> tuple[str, str, str]:
    body = "\n".join(lines)
    if not kind:
        kind = "IDL" if _LOOKS_LIKE_IDL.match(body) else "MSG"
    return kind, name, body


def _parse_msg(body: str, owner: str) -> StructDefinition:
    fields: dict[str, SchemaField] = {}
    constants: list[Constant] = []
    for number, raw in enumerate(body.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            parsed = _parse_line(line, owner)
        except RecordError as error:
            raise _invalid(f"{owner} line {number}: {error.reason}") from None
        if isinstance(parsed, Constant):
            constants.append(parsed)
        elif parsed is not None:
            if parsed.name in fields:
                raise _invalid(f"{owner} line {number}: field {parsed.name!r} appears twice")
            fields[parsed.name] = parsed
    fields.pop("structure_needs_at_least_one_member", None)
    return StructDefinition(owner, tuple(fields.values()), tuple(constants))


def _parse_line(line: str, owner: str) -> SchemaField | Constant | None:
    while match := _ANNOTATION.match(line):
        if match[1] == "optional":
            # An optional member is preceded by a parameter header: not plain CDR.
            raise _invalid("optional members are not supported")
        line = line[match.end() :]
    if not line or line.startswith("#"):
        return None
    type_text, _, rest = line.replace("\t", " ").partition(" ")
    kind = _parse_type(type_text, owner)
    rest = rest.lstrip()
    match_name = _NAME.match(rest)
    if not match_name:
        raise _invalid(f"no field name after {type_text[:40]!r}")
    tail = rest[match_name.end() :]
    after = tail.lstrip()
    if after.startswith("="):
        return Constant(match_name[0], kind, after[1:].strip())
    if tail and not tail[0].isspace() and tail[0] != "#":
        raise _invalid(f"{rest.split()[0][:40]!r} is not a field name")
    return SchemaField(match_name[0], kind)


def _parse_type(text: str, owner: str) -> FieldType:
    base, bracket, brackets = text.partition("[")
    match = _BASE_TYPE.fullmatch(base)
    if not match:
        raise _invalid(f"{text[:40]!r} is not a type")
    name, bound_text = match[1], match[2]
    element: PrimitiveType | StringType | StructRef
    if name in ("string", "wstring"):
        bound = _count(bound_text, text) if bound_text else None
        element = StringType(wide=name == "wstring", bound=bound)
    elif bound_text:
        raise _invalid(f"{text[:40]!r}: only strings are bounded this way")
    elif name == "char":
        element = PrimitiveType("uint8")
    elif name in PRIMITIVES:
        element = PrimitiveType(name)
    else:
        element = StructRef(_qualify(name, owner))
    if not bracket:
        return element
    list_match = _BRACKETS.fullmatch(bracket + brackets)
    if not list_match:
        raise _invalid(f"{text[:40]!r} is not a type")
    if list_match[2] is None:
        return ListType(element)
    count = _count(list_match[2], text)
    return ListType(element, bound=count) if list_match[1] else ListType(element, length=count)


def _count(digits: str, text: str) -> int:
    count = int(digits)
    if not 0 < count <= _COUNT_MAX:
        raise _invalid(f"{text[:40]!r}: a length lies between 1 and {_COUNT_MAX}")
    return count


def _qualify(name: str, owner: str) -> str:
    if name in _ALIASES:
        return _ALIASES[name]
    if "/" in name:
        return normalize_type_name(name)
    return f"{owner.split('/', 1)[0]}/msg/{name}"


def _references(struct: StructDefinition) -> Iterator[str]:
    for field in struct.fields:
        inner = field.type.element if isinstance(field.type, ListType) else field.type
        if isinstance(inner, StructRef):
            yield inner.name


def _reachable(structs: dict[str, StructDefinition], root: str) -> dict[str, StructDefinition]:
    """Return the definitions that ``root`` needs, in order of first use."""
    found: dict[str, StructDefinition] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        struct = structs.get(name) or _IMPLICIT.get(name)
        if struct is None:
            raise _invalid(f"{root} refers to {name}, which the text does not define")
        found[name] = struct
        pending.extend(reversed(list(_references(struct))))
    return found
