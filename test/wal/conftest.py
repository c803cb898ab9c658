# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the WAL tests: a directory in memory where there is one, writers that get closed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.writer import WalWriter

OpenWriter = Callable[..., WalWriter]
#: Not what the machine's disk would give: a test means what it says, also on a disk nearly full.
LIMITS = {"budget_bytes": 1 << 30, "min_free_bytes": 0}


@pytest.fixture
def wal_dir() -> Iterator[str]:
    """A WAL directory on tmpfs where the machine has one: thousands of fsyncs are cheap there."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    root = tempfile.mkdtemp(prefix="thadam-wal-", dir=base)
    yield os.path.join(root, "wal")
    shutil.rmtree(root)


@pytest.fixture
def open_writer(wal_dir: str) -> Iterator[OpenWriter]:
    """Open writers with short intervals; closed at the end of the test."""
    opened: list[WalWriter] = []

    def open_one(directory: str = wal_dir, **options: object) -> WalWriter:
        keywords = {
            key: options.pop(key)
            for key in ("fs", "on_durable", "cursors", "draw_epoch", "pending_bytes_max", "clock")
            if key in options
        }
        synced = options.pop("clock_synced", lambda: True)
        keywords = {"fs": OsFileSystem(), "clock": SystemClock(), **keywords}
        writer = WalWriter.open(
            directory,
            WalConfig(**{**LIMITS, "commit_interval_ns": 5_000_000, **options}),  # type: ignore[arg-type]
            clock_synced=synced,  # type: ignore[arg-type]
            **keywords,  # type: ignore[arg-type]
        )
        opened.append(writer)
        return writer

    yield open_one
    for writer in opened:
        writer.close()
