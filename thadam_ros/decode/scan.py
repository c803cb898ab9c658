# SPDX-License-Identifier: Apache-2.0
"""Generated straight-line code that walks a list of variable-size elements of one message.

It makes the same checks as :mod:`.walk`, element by element, and appends what it finds to one
Python list per slot. Nothing of a definition gets into the source but integers: field names stay
in a tuple beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from thadam_ros.decode import wire
from thadam_ros.decode.cursor import Scope
from thadam_ros.decode.plan import (
    UNWANTED,
    FixedListStep,
    LoopStep,
    Run,
    SpanStep,
    Step,
    StringStep,
)


class Stop(Exception):  # noqa: N818 - control flow of generated code, never leaves the package
    """The structure is broken here."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason


class Collected:
    """What one use of a scanner has found; ``scan(body, pos, room, elements)`` returns the end."""

    def __init__(
        self,
        steps: Sequence[Step],
        lists: dict[int, list[int]],
        scan: Callable[[int, int, int, int], int],
    ) -> None:
        self._steps = steps
        self._lists = lists
        self.scan = scan

    def scope(self, size: int) -> Scope:
        """Return the scope of the ``size`` elements scanned."""
        return self._scope(self._steps, size)

    def _scope(self, steps: Sequence[Step], size: int) -> Scope:
        scope = Scope(size)
        for slot in _slots(steps):
            scope.slots[slot] = np.array(self._lists[slot], np.int64)
        for step in steps:
            if isinstance(step, LoopStep) and step.length != UNWANTED:
                total = int(scope.slots[step.length].sum())
                scope.children[step.length] = self._scope(step.elements, total)
        return scope


class Scanner:
    """Generated code for the elements of one loop in one endianness."""

    def __init__(self, step: LoopStep, little: bool) -> None:
        self._steps = step.elements
        self._word = struct.Struct("<I" if little else ">I").unpack_from
        emitter = _Emitter()
        emitter.function(step.elements)
        self.source = "\n".join(emitter.lines)
        self._patterns = tuple(emitter.patterns)
        self._tables = tuple(emitter.tables)
        self._all_slots = tuple(_all_slots(step.elements))
        names: dict[str, Any] = {"fail": _FAILURES}
        exec(compile(self.source, f"<scan {step.number}>", "exec"), names)
        self._make = names["make"]

    def start(self, payload: npt.NDArray[np.uint8]) -> Collected:
        """Begin to collect from ``payload``."""
        lists: dict[int, list[int]] = {slot: [] for slot in self._all_slots}
        appends = {slot: found.append for slot, found in lists.items()}
        scan = self._make(payload.data, self._word, self._patterns, self._tables, appends)
        return Collected(self._steps, lists, scan)


def _slots(steps: Sequence[Step]) -> Iterator[int]:
    """Wanted slots of one scope."""
    for step in steps:
        found: tuple[int, ...]
        if isinstance(step, Run):
            found = tuple(item.slot for item in step.items)
        elif isinstance(step, FixedListStep):
            found = (step.position, step.length, step.phase)
        elif isinstance(step, LoopStep):
            found = (step.length,)
        else:
            found = (step.position, step.length)
        yield from (slot for slot in found if slot != UNWANTED)


def _all_slots(steps: Sequence[Step]) -> Iterator[int]:
    """Wanted slots of a scope and of the loops in it."""
    yield from _slots(steps)
    for step in steps:
        if isinstance(step, LoopStep):
            yield from _all_slots(step.elements)


class _Emitter:
    """Writes the source; tracks what is known of ``pos`` as :class:`.cursor.Cursor` does."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.patterns: list[str] = []
        self.tables: list[tuple[int, ...]] = []
        self._depth = 0
        self._modulus = 1
        self._residue = 0

    def function(self, steps: Sequence[Step]) -> None:
        self._emit("def make(buf, word, patterns, tables, appends):")
        self._depth += 1
        for slot in _all_slots(steps):
            self._emit(f"a{slot} = appends[{slot}]")
        self._emit("def scan(body, pos, room, left0):")
        self._depth += 1
        self._for("left0", steps, 0)
        self._emit("return pos")
        self._depth -= 1
        self._emit("return scan")
        self._depth -= 1

    def _emit(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def _for(self, count: str, steps: Sequence[Step], level: int) -> None:
        self._emit(f"for _ in range({count}):")
        self._depth += 1
        self._modulus, self._residue = 1, 0
        for step in steps:
            self._step(step, level)
        self._depth -= 1
        self._modulus, self._residue = 1, 0

    def _step(self, step: Step, level: int) -> None:
        if isinstance(step, Run):
            self._run(step)
        elif isinstance(step, StringStep):
            self._string(step)
        elif isinstance(step, SpanStep):
            self._span(step)
        elif isinstance(step, FixedListStep):
            self._fixed_list(step)
        else:
            self._loop(step, level + 1)

    def _align(self, to: int) -> None:
        if to > self._modulus:
            self._emit(f"pos = (pos + {to - 1}) & -{to}")
            self._modulus, self._residue = to, 0
        elif pad := -self._residue % to:
            self._emit(f"pos += {pad}")
            self._residue = (self._residue + pad) % self._modulus

    def _fail(self, condition: str, name: str, step: Any, where: str) -> None:
        self.patterns.append(getattr(step, "pattern", ""))
        call = f"fail[{name!r}](patterns[{len(self.patterns) - 1}], {where})"
        self._emit(f"if {condition}: {call}")

    def _run(self, step: Run) -> None:
        segments, modulus, residue = step.segments(self._modulus, self._residue)
        for segment in segments:
            if segment.align:
                self._emit(f"pos = (pos + {segment.align - 1}) & -{segment.align}")
            for slot, offset in segment.captures:
                self._emit(f"a{slot}(body + pos + {offset})")
            if segment.size:
                self._emit(f"pos += {segment.size}")
        self._modulus, self._residue = modulus, residue
        # The next length or the end of the loop body checks what the run has passed.
        self._fail("pos > room", "truncated", step, "room")

    def _length(self, step: Any) -> None:
        self._align(4)
        self._fail("pos + 4 > room", "truncated", step, "room")
        self._emit("n = word(buf, body + pos)[0]")

    def _count(self, step: Any, minimum: int) -> None:
        self._length(step)
        if step.bound is not None:
            self._fail(f"n > {step.bound}", "bound", step, "pos")
        self._fail(f"n * {minimum} > room - pos - 4", "length", step, "pos")
        self._emit("pos += 4")
        self._modulus, self._residue = 4, 0

    def _string(self, step: StringStep) -> None:
        self._length(step)
        terminator = 0 if step.wide else 1
        if not step.wide:
            self._fail("n == 0", "empty", step, "pos")
        if step.bound is not None:
            self._fail(f"n > {step.bound + terminator}", "string_bound", step, "pos")
        self._emit(f"end = pos + 4 + n{' * 4' if step.wide else ''}")
        self._fail("end > room", "truncated", step, "room")
        if not step.wide:
            self._fail("buf[body + end - 1]", "terminator", step, "pos")
        if step.position != UNWANTED:
            self._emit(f"a{step.position}(body + pos + 4)")
            self._emit(f"a{step.length}(n{' - 1' if terminator else ''})")
        self._emit("pos = end")
        self._modulus, self._residue = (4 if step.wide else 1), 0

    def _span(self, step: SpanStep) -> None:
        self._count(step, step.size)
        if step.size > 4:
            self._emit(f"if n: pos = (pos + {step.size - 1}) & -{step.size}")
        if step.position != UNWANTED:
            self._emit(f"a{step.position}(body + pos)")
            self._emit(f"a{step.length}(n)")
        self._emit(f"pos += n * {step.size}")
        self._fail("pos > room", "truncated", step, "room")
        self._modulus, self._residue = min(4, step.size), 0

    def _fixed_list(self, step: FixedListStep) -> None:
        if step.count is None:
            self._count(step, step.minimum)
        else:
            self._emit(f"n = {step.count}")
        if step.position != UNWANTED:
            self._emit(f"a{step.position}(body + pos)")
            self._emit(f"a{step.length}(n)")
            self._emit(f"a{step.phase}(pos & 7)")
        self.tables.append(step.ends)
        self._emit("if n:")
        self._depth += 1
        self._emit(f"ends = tables[{len(self.tables) - 1}]")
        self._emit("pos += ends[pos & 7]")
        self._emit("pos += (n - 1) * ends[pos & 7]")
        self._depth -= 1
        self._fail("pos > room", "truncated", step, "room")
        self._modulus, self._residue = 1, 0

    def _loop(self, step: LoopStep, level: int) -> None:
        if step.count is None:
            self._count(step, step.minimum)
        else:
            self._emit(f"n = {step.count}")
        if step.length != UNWANTED:
            self._emit(f"a{step.length}(n)")
        self._for("n", step.elements, level)


def _stop(code: str, reason: Callable[[str, int], str]) -> Callable[[str, int], NoReturn]:
    def stop(pattern: str, pos: int) -> NoReturn:
        raise Stop(code, reason(pattern, pos + wire.HEADER_BYTES))

    return stop


_FAILURES = {
    "truncated": _stop(wire.TRUNCATED, lambda _, payload: wire.truncated_reason(payload)),
    "empty": _stop(wire.STRING, wire.empty_string_reason),
    "terminator": _stop(wire.STRING, wire.terminator_reason),
    "string_bound": _stop(wire.LENGTH, wire.string_bound_reason),
    "bound": _stop(wire.LENGTH, wire.bound_reason),
    "length": _stop(wire.LENGTH, wire.length_reason),
}
