# SPDX-License-Identifier: Apache-2.0
"""Keyed state of a step: bounded, in order of first appearance, undone when a run fails."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from thadam_ros.transforms.rows import Rows

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Index = npt.NDArray[np.int64]

_ABSENT = object()


class KeyedState(Generic[K, V]):
    """At most ``keys_max`` keys; the one that appeared first leaves first.

    Changes are journalled until ``commit``, so a group that raised leaves no trace.

    Attributes:
        evicted: Keys that had to leave, since the start of the pipeline.
    """

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.evicted = 0
        self._map: OrderedDict[K, V] = OrderedDict()
        self._journal: list[tuple[str, K, object]] = []

    def __len__(self) -> int:
        return len(self._map)

    def __contains__(self, key: K) -> bool:
        return key in self._map

    def get(self, key: K) -> V | None:
        """Return the value of a key, None when it is unknown."""
        return self._map.get(key)

    def put(self, key: K, value: V) -> None:
        """Set a key; a new one joins at the end and makes the first leave when all are taken."""
        old = self._map.get(key, _ABSENT)
        if old is _ABSENT and len(self._map) >= self.keys_max:
            self.evicted += 1
            self.pop_first("evicted")
        self._journal.append(("put", key, old))
        self._map[key] = value

    def first(self) -> tuple[K, V]:
        """Return the key that appeared first."""
        return next(iter(self._map.items()))

    def pop_first(self, why: str = "expired") -> None:
        """Forget the key that appeared first."""
        key, value = self._map.popitem(last=False)
        self._journal.append((why, key, value))

    def commit(self) -> None:
        """Keep the changes made since the last commit."""
        self._journal.clear()

    def rollback(self) -> None:
        """Undo the changes made since the last commit."""
        for what, key, value in reversed(self._journal):
            if what == "put":
                if value is _ABSENT:
                    del self._map[key]
                else:
                    self._map[key] = value  # type: ignore[assignment]
                continue
            self._map[key] = value  # type: ignore[assignment]
            self._map.move_to_end(key, last=False)
            self.evicted -= what == "evicted"
        self._journal.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate in order of first appearance."""
        return iter(self._map.items())

    def load(self, items: Iterable[tuple[K, V]]) -> None:
        """Replace everything."""
        self._map = OrderedDict(items)
        self._journal.clear()


class RowKeys:
    """Which key each row belongs to.

    Attributes:
        codes: int64[n] index into ``labels``.
        labels: One text per distinct key, a JSON list of its values; the form kept in states.
    """

    def __init__(self, codes: Index, labels: list[str]) -> None:
        self.codes = codes
        self.labels = labels

    def runs(self, state: KeyedState[str, V], rows: Index) -> Iterator[Index]:
        """Cut ``rows`` so that no run makes the state forget a key that the run itself uses.

        Nearly always one run: only when the state could overflow are rows looked at one by one,
        so that what is forgotten does not depend on how rows were batched.
        """
        present = np.unique(self.codes[rows])
        new = sum(self.labels[code] not in state for code in present)
        if len(state) + new <= state.keys_max:
            yield rows
            return
        start, fresh = 0, set[int]()
        for at, code in enumerate(self.codes[rows]):
            if int(code) in fresh or self.labels[code] in state:
                continue
            if len(state) + len(fresh) < state.keys_max:
                fresh.add(int(code))
                continue
            # This row makes a key leave, maybe one that a later row needs: it runs alone.
            if at > start:
                yield rows[start:at]
            yield rows[at : at + 1]
            start, fresh = at + 1, set()
        if start < len(rows):
            yield rows[start:]

    def groups(self, rows: Index) -> Iterator[tuple[str, Index]]:
        """Yield (label, rows of that key in their order), keys in order of first appearance."""
        codes = self.codes[rows]
        if len(rows) == 0:
            return
        if (codes == codes[0]).all():
            yield self.labels[codes[0]], rows
            return
        present, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        parts = np.split(rows[order], np.cumsum(np.bincount(inverse))[:-1])
        for position in np.argsort(first):
            yield self.labels[present[position]], parts[position]


def record_keys(rows: Rows) -> RowKeys:
    """Key the *records* of the group by topic and publisher."""
    group = rows.group
    publishers = [publisher.hex() for publisher in group.publishers] + [""]
    topics, topic = _topics(rows)
    width = len(publishers)
    # Publisher -1 (unknown) wraps to the last, empty name.
    combined = topic * width + group.publisher.astype(np.int64) % width
    present, codes = np.unique(combined, return_inverse=True)
    labels = [_label(topics[int(c) // width], publishers[int(c) % width]) for c in present]
    return RowKeys(codes.astype(np.int64), labels)


def row_keys(rows: Rows, columns: Sequence[str]) -> RowKeys:
    """Key rows by topic and the values of ``columns`` (null is a value of its own)."""
    topics, topic = _topics(rows)
    codes = rows.of_records(topic)
    values: list[list[object]] = [[name] for name in topics]
    for name in columns:
        texts = _as_array(rows, name)
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        encoded = pc.dictionary_encode(texts, null_encoding="encode")
        distinct = encoded.dictionary.to_pylist()
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combined = codes * len(distinct) + indices
        present, codes = np.unique(combined, return_inverse=True)
        values = [
            [*values[int(c) // len(distinct)], distinct[int(c) % len(distinct)]] for c in present
        ]
    return RowKeys(codes.astype(np.int64), [_label(*parts) for parts in values])


def _topics(rows: Rows) -> tuple[list[str], Index]:
    """Return the distinct topic names of the group and each record's index into them.

    A topic that was declared twice (its publishers changed) still is one topic.
    """
    names = [declaration.name for declaration in rows.group.declarations]
    distinct = list(dict.fromkeys(names))
    index = np.array([distinct.index(name) for name in names], np.int64)
    return distinct, index[rows.group.topic]


def _as_array(rows: Rows, name: str) -> pa.Array:
    if name in rows.columns:
        return rows.columns[name]
    values = rows.values(name)
    return pa.array(values.data, mask=None if values.valid is None else ~values.valid)


def _label(*parts: object) -> str:
    return orjson.dumps(parts, default=_bytes_as_hex).decode()


def _bytes_as_hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return repr(value)


def fold_keys(
    keys: RowKeys,
    state: KeyedState[str, V],
    rows: Index,
    fold: Callable[[V | None, Index], V],
) -> None:
    """Replace each key's value by ``fold(old value or None, rows of that key)``.

    ``fold`` sees the rows of a key in order, possibly in several pieces, and must give the same
    in the end however they are cut.
    """
    for run in keys.runs(state, rows):
        for label, part in keys.groups(run):
            state.put(label, fold(state.get(label), part))
