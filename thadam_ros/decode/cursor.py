# SPDX-License-Identifier: Apache-2.0
"""Positions of many messages at once, and the scopes that collect what a walk finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from thadam_ros.decode.plan import UNWANTED, FixedListStep, Run, Step

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Pos = int | Ints


@dataclass(slots=True)
class Cursor:
    """Where each of m bodies is being read.

    Attributes:
        rows: int64[m] message numbers.
        body: int64[m] index of the first body byte in the payload buffer.
        room: int64[m] bytes in the body.
        stride: Distance of neighbouring bodies in the buffer when it is the same for all, else 0.
        pos: Position in the body; an int as long as it is the same for all.
        modulus, residue: ``pos % modulus == residue`` is known when ``pos`` is an array.
    """

    rows: Ints
    body: Ints
    room: Ints
    stride: int = 0
    pos: Pos = 0
    modulus: int = 8
    residue: int = 0

    def align(self, to: int) -> None:
        """Move to the next multiple of ``to``."""
        if isinstance(self.pos, int):
            self.pos += -self.pos % to
        elif to <= self.modulus:
            if pad := -self.residue % to:
                self.pos = self.pos + pad
                self.residue = (self.residue + pad) % self.modulus
        else:
            self.pos = (self.pos + (to - 1)) & -to
            self.modulus, self.residue = to, 0

    def jump(self, pos: Pos, modulus: int) -> None:
        """Move to ``pos``, a multiple of ``modulus``."""
        self.pos, self.modulus, self.residue = pos, modulus, 0

    def known(self) -> tuple[int, int]:
        """Return modulus and residue of the position."""
        if isinstance(self.pos, int):
            return 8, self.pos % 8
        return self.modulus, self.residue

    def copy(self) -> Cursor:
        """Return a cursor that moves independently."""
        return Cursor(
            self.rows, self.body, self.room, self.stride, self.pos, self.modulus, self.residue
        )

    def select(self, mask: Bools) -> Cursor:
        """Return the messages of ``mask`` alone."""
        pos = self.pos if isinstance(self.pos, int) else self.pos[mask]
        return Cursor(
            self.rows[mask], self.body[mask], self.room[mask], 0, pos, self.modulus, self.residue
        )


@dataclass(slots=True)
class Block:
    """A stretch of fixed layout in every message: one copy serves several wanted members.

    Attributes:
        places: int64[m] index of its first byte in the payload buffer.
        size: Bytes.
        stride: Distance of neighbouring places when it is the same for all, else 0.
        matrix: uint8[m, size], once it has been gathered.
    """

    places: Ints
    size: int
    stride: int
    matrix: npt.NDArray[np.uint8] | None = None


@dataclass(slots=True)
class Scope:
    """What was found for ``size`` messages or list elements.

    Attributes:
        slots: Slot -> int64[size]: indices into the payload buffer, counts or phases.
        children: Length slot of a loop -> scope of the elements of those lists, in order.
        blocks: Slot -> (block, offset in it), instead of ``slots`` for members of runs. None in
            scopes that are parts of others: these are reordered, blocks are not.
    """

    size: int
    slots: dict[int, Ints] = field(default_factory=dict)
    children: dict[int, Scope] = field(default_factory=dict)
    blocks: dict[int, tuple[Block, int]] | None = None

    @staticmethod
    def assemble(places: Sequence[Ints], parts: Sequence[Scope]) -> Scope:
        """Put entry i of ``parts[k]`` at ``places[k][i]``; the places are a permutation."""
        first = parts[0]
        joined = Scope(sum(part.size for part in parts))
        for slot in first.slots:
            values = np.empty(joined.size, np.int64)
            for place, part in zip(places, parts, strict=True):
                values[place] = part.slots[slot]
            joined.slots[slot] = values
        for slot in first.children:
            counts = joined.slots[slot]
            firsts = np.cumsum(counts) - counts
            joined.children[slot] = Scope.assemble(
                [
                    ragged_range(firsts[place], part.slots[slot])
                    for place, part in zip(places, parts, strict=True)
                ],
                [part.children[slot] for part in parts],
            )
        return joined


def ragged_range(firsts: Ints, counts: Ints) -> Ints:
    """Return ``firsts[0], firsts[0] + 1, ...``: ``counts[i]`` numbers from ``firsts[i]`` each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    return np.repeat(firsts - (ends - counts), counts) + np.arange(total)


def walk_run(step: Run, cursor: Cursor, scope: Scope) -> None:
    """Move behind a run and note the places in it."""
    segments, modulus, residue = step.segments(*cursor.known())
    for segment in segments:
        if segment.align:
            cursor.align(segment.align)
        pos = cursor.pos
        if scope.blocks is None:
            for slot, offset in segment.captures:
                scope.slots[slot] = cursor.body + (pos + offset)
        else:
            stride = cursor.stride if isinstance(pos, int) else 0
            for cluster in segment.clusters:
                block = Block(cursor.body + (pos + cluster.offset), cluster.size, stride)
                for slot, offset in cluster.members:
                    scope.blocks[slot] = block, offset
        cursor.pos = pos + segment.size
    cursor.modulus, cursor.residue = modulus, residue


def fixed_list_end(step: FixedListStep, cursor: Cursor, counts: Ints, scope: Scope) -> Ints:
    """Note the places of lists of fixed-layout structures; return the positions behind them."""
    pos = cursor.pos
    ends = np.array(step.ends, np.int64)
    phase = np.broadcast_to(np.asarray(pos, np.int64) & 7, counts.shape)
    first = ends[phase]
    if step.position != UNWANTED:
        scope.slots[step.position] = cursor.body + pos
        scope.slots[step.length] = counts
        scope.slots[step.phase] = phase
    return np.where(counts > 0, pos + first + (counts - 1) * ends[(phase + first) & 7], pos)


def expand_fixed(step: FixedListStep, scope: Scope) -> Scope:
    """Return the scope of the elements of the fixed-layout lists in ``scope``."""
    counts, phase = scope.slots[step.length], scope.slots[step.phase]
    ends = np.array(step.ends, np.int64)
    first = ends[phase]
    rest = ends[(phase + first) & 7]
    number = ragged_range(np.zeros_like(counts), counts)
    offset = np.where(
        number > 0, np.repeat(first - rest, counts) + number * np.repeat(rest, counts), 0
    )
    offset += np.repeat(phase, counts)
    base = np.repeat(scope.slots[step.position] - phase, counts)
    if step.first_align == step.widest_align:
        # Every element looks the same from its first member on.
        offset = (offset + (step.first_align - 1)) & -step.first_align
        cursor = Cursor(base, base + offset, base)
    else:
        cursor = Cursor(base, base, base, 0, offset, 1, 0)
    elements = Scope(base.size, blocks={})
    walk_fixed(step.elements, cursor, elements)
    return elements


def walk_fixed(steps: Sequence[Step], cursor: Cursor, scope: Scope) -> None:
    """Walk a program of fixed layout; nothing to check, its end was checked as a whole."""
    for step in steps:
        if isinstance(step, Run):
            walk_run(step, cursor, scope)
        else:
            assert isinstance(step, FixedListStep)
            assert step.count is not None
            counts = np.full(cursor.body.size, step.count, np.int64)
            cursor.jump(fixed_list_end(step, cursor, counts, scope), 1)
