# SPDX-License-Identifier: Apache-2.0
"""Writers that are killed while another process reads: nothing durable is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thadam_ros.errors import LockHeldError
from thadam_ros.model.message import Frame
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import list_valid_frames
from thadam_ros.wal.reader import WalReader

from .conftest import OpenWriter

CHECKOUT = Path(__file__).parents[2]
DEADLINE_S = 60.0


def start_child(directory: str, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer_child.py")), directory, str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )


def identities(frames: list[Frame]) -> list[int]:
    return [
        int.from_bytes(frame.payload[offset : offset + 8].tobytes(), "little")
        for frame in frames
        for offset in frame.offsets[:-1].tolist()
    ]


def test_a_killed_writer_loses_nothing_it_had_called_durable(
    wal_dir: str, open_writer: OpenWriter
) -> None:
    """Six kills at random moments under a reader that was there all along."""
    rng = random.Random(11)
    reader = WalReader(wal_dir, fs=OsFileSystem())
    seen: list[int] = []
    told = -1
    for _ in range(6):
        child = start_child(wal_dir, max(seen, default=-1) + 1)
        assert child.stdout is not None
        try:
            lines = rng.randrange(2, 12)
            for _ in range(lines):
                line = child.stdout.readline()
                assert line, "the writer ended by itself"
                told = int(line)
                seen += identities(reader.read(1_000, 1 << 24))
            deadline = time.monotonic() + rng.random() * 0.02
            while time.monotonic() < deadline:
                seen += identities(reader.read(1_000, 1 << 24))
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate(timeout=DEADLINE_S)
        told = max([told, *map(int, rest.split())])
        # What was complete in the file but not exposed yet is exposed by the next open.
        open_writer().close()
        while frames := reader.read(1_000, 1 << 24):
            seen += identities(frames)
        assert max(seen) >= told
    assert seen == list(range(len(seen)))
    assert not reader.damage
    assert not reader.gaps
    reader.close()
    oracle = list_valid_frames(wal_dir)
    assert [int.from_bytes(r.payload[:8], "little") for f in oracle for r in f.records] == seen


def test_a_writer_in_another_process_holds_the_lock_until_it_is_killed(
    wal_dir: str, open_writer: OpenWriter
) -> None:
    """The refusal names its pid; a killed process leaves no lock behind."""
    child = start_child(wal_dir, 0)
    try:
        assert child.stdout is not None
        assert child.stdout.readline()
        with pytest.raises(LockHeldError, match=f"pid {child.pid}"):
            open_writer()
    finally:
        child.kill()
        child.communicate(timeout=DEADLINE_S)
    assert open_writer().durable.frame >= 0
