# SPDX-License-Identifier: Apache-2.0
"""Quality as data: the flag bits and the status derived from them (spec 3.3)."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class QualityFlag(IntFlag):
    """Bits of ``_quality_flags``; order and values are stable, documented and never reused."""

    OUT_OF_RANGE = 1 << 0
    CLOCK_SKEW = 1 << 1
    MISSING_TIME = 1 << 2
    OUT_OF_ORDER = 1 << 3
    DUPLICATE = 1 << 4
    STALE = 1 << 5
    SEQUENCE_GAP = 1 << 6
    DECODE_ERROR = 1 << 7
    INVALID = 1 << 8
    TIME_CORRECTED = 1 << 9


class QualityStatus(IntEnum):
    """Values of ``_quality_status``."""

    GOOD = 0
    UNCERTAIN = 1
    BAD = 2


#: Flags that make a row BAD: the values themselves cannot be trusted. Any other flag makes it
#: UNCERTAIN, except TIME_CORRECTED, which only documents a correction and keeps GOOD.
BAD_FLAGS = QualityFlag.INVALID | QualityFlag.DECODE_ERROR
NEUTRAL_FLAGS = QualityFlag.TIME_CORRECTED
