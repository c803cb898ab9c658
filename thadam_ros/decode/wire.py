# SPDX-License-Identifier: Apache-2.0
"""Facts about XCDR1 payloads that both decoders share: header, padding, the words of errors.

Payload = 4 bytes of encapsulation (representation id big-endian, then options, ignored), then the
body; alignment counts from the first byte of the body (DDSI-RTPS 2.5, 10.2). Fast DDS pads the
payload with up to 3 bytes to a multiple of 4 when it crosses processes, so that much is padding,
and so are the bytes by which it overestimates a message (:mod:`.estimate`); anything else behind
the message is surplus.

Both decoders must name the same error for the same bytes, also when several things are wrong:

1. encapsulation, then structure in wire order; the first structural error counts.
2. A structural error is ``decode.endianness`` instead, if the body has no structural error and no
   surplus when read with the other endianness.
3. Content of the wanted fields: first text, then booleans, each by field in schema order.
"""

from __future__ import annotations

from typing import Final

HEADER_BYTES: Final = 4
CDR_BE: Final = b"\x00\x00"
CDR_LE: Final = b"\x00\x01"
PADDING_BYTES_MAX: Final = 3
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

TRUNCATED: Final = "decode.truncated"
ENCAPSULATION: Final = "decode.encapsulation"
ENDIANNESS: Final = "decode.endianness"
STRING: Final = "decode.string"
LENGTH: Final = "decode.length"
BOOLEAN: Final = "decode.boolean"


def is_surplus(trailing: int, payload_bytes: int) -> bool:
    """Tell whether ``trailing`` bytes behind a message are more than padding."""
    return trailing > PADDING_BYTES_MAX or (trailing > 0 and payload_bytes % 4 != 0)


def header_error(head: bytes) -> tuple[str, str] | None:
    """Judge the first four bytes of a payload (fewer when it is shorter)."""
    if len(head) < HEADER_BYTES:
        return TRUNCATED, f"the payload has {len(head)} bytes, an encapsulation header takes 4"
    if head[:2] in (CDR_BE, CDR_LE):
        return None
    if head[:4] == _ZSTD_MAGIC:
        return ENCAPSULATION, "the payload is a zstd frame, not CDR: decompress it before decoding"
    return (
        ENCAPSULATION,
        f"representation 0x{head[:2].hex()} is not plain CDR (0x0000, 0x0001)",
    )


def truncated_reason(payload_bytes: int) -> str:
    """The message needs bytes behind the end of its payload."""
    return f"the payload ends after {payload_bytes} bytes, inside the message"


def empty_string_reason(pattern: str, offset: int) -> str:
    """A string of length 0 has no room for its terminator; ``offset`` counts from the payload."""
    return f"{pattern} at byte {offset}: string length 0 leaves no room for the terminator"


def terminator_reason(pattern: str, offset: int) -> str:
    """The last byte of a string is not NUL."""
    return f"{pattern} at byte {offset}: the string lacks its terminator"


def string_bound_reason(pattern: str, offset: int) -> str:
    """A bounded string has more units than its definition allows."""
    return f"{pattern} at byte {offset}: the string is longer than its bound"


def bound_reason(pattern: str, offset: int) -> str:
    """A bounded sequence has more elements than its definition allows."""
    return f"{pattern} at byte {offset}: the sequence is longer than its bound"


def length_reason(pattern: str, offset: int) -> str:
    """The elements of a sequence cannot fit into the rest of the payload."""
    return f"{pattern} at byte {offset}: the sequence is longer than the payload can hold"


def text_reason(pattern: str, wide: bool) -> str:
    """Text that is no Unicode."""
    return f"{pattern}: the text is not valid {'UTF-16' if wide else 'UTF-8'}"


def boolean_reason(pattern: str) -> str:
    """A boolean byte other than 0 and 1."""
    return f"{pattern}: a boolean is neither 0 nor 1"


def endianness_reason(little: bool, original: str) -> str:
    """The body reads well only with the endianness that its header does not declare."""
    declared, other = ("little", "big") if little else ("big", "little")
    return f"declared {declared}-endian but only readable as {other}-endian ({original})"
