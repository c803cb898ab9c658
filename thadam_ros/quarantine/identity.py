# SPDX-License-Identifier: Apache-2.0
"""Which rejects are known already (spec 4.3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from thadam_ros.model.event import Reject

_NUMBERS = struct.Struct(">qqii")

#: Identities kept in a hash set before they are merged into the sorted array.
_RECENT_MAX = 65_536


def identity_of(reject: Reject) -> bytes:
    """Return 16 bytes: xxh3_128 over (epoch, position, record, sample, dataset, row hash, domain).

    Texts are preceded by their length, so no two different rejects have the same input.
    """
    parts = [
        _NUMBERS.pack(reject.wal_epoch, reject.wal_pos, reject.record_index, reject.sample_idx)
    ]
    for text in (reject.dataset, reject.row_hash, reject.error_domain):
        encoded = text.encode("utf-8", "surrogatepass")
        parts += (len(encoded).to_bytes(4, "big"), encoded)
    return xxhash.xxh3_128_digest(b"".join(parts))


class IdentityIndex:
    """A set of identities at 16 bytes each: a sorted array and a small set of recent ones.

    In memory; it is rebuilt from staging on open. The seam for an index on disk is these methods.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._sorted: npt.NDArray[np.bytes_] = np.empty(0, dtype="S16")

    def __len__(self) -> int:
        return len(self._recent) + len(self._sorted)

    def known(self, identities: Sequence[bytes]) -> list[bool]:
        """Return for each identity whether it was added before."""
        if not identities:
            return []
        # Fixed width on both sides: NumPy's rule about trailing zero bytes changes nothing.
        wanted = np.array(identities, dtype="S16")
        places = np.searchsorted(self._sorted, wanted)
        inside = places < len(self._sorted)
        found = np.zeros(len(wanted), dtype=bool)
        found[inside] = self._sorted[places[inside]] == wanted[inside]
        return [
            bool(hit) or key in self._recent for hit, key in zip(found, identities, strict=True)
        ]

    def add(self, identities: Iterable[bytes]) -> None:
        """Add identities that are not known yet."""
        self._recent.update(identities)
        if len(self._recent) >= _RECENT_MAX:
            recent = np.array(list(self._recent), dtype="S16")
            # The new array is in place before the set goes: an interruption shows no key as new.
            self._sorted = np.sort(np.concatenate((self._sorted, recent)), kind="stable")
            self._recent = set()
