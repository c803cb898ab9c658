# SPDX-License-Identifier: Apache-2.0
"""Limits of message definitions: they come from other machines and shape the decoders.

A definition of a few hundred bytes can name billions of members (structures of structures), so
the expansion is computed by arithmetic over the graph, never by walking it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from thadam_ros.decode.schema import (
    FieldType,
    ListType,
    PrimitiveType,
    StringType,
    StructDefinition,
    StructRef,
)
from thadam_ros.errors import RecordError

#: Also keeps generated code below the 20 nested blocks that CPython allows.
NESTING_MAX: Final = 16
#: Members of the message with every nested structure written out once per use.
MEMBERS_MAX: Final = 16_384
#: More than any payload may have; also keeps every product with a uint32 count inside int64.
WIRE_BYTES_MAX: Final = (1 << 31) - 1


def minimum_sizes(structs: Mapping[str, StructDefinition], root: str) -> dict[str, int]:
    """Return for each structure reachable from ``root`` the fewest bytes it takes, unpadded.

    Raises:
        RecordError: ``decode.definition_invalid`` for recursion or nesting beyond the limit.
    """
    sizes: dict[str, int] = {}
    _visit(structs, root, (), sizes, {})
    return sizes


def minimum_size(kind: FieldType, struct_sizes: Mapping[str, int]) -> int:
    """Return the fewest bytes a value takes on the wire, alignment left out."""
    if isinstance(kind, PrimitiveType):
        return kind.size
    if isinstance(kind, StringType):
        return 4 if kind.wide else 5
    if isinstance(kind, StructRef):
        return struct_sizes[kind.name]
    if kind.length is None:
        return 4
    return kind.length * minimum_size(kind.element, struct_sizes)


def check_limits(structs: Mapping[str, StructDefinition], root: str) -> None:
    """Refuse definitions that are recursive or larger than any decoder should handle.

    Raises:
        RecordError: ``decode.definition_invalid``.
    """
    sizes: dict[str, int] = {}
    members: dict[str, int] = {}
    _visit(structs, root, (), sizes, members)
    if members[root] > MEMBERS_MAX:
        raise _invalid(f"{root} has more than {MEMBERS_MAX} members, nested ones included")
    for name, size in sizes.items():
        if size > WIRE_BYTES_MAX:
            raise _invalid(f"{name} takes more than {WIRE_BYTES_MAX} bytes")


def _visit(
    structs: Mapping[str, StructDefinition],
    name: str,
    path: tuple[str, ...],
    sizes: dict[str, int],
    members: dict[str, int],
) -> None:
    if name in path:
        raise _invalid(f"{name} contains itself")
    if len(path) >= NESTING_MAX:
        raise _invalid(f"structures are nested deeper than {NESTING_MAX}")
    if name in sizes:
        return
    total, count = 0, 1
    for field in structs[name].fields:
        inner = field.type.element if isinstance(field.type, ListType) else field.type
        if isinstance(inner, StructRef):
            _visit(structs, inner.name, (*path, name), sizes, members)
            count += members[inner.name]
        else:
            count += 1
        total += minimum_size(field.type, sizes)
    # Beyond the limit the exact figure no longer matters, and must not grow without end.
    sizes[name] = min(total, WIRE_BYTES_MAX + 1) if structs[name].fields else 1
    members[name] = min(count, MEMBERS_MAX + 1)


def _invalid(reason: str) -> RecordError:
    return RecordError("decode.definition_invalid", reason)
