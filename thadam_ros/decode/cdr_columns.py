# SPDX-License-Identifier: Apache-2.0
"""Fast CDR decoder: many messages of one type at once, into Arrow columns (spec 3.4).

Three stages without Python per message: headers are judged; :mod:`.walk` checks every structure
and finds the places of the wanted values; :mod:`.arrays` gathers them. A malformed message costs
only itself: the others are walked again without it. Held equal to :mod:`.cdr_reference`, values,
codes and reasons, by property tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thadam_ros.decode import wire
from thadam_ros.decode.arrays import ArrayBuilder, Level
from thadam_ros.decode.columns import DecodedColumns
from thadam_ros.decode.cursor import Bools, Ints
from thadam_ros.decode.estimate import is_estimate, may_be_overestimated
from thadam_ros.decode.plan import compile_program
from thadam_ros.decode.schema import MessageSchema, StringType
from thadam_ros.decode.walk import SCAN_ROWS_MAX, Scanners, Walker

#: Arrow's string and list offsets are int32.
PAYLOAD_BYTES_MAX = (1 << 31) - 1
_PADDED_BYTES = 16


class CdrColumnDecoder:
    """Decoder of one message type for a fixed set of wanted values; may be shared by threads."""

    def __init__(
        self,
        schema: MessageSchema,
        pointers: Sequence[str],
        *,
        scan_rows_max: int = SCAN_ROWS_MAX,
    ) -> None:
        """Compile the program for ``pointers``.

        Args:
            schema: The message definition.
            pointers: RFC 6901 pointers over field names; ``""`` is the whole message.
            scan_rows_max: Lists of fewer messages are walked by generated code (for tests).

        Raises:
            RecordError: ``schema.pointer_unknown``.
        """
        self._schema = schema
        self._program = compile_program(schema, pointers)
        self._overestimated = may_be_overestimated(schema)
        self._types = {pointer: schema.arrow_type(pointer) for pointer in pointers}
        self._scanners: Scanners = {}
        self._scan_rows_max = max(1, scan_rows_max)

    @property
    def pointers(self) -> tuple[str, ...]:
        """The wanted values."""
        return tuple(self._types)

    def decode(self, payload: npt.NDArray[np.uint8], starts: Ints, ends: Ints) -> DecodedColumns:
        """Decode the messages ``payload[starts[i] : ends[i]]``, encapsulation headers included.

        Args:
            payload: uint8 buffer, contiguous, below 2 GiB.
            starts: int64[n]; ascending, non-overlapping messages are fastest.
            ends: int64[n].

        Raises:
            ValueError: Buffer or messages have 2 GiB or more, or a message ends behind the buffer.
        """
        size = max(payload.size, int((ends - starts).sum()))
        if size > PAYLOAD_BYTES_MAX:
            raise ValueError(f"{size} bytes are too many for one call: decode in parts")
        if len(ends) and int(ends.max()) > payload.size:
            raise ValueError("a message ends behind its buffer")
        if payload.size < _PADDED_BYTES:
            payload = np.concatenate([payload, np.zeros(_PADDED_BYTES, np.uint8)])
        result = _Result(len(starts), self._types)
        little, big = _judge_headers(payload, starts, ends, result)
        for rows, is_little in ((little, True), (big, False)):
            if rows.size:
                body = starts[rows] + wire.HEADER_BYTES
                self._decode_rows(payload, rows, body, ends[rows] - body, is_little, result)
        return result.finish()

    def _walker(self, payload: npt.NDArray[np.uint8], little: bool) -> Walker:
        return Walker(self._program.steps, payload, little, self._scanners, self._scan_rows_max)

    def _decode_rows(
        self,
        payload: npt.NDArray[np.uint8],
        rows: Ints,
        body: Ints,
        room: Ints,
        little: bool,
        result: _Result,
    ) -> None:
        """Decode messages of one endianness."""
        walker = self._walker(payload, little)
        scope = walker.walk(body, room)
        if scope is None:
            self._blame(walker, payload, rows, body, room, little, result)
            alive = ~walker.dead
            rows, body, room = rows[alive], body[alive], room[alive]
            if not rows.size:
                return
            walker = self._walker(payload, little)
            scope = walker.walk(body, room)
            assert scope is not None, "a message is malformed only beside others"
        builder = ArrayBuilder(payload, little)
        level = Level(scope)
        columns = {p: builder.build(self._program.outputs[p], level) for p in self._types}
        surplus = self._surplus(payload, walker.trailing, body, room, little)
        result.add(rows, columns, surplus)
        self._content(builder, rows, result)

    def _surplus(
        self,
        payload: npt.NDArray[np.uint8],
        trailing: Ints,
        body: Ints,
        room: Ints,
        little: bool,
    ) -> Bools:
        """Tell which messages are followed by more than padding."""
        surplus: Bools = (trailing > wire.PADDING_BYTES_MAX) | ((trailing > 0) & (room % 4 != 0))
        if self._overestimated:
            for number in np.flatnonzero(surplus).tolist():
                start = int(body[number]) - wire.HEADER_BYTES
                raw = payload[start : int(body[number] + room[number])].tobytes()
                surplus[number] = not is_estimate(self._schema, raw, little)
        return surplus

    def _blame(
        self,
        walker: Walker,
        payload: npt.NDArray[np.uint8],
        rows: Ints,
        body: Ints,
        room: Ints,
        little: bool,
        result: _Result,
    ) -> None:
        """Record structural errors; those of a header that lies about endianness have a code."""
        dead = np.flatnonzero(walker.dead)
        other = self._walker(payload, not little)
        other.walk(body[dead], room[dead])
        for index, number in enumerate(dead.tolist()):
            code, reason = walker.errors[number]
            trailing = int(other.trailing[index])
            payload_bytes = int(room[number]) + wire.HEADER_BYTES
            if not other.dead[index] and not wire.is_surplus(trailing, payload_bytes):
                code, reason = wire.ENDIANNESS, wire.endianness_reason(little, reason)
            result.errors[int(rows[number])] = (code, reason)

    def _content(self, builder: ArrayBuilder, rows: Ints, result: _Result) -> None:
        """Record content errors: text before booleans, each by field in schema order."""
        if not builder.bad:
            return
        for text in (True, False):
            for pattern, kind in self._program.scalars:
                messages = builder.bad.get(pattern)
                if messages is None or isinstance(kind, StringType) != text:
                    continue
                if isinstance(kind, StringType):
                    error = (wire.STRING, wire.text_reason(pattern, kind.wide))
                else:
                    error = (wire.BOOLEAN, wire.boolean_reason(pattern))
                for row in rows[np.unique(messages)].tolist():
                    result.errors.setdefault(row, error)


class _Result:
    """Collects columns of parts of the messages, then puts them into the given order."""

    def __init__(self, n: int, types: Mapping[str, pa.DataType]) -> None:
        self._n = n
        self._types = types
        self._rows: list[Ints] = []
        self._columns: list[dict[str, pa.Array]] = []
        self._surplus = np.zeros(n, np.bool_)
        self.errors: dict[int, tuple[str, str]] = {}

    def add(self, rows: Ints, columns: dict[str, pa.Array], surplus: Bools) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._surplus[rows] = surplus

    def finish(self) -> DecodedColumns:
        ok = np.ones(self._n, np.bool_)
        if self.errors:
            ok[list(self.errors)] = False
            self._surplus &= ok
        columns: dict[str, pa.Array]
        if not self._rows:
            columns = {p: pa.nulls(self._n, kind) for p, kind in self._types.items()}
        elif len(self._rows) == 1 and not self.errors:
            columns = self._columns[0]
        else:
            columns = self._in_order(ok)
        errors = dict(sorted(self.errors.items()))
        return DecodedColumns(self._n, columns, ok, errors, self._surplus)

    def _in_order(self, ok: Bools) -> dict[str, pa.Array]:
        place = np.zeros(self._n, np.int64)
        rows = np.concatenate(self._rows)
        place[rows] = np.arange(rows.size)
        index = pa.array(place, mask=~ok)
        return {
            pointer: pa.concat_arrays([part[pointer] for part in self._columns]).take(index)
            for pointer in self._types
        }


def _judge_headers(
    payload: npt.NDArray[np.uint8], starts: Ints, ends: Ints, result: _Result
) -> tuple[Ints, Ints]:
    """Record bad headers; return the message numbers of little- and big-endian payloads."""
    first = np.minimum(starts, payload.size - 2)
    long_enough = ends - starts >= wire.HEADER_BYTES
    plain = long_enough & (payload[first] == 0)
    flag = payload[first + 1]
    little, big = plain & (flag == 1), plain & (flag == 0)
    for row in np.flatnonzero(~(little | big)).tolist():
        start = int(starts[row])
        head = payload[start : min(int(ends[row]), start + wire.HEADER_BYTES)].tobytes()
        error = wire.header_error(head)
        assert error is not None
        result.errors[row] = error
    return np.flatnonzero(little), np.flatnonzero(big)
