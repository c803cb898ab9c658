# SPDX-License-Identifier: Apache-2.0
"""Event ids against the xxhash library."""

from __future__ import annotations

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.dataset.event_id import key_ids, position_ids

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)


def big_endian(value, size):
    """Bytes of a signed integer."""
    return value.to_bytes(size, "big", signed=True)


@settings(deadline=None)
@given(st.lists(st.tuples(INT64, INT64, INT32, INT32), min_size=1, max_size=20))
def test_position_ids_equal_xxh3_128_of_the_same_bytes(places):
    """Both lengths, 20 and 24 bytes, over the whole range of every part."""
    epoch, position = (np.array([p[i] for p in places], np.int64) for i in (0, 1))
    record, sample = (np.array([p[i] for p in places], np.int32) for i in (2, 3))
    plain = position_ids(epoch, position, record)
    exploded = position_ids(epoch, position, record, sample)
    for i, (e, p, r, s) in enumerate(places):
        raw = big_endian(e, 8) + big_endian(p, 8) + big_endian(r, 4)
        assert plain[i].tobytes() == xxhash.xxh3_128_digest(raw)
        assert exploded[i].tobytes() == xxhash.xxh3_128_digest(raw + big_endian(s, 4))


def test_no_rows_give_no_ids():
    """An empty column is legal."""
    none = np.zeros(0, np.int64)
    assert position_ids(none, none, none.astype(np.int32)).shape == (0, 16)
    assert key_ids([]).shape == (0, 16)


def test_key_ids_append_the_sample_index():
    """Elements of one message have the same key and different ids."""
    ids = key_ids([b"key", b"key"], np.array([0, 1], np.int32))
    assert ids[1].tobytes() == xxhash.xxh3_128_digest(b"key\x00\x00\x00\x01")
    assert key_ids([b"key"])[0].tobytes() == xxhash.xxh3_128_digest(b"key")
