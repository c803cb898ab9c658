# SPDX-License-Identifier: Apache-2.0
"""Fills a small disk with a log and says what came of it, as one line of JSON.

Run as ``python full_disk_child.py DIRECTORY WHEN_FULL MIN_FREE FRAMES`` with DIRECTORY on a
filesystem of a few MiB; a negative MIN_FREE hides from the log how much is free. One chain never
settles anything. With ``stop_capture`` a file that was there from the start is removed once
capture has stopped: space returns without a restart.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.position import BEFORE_ALL
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import list_valid_frames, make_batch
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.retention import Retention
from thadam_ros.wal.writer import WalWriter

DEADLINE_S = 60.0
PAYLOAD_BYTES = 20_000
BALLAST_BYTES = 1 << 20


class Silent(OsFileSystem):
    """A filesystem that does not say how large it is: only a refused write tells."""

    def total_bytes(self, path: str) -> int:
        return 0

    def free_bytes(self, path: str) -> int:
        return 0


class Bench:
    """A writer and a thread that makes deletion passes when it is asked to."""

    def __init__(self, directory: str, when_full: str, min_free: int) -> None:
        self.directory = directory
        self.wal_dir = os.path.join(directory, "wal")
        self.fs = Silent() if min_free < 0 else OsFileSystem()
        self.config = WalConfig(
            budget_bytes=1 << 30,
            min_free_bytes=max(0, min_free),
            segment_bytes=64 << 10,
            replay_window_bytes=0,
            commit_interval_ns=0,
            when_full=when_full,
        )
        self.accepted: list[int] = []
        self.refused = 0
        self.writer = self.open()
        self.retention = Retention(
            self.wal_dir,
            self.writer.budget,
            fs=self.fs,
            log=self.writer,
            read_cursors=lambda durable: {"slow": BEFORE_ALL},
        )
        self._asked = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._keep)
        self.writer.on_pressed = self._asked.set
        self._thread.start()

    def open(self) -> WalWriter:
        return WalWriter.open(
            self.wal_dir,
            self.config,
            fs=self.fs,
            clock=SystemClock(),
            clock_synced=lambda: True,
            pending_bytes_max=100_000,
        )

    def _keep(self) -> None:
        while not self._stop:
            self._asked.wait(0.05)
            self._asked.clear()
            while self.retention.run():
                pass

    def append(self, identity: int) -> bool:
        """Append one record; keep a ledger of our own."""
        if self.writer.append(make_batch([identity.to_bytes(8, "little").ljust(PAYLOAD_BYTES)])):
            self.accepted.append(identity)
            return True
        self.refused += 1
        return False

    def end(self) -> None:
        self._stop = True
        self._asked.set()
        self._thread.join()
        self.writer.close()


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("it did not happen in time")
        time.sleep(0.005)


def stop_capture(bench: Bench, frames: int) -> dict[str, object]:
    """Fill until something is refused, make room, go on."""
    ballast = os.path.join(bench.directory, "ballast")
    with open(ballast, "wb") as file:
        file.write(bytes(BALLAST_BYTES))
    writer, identity = bench.writer, 0
    while bench.append(identity):
        identity += 1
        wait(lambda: writer.flush(0.01) or writer.statistics().storage_full)
    at_stop = writer.statistics()
    disk = os.statvfs(bench.directory)
    os.unlink(ballast)
    wait(lambda: writer.flush(0.01) and bench.append(identity))
    for more in range(identity + 1, identity + 6):
        wait(functools.partial(bench.append, more))
        writer.flush(DEADLINE_S)
    return {
        "storage_full_at_stop": at_stop.storage_full,
        "held_up_at_stop": at_stop.held_up_by,
        "free_at_stop": disk.f_bavail * disk.f_frsize,
        "accepted_at_stop": identity,
    }


def drop_oldest(bench: Bench, frames: int) -> dict[str, object]:
    """Write on and on, several disks full."""
    for identity in range(frames):
        wait(functools.partial(bench.append, identity))
        bench.writer.flush(DEADLINE_S)
    return {}


def main() -> None:
    directory, when_full, min_free, frames = sys.argv[1:]
    bench = Bench(directory, when_full, int(min_free))
    scenario = {"stop_capture": stop_capture, "drop_oldest": drop_oldest}[when_full]
    outcome = scenario(bench, int(frames))
    bench.end()
    statistics, retained = bench.writer.statistics(), bench.retention.statistics()
    reader = WalReader(bench.wal_dir, fs=OsFileSystem())
    read = 0
    while found := reader.read(100, 1 << 20):
        read += len(found)
    oracle = list_valid_frames(bench.wal_dir)
    # It opens again on the disk as it was left.
    again = bench.open()
    durable = again.durable.frame
    again.close()
    drops = retained.drops.get("slow")
    outcome |= {
        "accepted": bench.accepted,
        "refused": bench.refused,
        "kept": [int.from_bytes(r.payload[:8], "little") for f in oracle for r in f.records],
        "positions": [f.position for f in oracle],
        "read": read,
        "damage": len(reader.damage) + len(reader.gaps),
        "durable": durable,
        "refused_records": statistics.refused_records,
        "refused_by_cause": dict(statistics.refused_by_cause),
        "lost_records": statistics.lost_records,
        "storage_refusals": statistics.storage_refusals,
        "failed": statistics.failed,
        "first_error": statistics.first_error,
        "wal_bytes": statistics.wal_bytes,
        "files_bytes": sum(e.stat().st_size for e in os.scandir(bench.wal_dir) if ".wal" in e.name),
        "dropped_frames": drops.frames if drops else 0,
        "dropped_ranges": [[r.first.frame, r.last.frame] for r in drops.ranges] if drops else [],
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
