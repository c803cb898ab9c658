# SPDX-License-Identifier: Apache-2.0
"""Whether the host clock is synchronised (spec 3.1, ``_clock_synced``)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from thadam_ros.errors import ConfigError, Problem

#: From <sys/timex.h>.
_TIME_ERROR = 5
_STA_UNSYNC = 0x0040


class _Timex(ctypes.Structure):
    # struct timex of Linux; only modes and status are used, the tail is reserved space.
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("reserved", ctypes.c_byte * 256),
    )


def clock_synced_probe(setting: str) -> Callable[[], bool]:
    """Return a function that tells the clock's state now.

    Args:
        setting: ``adjtimex`` asks the kernel (read-only); ``always_synced`` trusts the host;
            ``file:<path>`` is synced while the file exists and does not start with ``0``.

    Raises:
        ConfigError: For any other setting.
    """
    if setting == "always_synced":
        return lambda: True
    if setting.startswith("file:"):
        path = setting[len("file:") :]
        return lambda: _file_says_synced(path)
    if setting == "adjtimex":
        # Asked for every batch: the library is looked up once.
        adjtimex = ctypes.CDLL(None).adjtimex
        return lambda: _kernel_says_synced(adjtimex)
    raise ConfigError(
        [Problem("edge.clock", setting, "valid: adjtimex, always_synced, file:<path>")]
    )


def _file_says_synced(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not os.read(fd, 1).startswith(b"0")
    finally:
        os.close(fd)


def _kernel_says_synced(adjtimex: Callable[..., int]) -> bool:
    buffer = _Timex()
    state = adjtimex(ctypes.byref(buffer))
    return 0 <= state < _TIME_ERROR and not buffer.status & _STA_UNSYNC
