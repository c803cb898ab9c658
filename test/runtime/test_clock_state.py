# SPDX-License-Identifier: Apache-2.0
"""Promises about the state of the host's clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from thadam_ros.errors import ConfigError
from thadam_ros.runtime.clock_state import clock_synced_probe


def test_a_file_says_whether_the_clock_is_synced_at_each_moment(tmp_path: Path) -> None:
    """Absent is unsynced, a leading 0 is unsynced, anything else is synced."""
    path = tmp_path / "synced"
    probe = clock_synced_probe(f"file:{path}")
    assert not probe()
    path.write_text("1")
    assert probe()
    path.write_text("0")
    assert not probe()
    path.write_text("")
    assert probe()


def test_the_kernel_answers_the_same_as_its_own_interface() -> None:
    """adjtimex and the status word in ntp_adjtime agree, whatever this machine's state is."""
    import ctypes

    buffer = (ctypes.c_byte * 512)()
    state = ctypes.CDLL(None).ntp_adjtime(ctypes.byref(buffer))
    # struct timex: modes (padded to 8), offset, freq, maxerror, esterror, then status.
    status = int.from_bytes(bytes(buffer)[40:44], "little")
    assert clock_synced_probe("adjtimex")() is (0 <= state < 5 and not status & 0x40)


def test_an_unknown_setting_is_refused_naming_the_valid_ones() -> None:
    """The message is enough to correct the document."""
    with pytest.raises(ConfigError, match="adjtimex, always_synced, file:<path>"):
        clock_synced_probe("chrony")
