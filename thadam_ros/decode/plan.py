# SPDX-License-Identifier: Apache-2.0
"""Message schema + wanted pointers -> the program that finds every wanted value in a body.

A program is a list of steps in wire order. Neighbouring members of fixed size, nested structures
included, are one :class:`Run`; a step of variable size ends it. A step writes what it finds into
numbered *slots*: positions, byte or element counts, alignment phases. Slots that nobody wants are
-1, and a step without wanted slots still moves the cursor and checks the structure.

Slots live in *scopes*: the messages are one scope, the elements of each list of structures or
strings are another, flattened over all messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from thadam_ros.decode.limits import minimum_size, minimum_sizes
from thadam_ros.decode.schema import (
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    StringType,
    StructRef,
)

UNWANTED: Final = -1
#: Wanted members this close together are gathered with one copy (measured: a copy costs about as
#: much as 200 bytes).
_GAP_BYTES_MAX: Final = 96


@dataclass(frozen=True, slots=True)
class Item:
    """A primitive or an array of primitives inside a run."""

    align: int
    size: int
    slot: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Wanted members of a segment that lie close together.

    Attributes:
        offset: First byte, from the aligned cursor.
        size: Bytes from there to the end of the last member.
        members: (slot, offset from the cluster's first byte).
    """

    offset: int
    size: int
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a run behind one alignment of unknown width.

    Attributes:
        align: Align the cursor to this first; 0 when the padding is already part of the offsets.
        captures: (slot, offset from the aligned cursor).
        clusters: The captures again, by neighbourhood.
        size: Bytes from the aligned cursor to the end of the segment.
    """

    align: int
    captures: tuple[tuple[int, int], ...]
    clusters: tuple[Cluster, ...]
    size: int


@dataclass(slots=True)
class Run:
    """Members of fixed size."""

    items: list[Item]
    _memo: dict[tuple[int, int], tuple[tuple[Segment, ...], int, int]] = field(default_factory=dict)

    def segments(self, modulus: int, residue: int) -> tuple[tuple[Segment, ...], int, int]:
        """Lay the run out from a cursor of which only ``position % modulus == residue`` is known.

        Returns:
            The segments, and modulus and residue of the cursor behind the run.
        """
        key = (modulus, residue)
        if key not in self._memo:
            self._memo[key] = self._lay_out(modulus, residue)
        return self._memo[key]

    def _lay_out(self, modulus: int, residue: int) -> tuple[tuple[Segment, ...], int, int]:
        segments: list[Segment] = []
        captures: list[tuple[int, int, int]] = []
        align, offset = 0, 0
        for item in self.items:
            if item.align <= modulus:
                offset += -(residue + offset) % item.align
            else:
                segments.append(_segment(align, captures, offset))
                captures, align, offset = [], item.align, 0
                modulus, residue = item.align, 0
            if item.slot != UNWANTED:
                captures.append((item.slot, offset, item.size))
            offset += item.size
        segments.append(_segment(align, captures, offset))
        return tuple(segments), modulus, (residue + offset) % modulus


def _segment(align: int, captures: list[tuple[int, int, int]], size: int) -> Segment:
    """Make a segment from (slot, offset, size) of its wanted members."""
    clusters: list[Cluster] = []
    group: list[tuple[int, int, int]] = []
    for capture in [*captures, None]:
        if group and (capture is None or capture[1] - sum(group[-1][1:]) > _GAP_BYTES_MAX):
            first = group[0][1]
            members = tuple((slot, offset - first) for slot, offset, _ in group)
            clusters.append(Cluster(first, sum(group[-1][1:]) - first, members))
            group = []
        if capture is not None:
            group.append(capture)
    places = tuple((slot, offset) for slot, offset, _ in captures)
    return Segment(align, places, tuple(clusters), size)


@dataclass(frozen=True, slots=True)
class StringStep:
    """A string; ``position`` and ``length`` (units) are slots."""

    pattern: str
    wide: bool
    bound: int | None
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class SpanStep:
    """A sequence of primitives."""

    pattern: str
    size: int
    bound: int | None
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class FixedListStep:
    """A list of structures of fixed layout: every element's place follows from the first's.

    Attributes:
        count: Elements of an array, None for a sequence.
        ends: For each phase (position % 8) of an element, the bytes to its end.
        phase: Slot for the phase of the first element.
        elements: Program of one element; empty when nothing in it is wanted.
    """

    pattern: str
    count: int | None
    bound: int | None
    minimum: int
    first_align: int
    widest_align: int
    ends: tuple[int, ...]
    position: int
    length: int
    phase: int
    elements: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A list whose elements have variable size: they can only be walked one after the other.

    Attributes:
        length: Slot for the element counts; the elements' scope is found under it, too.
        number: Identifies the loop within its program.
    """

    pattern: str
    count: int | None
    bound: int | None
    minimum: int
    length: int
    elements: tuple[Step, ...]
    number: int


Step = Run | StringStep | SpanStep | FixedListStep | LoopStep


@dataclass(frozen=True, slots=True)
class Output:
    """How to build an Arrow array from the slots of a scope.

    Attributes:
        kind: The type of the values.
        pattern: Pointer with ``*`` for list elements.
        position: Slot of first bytes; UNWANTED for structures.
        length: Slot of counts, for strings and lists.
        count: Elements, for arrays (their length is not in a slot).
        children: Members of a structure; the element of a list of structures or strings.
        step: The step that finds the elements of a list of structures or strings.
    """

    kind: FieldType
    pattern: str
    position: int = UNWANTED
    length: int = UNWANTED
    count: int | None = None
    children: tuple[Output, ...] = ()
    step: FixedListStep | LoopStep | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """Everything a column decoder needs to know about one schema and its wanted pointers.

    Attributes:
        scalars: (pattern, kind) of everything that is neither structure nor list, in schema
            order: the order in which content errors count.
    """

    steps: tuple[Step, ...]
    outputs: Mapping[str, Output]
    scalars: tuple[tuple[str, PrimitiveType | StringType], ...]


def compile_program(schema: MessageSchema, pointers: Sequence[str]) -> Program:
    """Compile the program for ``pointers``.

    Raises:
        RecordError: ``schema.pointer_unknown``.
    """
    for pointer in pointers:
        schema.resolve(pointer)
    compiler = _Compiler(schema, frozenset(pointers))
    steps = compiler.scope(StructRef(schema.type_name), "")
    return Program(steps, compiler.outputs, tuple(compiler.scalars))


class _Compiler:
    def __init__(self, schema: MessageSchema, wanted: frozenset[str]) -> None:
        self._structs = schema.structs
        self._sizes = minimum_sizes(schema.structs, schema.type_name)
        self._wanted = wanted
        self._slots = 0
        self._loops = 0
        self.outputs: dict[str, Output] = {}
        self.scalars: list[tuple[str, PrimitiveType | StringType]] = []

    def scope(self, kind: FieldType, pattern: str, wanted: bool = False) -> tuple[Step, ...]:
        """Compile one scope (the message, or one element of a list)."""
        steps, _ = self._scope(kind, pattern, wanted)
        return steps

    def _scope(
        self, kind: FieldType, pattern: str, wanted: bool
    ) -> tuple[tuple[Step, ...], Output | None]:
        steps: list[Step] = []
        output = self._value(kind, pattern, wanted, steps)
        return tuple(steps), output

    def _slot(self, wanted: bool) -> int:
        if not wanted:
            return UNWANTED
        self._slots += 1
        return self._slots - 1

    def _value(
        self, kind: FieldType, pattern: str, wanted: bool, steps: list[Step]
    ) -> Output | None:
        """Append the steps of one value; return how to build it when it is wanted."""
        wanted = wanted or pattern in self._wanted
        if isinstance(kind, StructRef):
            output = self._struct(kind, pattern, wanted, steps)
        elif isinstance(kind, ListType):
            output = self._list(kind, pattern, wanted, steps)
        elif isinstance(kind, StringType):
            self.scalars.append((pattern, kind))
            place, length = self._slot(wanted), self._slot(wanted)
            steps.append(StringStep(pattern, kind.wide, kind.bound, place, length))
            output = Output(kind, pattern, place, length)
        else:
            self.scalars.append((pattern, kind))
            place = self._slot(wanted)
            _append(steps, Item(kind.size, kind.size, place))
            output = Output(kind, pattern, place)
        if pattern in self._wanted:
            self.outputs[pattern] = output
        return output if wanted else None

    def _struct(self, kind: StructRef, pattern: str, wanted: bool, steps: list[Step]) -> Output:
        fields = self._structs[kind.name].fields
        if not fields:
            _append(steps, Item(1, 1, UNWANTED))
        members = [self._value(f.type, f"{pattern}/{f.name}", wanted, steps) for f in fields]
        return Output(kind, pattern, children=tuple(m for m in members if m) if wanted else ())

    def _list(self, kind: ListType, pattern: str, wanted: bool, steps: list[Step]) -> Output:
        element = kind.element
        if isinstance(element, PrimitiveType):
            return self._primitives(kind, element, pattern, wanted, steps)
        minimum = minimum_size(element, self._sizes)
        place, length = UNWANTED, self._slot(wanted)
        inner, child = self._scope(element, f"{pattern}/*", wanted)
        step: FixedListStep | LoopStep
        if self._is_fixed(element):
            place, phase = self._slot(wanted), self._slot(wanted)
            first, widest = _alignments(inner)
            step = FixedListStep(
                pattern,
                kind.length,
                kind.bound,
                minimum,
                first,
                widest,
                tuple(end_of(inner, phase) - phase for phase in range(8)),
                place,
                length,
                phase,
                inner if wanted else (),
            )
        else:
            step = LoopStep(pattern, kind.length, kind.bound, minimum, length, inner, self._loops)
            self._loops += 1
        steps.append(step)
        children = (child,) if child else ()
        return Output(kind, pattern, place, length, kind.length, children, step)

    def _primitives(
        self,
        kind: ListType,
        element: PrimitiveType,
        pattern: str,
        wanted: bool,
        steps: list[Step],
    ) -> Output:
        self.scalars.append((f"{pattern}/*", element))
        place = self._slot(wanted)
        if kind.length is not None:
            _append(steps, Item(element.size, element.size * kind.length, place))
            return Output(kind, pattern, place, count=kind.length)
        length = self._slot(wanted)
        steps.append(SpanStep(pattern, element.size, kind.bound, place, length))
        return Output(kind, pattern, place, length)

    def _is_fixed(self, kind: FieldType) -> bool:
        if isinstance(kind, PrimitiveType):
            return True
        if isinstance(kind, StringType):
            return False
        if isinstance(kind, ListType):
            return kind.length is not None and self._is_fixed(kind.element)
        return all(self._is_fixed(f.type) for f in self._structs[kind.name].fields)


def _append(steps: list[Step], item: Item) -> None:
    if steps and isinstance(steps[-1], Run):
        steps[-1].items.append(item)
    else:
        steps.append(Run([item]))


def _alignments(steps: Sequence[Step]) -> tuple[int, int]:
    """Return the first and the widest alignment of a program of fixed layout."""
    first, widest = 0, 1
    for step in steps:
        if isinstance(step, Run):
            here, most = step.items[0].align, max(item.align for item in step.items)
        else:
            assert isinstance(step, FixedListStep)
            here, most = step.first_align, step.widest_align
        first, widest = first or here, max(widest, most)
    return first, widest


def end_of(steps: Sequence[Step], position: int) -> int:
    """Return the position behind a value of fixed layout that starts at ``position``."""
    for step in steps:
        if isinstance(step, Run):
            for item in step.items:
                position += -position % item.align + item.size
        else:
            assert isinstance(step, FixedListStep)
            assert step.count is not None
            position += list_bytes(step, position, step.count)
    return position


def list_bytes(step: FixedListStep, position: int, count: int) -> int:
    """Return the bytes that ``count`` >= 1 elements take from ``position``."""
    first = step.ends[position % 8]
    return first + (count - 1) * step.ends[(position + first) % 8]
