# SPDX-License-Identifier: Apache-2.0
"""Message-level deduplication by content key over a bounded window (spec 3.2)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from thadam_ros.config.schema import DedupConfig
from thadam_ros.dataset.event_id import ID_BYTES
from thadam_ros.transforms.rows import Mask
from thadam_ros.transforms.state import KeyedState

Index = npt.NDArray[np.int64]
#: Where and when a key was seen first: ingest time ns, epoch, frame position, record index.
Seen = tuple[int, int, int, int]
_ENTRY = np.dtype([("key", f"V{ID_BYTES}"), ("seen", "<i8", (4,))])


class Dedup:
    """Keys seen within ``window`` of ingest time, oldest first.

    A key is a duplicate of a strictly earlier record only, so that a record read again after a
    restart is not a duplicate of itself. The window counts from the first sight of a key;
    duplicates do not prolong it.
    """

    def __init__(self, config: DedupConfig, keys_max: int) -> None:
        self._window_ns = config.window_ns
        self._evict = config.on_overflow == "evict"
        self._state: KeyedState[bytes, Seen] = KeyedState(keys_max)

    @property
    def evicted(self) -> int:
        """Keys forgotten before their window ended, since the start of the pipeline."""
        return self._state.evicted

    def apply(
        self, keys: Sequence[bytes], index: Index, where: npt.NDArray[np.int64]
    ) -> tuple[Index, Index]:
        """Look up keys in order.

        Args:
            keys: 16 bytes each.
            index: int64[k] what to return for each key.
            where: int64[k, 4] as :data:`Seen`.

        Returns:
            Of ``index``: the duplicates, and the new keys for which there is no room.
        """
        state, window = self._state, self._window_ns
        duplicates: list[int] = []
        refused: list[int] = []
        oldest = state.first()[1][0] if len(state) else None
        places = zip(*where.T.tolist(), strict=True)
        for at, key, seen in zip(index.tolist(), keys, places, strict=True):
            now = seen[0]
            while oldest is not None and now - oldest > window:
                state.pop_first()
                oldest = state.first()[1][0] if len(state) else None
            known = state.get(key)
            if known is not None and now - known[0] <= window:
                if known[1] != seen[1] or known[2:] < seen[2:]:
                    duplicates.append(at)
                continue
            full = known is None and len(state) >= state.keys_max
            if full and not self._evict:
                refused.append(at)
                continue
            state.put(key, seen)
            if full or oldest is None or known is not None:
                oldest = state.first()[1][0]
        return np.array(duplicates, np.int64), np.array(refused, np.int64)

    def snapshot(self) -> object:
        """Return the window as one text: 48 bytes per key, oldest first."""
        entries = np.zeros(len(self._state), _ENTRY)
        if len(self._state):
            keys, seen = zip(*self._state.items(), strict=True)
            numbers = np.fromiter(chain.from_iterable(seen), np.int64, 4 * len(seen))
            entries["key"] = np.frombuffer(b"".join(keys), f"V{ID_BYTES}")
            entries["seen"] = numbers.reshape(-1, 4)
        return base64.b64encode(entries.tobytes()).decode()

    def restore(self, state: Any) -> None:
        """Continue from :meth:`snapshot`; None is a fresh start."""
        raw = base64.b64decode(state or "")
        entries = np.frombuffer(raw, _ENTRY)
        starts = range(0, len(raw), _ENTRY.itemsize)
        keys = [raw[start : start + ID_BYTES] for start in starts]
        seen = zip(*entries["seen"].T.tolist(), strict=True)
        self._state.load(zip(keys, seen, strict=True) if keys else ())

    def commit(self) -> None:
        """Keep the changes of the last ``apply``."""
        self._state.commit()

    def rollback(self) -> None:
        """Undo the changes of the last ``apply``."""
        self._state.rollback()


def mask_of(index: Index, n: int) -> Mask:
    """Return bool[n], True at ``index``."""
    mask = np.zeros(n, np.bool_)
    mask[index] = True
    return mask
