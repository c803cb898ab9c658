# SPDX-License-Identifier: Apache-2.0
"""Walks many bodies at once: every step of a program is array arithmetic over all messages.

As long as all messages have the same layout the cursor is one integer; the first string or
sequence whose length differs turns it into an array of positions. Lists of variable-size elements
are walked element by element for all messages together, and the last few messages of such a list,
where arrays no longer pay, by generated straight-line code (:mod:`.scan`).

Every check of the structure is made here, for the whole message. A message that fails one is
*parked*: it takes no further part, and reads on its behalf are clamped into the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from thadam_ros.decode import wire
from thadam_ros.decode.cursor import (
    Bools,
    Cursor,
    Ints,
    Pos,
    Scope,
    fixed_list_end,
    ragged_range,
    walk_run,
)
from thadam_ros.decode.plan import (
    UNWANTED,
    FixedListStep,
    LoopStep,
    Run,
    SpanStep,
    Step,
    StringStep,
)
from thadam_ros.decode.scan import Scanner, Stop

#: Below this many messages generated code beats arrays (measured on lists of strings).
SCAN_ROWS_MAX: Final = 80

Bytes = npt.NDArray[np.uint8]
Scanners = dict[tuple[int, bool], Scanner]


class Walker:
    """One pass over bodies of one endianness.

    Attributes:
        dead: bool[n], the body is malformed.
        errors: Message number -> (code, reason), for the dead.
        trailing: int64[n], bytes behind the message.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        payload: npt.NDArray[np.uint8],
        little: bool,
        scanners: Scanners,
        scan_rows_max: int = SCAN_ROWS_MAX,
    ) -> None:
        """Prepare; ``payload`` has at least 8 bytes, ``scanners`` caches generated code."""
        self._steps = steps
        self._payload = payload
        self._little = little
        self._scanners = scanners
        self._scan_rows_max = scan_rows_max
        order = "<u4" if little else ">u4"
        self._words = np.ndarray((payload.size - 3,), order, payload, strides=(1,))
        self._any_dead = False
        self.dead: Bools = np.zeros(0, np.bool_)
        self.errors: dict[int, tuple[str, str]] = {}
        self.trailing: Ints = np.zeros(0, np.int64)

    def walk(self, body: Ints, room: Ints) -> Scope | None:
        """Walk the bodies ``payload[body[i] : body[i] + room[i]]``.

        Returns:
            The message scope with all wanted slots, or None when a message is dead (walk the
            others again to get theirs).
        """
        count = len(body)
        self.dead = np.zeros(count, np.bool_)
        cursor = Cursor(np.arange(count), body, room, _stride(body))
        scope = Scope(count, blocks={})
        self._walk(self._steps, cursor, scope)
        self._check_end(cursor, cursor.pos)
        self.trailing = room - cursor.pos
        return None if self._any_dead else scope

    def _walk(self, steps: Sequence[Step], cursor: Cursor, scope: Scope) -> None:
        for step in steps:
            if isinstance(step, Run):
                walk_run(step, cursor, scope)
            elif isinstance(step, StringStep):
                self._string(step, cursor, scope)
            elif isinstance(step, SpanStep):
                self._span(step, cursor, scope)
            elif isinstance(step, FixedListStep):
                self._fixed_list(step, cursor, scope)
            else:
                self._loop(step, cursor, scope)

    # Checks

    def _check(
        self, cursor: Cursor, bad: Bools | Bytes, code: str, reason: Callable[[int], str]
    ) -> None:
        """Park the messages of ``bad``; ``reason`` gets an index into the cursor's messages."""
        if not np.count_nonzero(bad):
            return
        for index in np.flatnonzero(bad).tolist():
            row = int(cursor.rows[index])
            if not self.dead[row]:
                self.dead[row] = True
                self.errors[row] = (code, reason(index))
        self._any_dead = True

    def _check_end(self, cursor: Cursor, end: Pos) -> None:
        room = cursor.room
        self._check(
            cursor,
            end > room,
            wire.TRUNCATED,
            lambda i: wire.truncated_reason(int(room[i]) + wire.HEADER_BYTES),
        )

    def _check_at(
        self,
        cursor: Cursor,
        bad: Bools | Bytes,
        code: str,
        reason: Callable[[str, int], str],
        pattern: str,
    ) -> None:
        """Park with a reason that names the field and the place of the cursor."""
        pos = cursor.pos

        def at(index: int) -> str:
            place = pos if isinstance(pos, int) else int(pos[index])
            return reason(pattern, place + wire.HEADER_BYTES)

        self._check(cursor, bad, code, at)

    def _harmless(self, cursor: Cursor, values: Ints, parked: int) -> Ints:
        """Replace what was read on behalf of parked messages."""
        if self._any_dead:
            return np.where(self.dead[cursor.rows], parked, values)
        return values

    def _length(self, cursor: Cursor, parked: int) -> Ints:
        """Align, read a uint32 and leave the cursor before it."""
        cursor.align(4)
        self._check_end(cursor, cursor.pos + 4)
        index = cursor.body + cursor.pos
        if self._any_dead:
            np.minimum(index, self._words.size - 1, out=index)
        return self._harmless(cursor, self._words[index].astype(np.int64), parked)

    def _count(
        self, step: SpanStep | FixedListStep | LoopStep, minimum: int, cursor: Cursor
    ) -> Ints:
        """Read the length of a sequence, check it, and move behind it."""
        counts = self._length(cursor, 0)
        if step.bound is not None:
            bad = counts > step.bound
            self._check_at(cursor, bad, wire.LENGTH, wire.bound_reason, step.pattern)
        bad = counts * minimum > cursor.room - (cursor.pos + 4)
        self._check_at(cursor, bad, wire.LENGTH, wire.length_reason, step.pattern)
        cursor.jump(cursor.pos + 4, 4)
        return self._harmless(cursor, counts, 0)

    # Steps

    def _string(self, step: StringStep, cursor: Cursor, scope: Scope) -> None:
        terminator = 0 if step.wide else 1
        lengths = self._length(cursor, terminator)
        pos = cursor.pos
        if terminator:
            bad = lengths == 0
            self._check_at(cursor, bad, wire.STRING, wire.empty_string_reason, step.pattern)
        if step.bound is not None:
            bad = lengths - terminator > step.bound
            self._check_at(cursor, bad, wire.LENGTH, wire.string_bound_reason, step.pattern)
        size = _uniform(lengths) if isinstance(pos, int) else lengths
        end = (size * 4 if step.wide else size) + (pos + 4)
        self._check_end(cursor, end)
        if terminator:
            last = cursor.body + (end - 1)
            if self._any_dead:
                np.clip(last, 0, self._payload.size - 1, out=last)
            bad = self._payload[last]
            self._check_at(cursor, bad, wire.STRING, wire.terminator_reason, step.pattern)
        if step.position != UNWANTED:
            scope.slots[step.position] = cursor.body + (pos + 4)
            scope.slots[step.length] = lengths - terminator
        cursor.jump(end, 4 if step.wide else 1)

    def _span(self, step: SpanStep, cursor: Cursor, scope: Scope) -> None:
        counts = self._count(step, step.size, cursor)
        pos = cursor.pos
        start: Pos = pos
        end: Pos
        if isinstance(pos, int) and isinstance(count := _uniform(counts), int):
            start = pos + (-pos % step.size if count else 0)
            end = start + count * step.size
        else:
            if step.size > 4:
                # An empty sequence is not followed by the padding of its elements.
                start = np.where(counts > 0, (pos + (step.size - 1)) & -step.size, pos)
            end = counts * step.size + start
        self._check_end(cursor, end)
        if step.position != UNWANTED:
            scope.slots[step.position] = cursor.body + start
            scope.slots[step.length] = counts
        cursor.jump(end, min(4, step.size))

    def _fixed_list(self, step: FixedListStep, cursor: Cursor, scope: Scope) -> None:
        if step.count is None:
            counts = self._count(step, step.minimum, cursor)
        else:
            counts = np.full(cursor.rows.size, step.count, np.int64)
        ends = fixed_list_end(step, cursor, counts, scope)
        self._check_end(cursor, ends)
        cursor.jump(_uniform(ends) if isinstance(cursor.pos, int) else ends, 1)

    def _loop(self, step: LoopStep, cursor: Cursor, scope: Scope) -> None:
        if step.count is None:
            counts = self._count(step, step.minimum, cursor)
        else:
            counts = np.full(cursor.rows.size, step.count, np.int64)
        places: list[Ints] = []
        parts: list[Scope] = []
        self._elements(step, cursor, counts, places, parts)
        if step.length == UNWANTED or self._any_dead:
            return
        scope.slots[step.length] = counts
        if parts:
            scope.children[step.length] = Scope.assemble(places, parts)
        else:
            collected = self._scanner(step).start(self._payload)
            scope.children[step.length] = collected.scope(0)

    def _elements(
        self,
        step: LoopStep,
        cursor: Cursor,
        counts: Ints,
        places: list[Ints],
        parts: list[Scope],
    ) -> None:
        """Walk the elements of one list of every message; move the cursor behind the lists."""
        size = cursor.rows.size
        firsts = np.cumsum(counts) - counts
        lasts = np.array(np.broadcast_to(np.asarray(cursor.pos, np.int64), (size,)))
        active = cursor.copy()
        index = np.arange(size)
        done = 0
        while True:
            if (
                index.size == size
                and not self._any_dead
                and np.count_nonzero(counts == done) == size
            ):
                cursor.pos = active.pos
                cursor.modulus, cursor.residue = active.known()
                return
            going = counts[index] > done
            if self._any_dead:
                going &= ~self.dead[active.rows]
            if np.count_nonzero(going) < going.size:
                lasts[index] = active.pos
                active, index = active.select(going), index[going]
            if index.size < self._scan_rows_max:
                break
            part = Scope(index.size)
            self._walk(step.elements, active, part)
            places.append(firsts[index] + done)
            parts.append(part)
            done += 1
        if index.size:
            left = counts[index] - done
            self._scan(step, active, index, left, lasts, parts)
            if not self._any_dead:
                places.append(ragged_range(firsts[index] + done, left))
        cursor.jump(lasts, 1)

    def _scan(
        self,
        step: LoopStep,
        active: Cursor,
        index: Ints,
        left: Ints,
        lasts: Ints,
        parts: list[Scope],
    ) -> None:
        """Walk what is left of the lists of a few messages by generated code."""
        collected = self._scanner(step).start(self._payload)
        positions = np.broadcast_to(np.asarray(active.pos), index.shape)
        for at, row, body, room, pos, count in zip(
            index.tolist(),
            active.rows.tolist(),
            active.body.tolist(),
            active.room.tolist(),
            positions.tolist(),
            left.tolist(),
            strict=True,
        ):
            try:
                lasts[at] = collected.scan(body, pos, room, count)
            except Stop as stop:
                self.dead[row] = True
                self.errors[row] = (stop.code, stop.reason)
                self._any_dead = True
        if not self._any_dead:
            parts.append(collected.scope(int(left.sum())))

    def _scanner(self, step: LoopStep) -> Scanner:
        key = (step.number, self._little)
        if key not in self._scanners:
            self._scanners[key] = Scanner(step, self._little)
        return self._scanners[key]


def _stride(body: Ints) -> int:
    """Return the distance of neighbouring bodies when it is the same for all, else 0."""
    if body.size < 2:
        return 0
    step = int(body[1]) - int(body[0])
    return step if step > 0 and bool((np.diff(body) == step).all()) else 0


def _uniform(values: Ints) -> Pos:
    """Return the one value as an int when all are the same."""
    if values.size and np.count_nonzero(values == values[0]) == values.size:
        return int(values[0])
    return values
