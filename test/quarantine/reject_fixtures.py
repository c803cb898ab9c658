# SPDX-License-Identifier: Apache-2.0
"""Rejects to stage, and a disk whose calls can be watched or made to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from thadam_ros.model.event import Reject
from thadam_ros.quarantine.format import Damage, Record
from thadam_ros.quarantine.reader import scan_staging
from thadam_ros.storage.filesystem import OsFileSystem

BASE = Reject(
    wal_epoch=6_611_234_567_890_123_456,
    wal_pos=0,
    ingest_time_ns=1_764_360_000_123_456_789,
    source_id="robot",
    topic="/r1/imu/data",
    error_domain="decode",
    error_code="decode.truncated",
    reason="the payload ends 3 bytes early",
    raw=b"",
    raw_truncated=False,
    dataset="imu",
    record_index=0,
    sample_idx=-1,
    encoding="cdr",
    type_name="sensor_msgs/msg/Imu",
    type_hash="RIHS01_00",
    clock_synced=True,
    row_hash="ab" * 32,
)


def reject(position: int, **changes: object) -> Reject:
    """A reject at a position with raw bytes of its own."""
    return replace(BASE, wal_pos=position, **{"raw": b"raw %d " % position * 3, **changes})  # type: ignore[arg-type]


class HookedFs:
    """The real filesystem; ``hook(name, arguments)`` runs before each call and may raise."""

    def __init__(self, hook: Callable[[str, tuple[object, ...]], None]) -> None:
        self._real = OsFileSystem()
        self._hook = hook
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        real = getattr(self._real, name)

        def call(*arguments: object) -> object:
            self.calls.append(name)
            self._hook(name, arguments)
            return real(*arguments)

        return call


class UnsyncedFs(OsFileSystem):
    """The real filesystem without waiting for the disk; nothing here cuts its power."""

    def fsync(self, fd: int) -> None:
        """Nothing."""

    def fsync_dir(self, path: str) -> None:
        """Nothing."""


def staged(directory: Path) -> tuple[list[Reject], list[Damage]]:
    """What a reader finds: rejects and damaged ranges."""
    found = list(scan_staging(str(directory), OsFileSystem()))
    return (
        [f.reject for f in found if isinstance(f, Record)],
        [f for f in found if isinstance(f, Damage)],
    )


def only_segment(directory: Path) -> Path:
    """The one segment of a staging directory."""
    [path] = directory.glob("*.staging")
    return path
