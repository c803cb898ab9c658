# SPDX-License-Identifier: Apache-2.0
"""Event ids: xxh3_128 over where a row was captured, or over its declared key (spec 3.1, 3.2).

Position ids hash 20 bytes (epoch, frame position, record index, big-endian) or 24 with the sample
index. Both lengths fall into one branch of XXH3 (17 to 32 bytes: one mixing round), which is
written out here over whole columns; ``xxhash`` itself costs a Python call per row. The tests hold
the two against each other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import xxhash

U64 = npt.NDArray[np.uint64]
Digests = npt.NDArray[np.uint8]

ID_BYTES = 16

#: The first 32 bytes of XXH3's default secret as little-endian words.
_SECRET = tuple(
    np.uint64(word)
    for word in struct.unpack(
        "<4Q",
        bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"),
    )
)
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_4 = np.uint64(0x85EBCA77C2B2AE63)
_AVALANCHE = np.uint64(0x165667919E3779F9)
_LOW32 = np.uint64(0xFFFFFFFF)
_U32 = np.uint64(32)
_U37 = np.uint64(37)
_MASK64 = (1 << 64) - 1


def position_ids(
    epoch: npt.NDArray[np.int64],
    position: npt.NDArray[np.int64],
    record: npt.NDArray[np.int32],
    sample: npt.NDArray[np.int32] | None = None,
) -> Digests:
    """Return the ids of n rows, uint8[n, 16], as ``xxh3_128(...).digest()`` gives them."""
    length = 20 if sample is None else 24
    # Big-endian words are what is hashed; XXH3 reads them back little-endian.
    first = epoch.astype(">i8").view("<u8")
    second = position.astype(">i8").view("<u8")
    tail = np.empty((len(epoch), length), np.uint8)
    tail[:, 0:8] = first.view(np.uint8).reshape(-1, 8)
    tail[:, 8:16] = second.view(np.uint8).reshape(-1, 8)
    tail[:, 16:20] = record.astype(">i4").view(np.uint8).reshape(-1, 4)
    if sample is not None:
        tail[:, 20:24] = sample.astype(">i4").view(np.uint8).reshape(-1, 4)
    words = np.ascontiguousarray(tail[:, length - 16 :]).view("<u8")
    third, fourth = words[:, 0], words[:, 1]
    low = np.uint64((length * _PRIME64_1) & _MASK64) + _fold(
        first ^ _SECRET[0], second ^ _SECRET[1]
    )
    low ^= third + fourth
    high = _fold(third ^ _SECRET[2], fourth ^ _SECRET[3])
    high ^= first + second
    with np.errstate(over="ignore"):
        offset = np.uint64((length * int(_PRIME64_2)) & _MASK64)
        mixed = low * np.uint64(_PRIME64_1) + high * _PRIME64_4 + offset
    out = np.empty((len(epoch), 2), ">u8")
    out[:, 1] = _avalanche(low + high)
    out[:, 0] = np.uint64(0) - _avalanche(mixed)
    return out.view(np.uint8)


def _fold(a: U64, b: U64) -> U64:
    """Return low ^ high of the 128-bit products."""
    a_low, a_high = a & _LOW32, a >> _U32
    b_low, b_high = b & _LOW32, b >> _U32
    low_low, high_low = a_low * b_low, a_high * b_low
    cross = (low_low >> _U32) + (high_low & _LOW32) + a_low * b_high
    high = (high_low >> _U32) + (cross >> _U32) + a_high * b_high
    low = (cross << _U32) | (low_low & _LOW32)
    folded: U64 = low ^ high
    return folded


def _avalanche(h: U64) -> U64:
    h = h ^ (h >> _U37)
    h *= _AVALANCHE
    h ^= h >> _U32
    return h


def key_ids(keys: Iterable[bytes], sample: npt.NDArray[np.int32] | None = None) -> Digests:
    """Return the ids of n canonical keys, uint8[n, 16].

    Args:
        sample: int32[n] element index, appended big-endian to the key's bytes.
    """
    hashed = xxhash.xxh3_128_digest
    if sample is None:
        digests = [hashed(key) for key in keys]
    else:
        tail = sample.astype(">i4").tobytes()
        digests = [hashed(key + tail[4 * i : 4 * i + 4]) for i, key in enumerate(keys)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, ID_BYTES)
