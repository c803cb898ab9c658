# SPDX-License-Identifier: Apache-2.0
"""WAL append against a bare write + fdatasync loop at the same batch size (spec 8.2).

    python bench/wal_append.py [--seconds 5] [--json] [--layouts] [--directory DIR]

The bare loop writes the same payload bytes in the same chunks to one file, fdatasync after each;
the log takes 324-byte records from a producer thread and commits in groups of that size. Short
rounds of both alternate, bare first in one and the log first in the next, so that they meet the
same disk; the ratio is the median over the rounds.
``--layouts`` measures what the frame layout was chosen on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from itertools import accumulate, cycle

import numpy as np
from crc32c import crc32c

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.writer import WalWriter

NAME = "wal_append"
TARGET = 0.70
FLOOR = 0.42
RECORD_BYTES = 324
COMMIT_BYTES = 4 << 20
#: A header a record would have if it stood in front of its payload.
RECORD_HEADER = struct.Struct("<IqIqQI")
#: Records the capture thread hands over at once.
BATCH_RECORDS = 256
ROUND_SECONDS_MAX = 0.5
ROUNDS_MIN = 4


def _payloads(records: int) -> list[bytes]:
    data = np.random.default_rng(1).bytes(RECORD_BYTES * records)
    return [data[i * RECORD_BYTES : (i + 1) * RECORD_BYTES] for i in range(records)]


def _batches(topic: int, publisher: int) -> list[SourceBatch]:
    """Return batches to append over and over; 16 MiB of payload, so that no cache holds them."""
    n = BATCH_RECORDS
    payloads = _payloads((16 << 20) // RECORD_BYTES)
    now = time.time_ns()
    return [
        SourceBatch(
            "robot",
            [topic] * n,
            list(range(now + at, now + at + n)),
            payloads[at : at + n],
            list(range(now + at, now + at + n)),
            list(range(at + 1, at + 1 + n)),
            [publisher] * n,
        )
        for at in range(0, len(payloads) - n, n)
    ]


def bare_rate(directory: str, seconds: float) -> float:
    """Return bytes/s of write + fdatasync in chunks of COMMIT_BYTES of payload."""
    records = COMMIT_BYTES // RECORD_BYTES
    chunk = os.urandom(records * RECORD_BYTES)
    path = os.path.join(directory, "bare")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    written = 0
    started = time.monotonic()
    try:
        while time.monotonic() - started < seconds:
            written += os.write(fd, chunk)
            os.fdatasync(fd)
        return written / (time.monotonic() - started)
    finally:
        os.close(fd)
        os.unlink(path)


def wal_rate(directory: str, seconds: float) -> tuple[float, float]:
    """Return payload bytes/s made durable through a WalWriter, and process CPU us a record."""
    path = os.path.join(directory, "wal")
    room = threading.Event()
    writer = WalWriter.open(
        path,
        WalConfig(
            budget_bytes=1 << 40,
            min_free_bytes=0,
            segment_bytes=64 << 20,
            commit_bytes=COMMIT_BYTES,
        ),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
        on_durable=room.set,
    )
    try:
        topic = writer.declare_topic(TopicDeclaration("/imu", type_name="sensor_msgs/msg/Imu"))
        publisher = writer.declare_publisher(bytes(24))
        batches = cycle(_batches(topic, publisher))
        cpu = time.process_time()
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            batch = next(batches)
            while not writer.append(batch):
                room.wait(1)
                room.clear()
        if not writer.flush(60):
            raise RuntimeError(f"the log did not become durable: {writer.statistics()}")
        elapsed = time.monotonic() - started
        cpu = time.process_time() - cpu
        records = writer.statistics().records
        return records * RECORD_BYTES / elapsed, cpu / records * 1e6
    finally:
        writer.close()
        shutil.rmtree(path)


def run(seconds: float, directory: str | None = None) -> dict[str, object]:
    """Return name, ratio, target, floor and details; takes about ``seconds``."""
    root = tempfile.mkdtemp(prefix="thadam-bench-", dir=directory)
    rounds: list[tuple[float, float, float]] = []
    try:
        each = min(ROUND_SECONDS_MAX, seconds / (2 * ROUNDS_MIN))
        # The first round warms the allocator and the page cache and is not counted.
        for index in range(round(seconds / (2 * each)) + 1):
            if index % 2:
                bare = bare_rate(root, each)
                wal, cpu = wal_rate(root, each)
            else:
                wal, cpu = wal_rate(root, each)
                bare = bare_rate(root, each)
            rounds.append((bare, wal, cpu))
    finally:
        shutil.rmtree(root)
    rounds = rounds[1:]
    ratios = [wal / bare for bare, wal, _ in rounds]
    return {
        "name": NAME,
        "ratio": statistics.median(ratios),
        "target": TARGET,
        "floor": FLOOR,
        "details": {
            "bare_mb_s": statistics.median(r[0] for r in rounds) / 1e6,
            "wal_mb_s": statistics.median(r[1] for r in rounds) / 1e6,
            "wal_records_s": statistics.median(r[1] for r in rounds) / RECORD_BYTES,
            "cpu_us_per_record": statistics.median(r[2] for r in rounds),
            "ratios": ratios,
            "record_bytes": RECORD_BYTES,
            "commit_bytes": COMMIT_BYTES,
        },
    }


def _time(call: Callable[[], object], repeat: int = 30) -> float:
    """Return the median duration of ``call`` in microseconds."""
    durations = []
    for _ in range(repeat):
        started = time.perf_counter()
        call()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e6


def layouts() -> dict[str, float]:
    """Measure the alternatives for one frame of COMMIT_BYTES; microseconds each."""
    payloads = _payloads(COMMIT_BYTES // RECORD_BYTES)
    n = len(payloads)
    values = list(range(1_700_000_000_000_000_000, 1_700_000_000_000_000_000 + n))
    refs = [1] * n
    joined = b"".join(payloads)
    lengths = list(map(len, payloads))
    offsets64 = np.frombuffer(array("q", accumulate(lengths, initial=0)), "<i8")
    offsets32, lengths32 = offsets64.astype("<u4"), np.array(lengths, "<u4")
    fs = OsFileSystem()
    with tempfile.TemporaryFile() as file:
        fd = file.fileno()

        def interleaved() -> bytes:
            # A header in front of each record, as logs of single records have it.
            pack = RECORD_HEADER.pack
            pieces: list[bytes] = []
            for value, payload in zip(values, payloads, strict=True):
                pieces.append(pack(1, value, len(payload), value, 1, 1))
                pieces.append(payload)
            return b"".join(pieces)

        def crc_pieces() -> int:
            crc = 0
            for payload in payloads:
                crc = crc32c(payload, crc)
            return crc

        return {
            "records": n,
            "struct.pack from a list of int": _time(lambda: struct.pack(f"<{n}q", *values)),
            "array.array from a list of int": _time(lambda: array("q", values)),
            "numpy from a list of int": _time(lambda: np.array(values, dtype="<i8")),
            "references, struct.pack": _time(lambda: struct.pack(f"<{n}I", *refs)),
            "references, one value repeated": _time(
                lambda: struct.pack("<I", refs[0]) * n if refs.count(refs[0]) == n else b""
            ),
            "offsets: accumulate to array": _time(
                lambda: array("q", list(accumulate(map(len, payloads), initial=0)))
            ),
            "offsets: numpy cumsum": _time(
                lambda: np.cumsum(np.array(list(map(len, payloads)), dtype="<i8"))
            ),
            "interleaved record headers, joined": _time(interleaved, 5),
            "gather: b''.join": _time(lambda: b"".join(payloads)),
            "gather: join + pwritev": _time(lambda: fs.pwrite_all(fd, [b"".join(payloads)], 0)),
            "gather: pwritev of every payload": _time(lambda: fs.pwrite_all(fd, payloads, 0), 5),
            "crc32c over the joined payload": _time(lambda: crc32c(joined)),
            "crc32c over every payload": _time(crc_pieces, 5),
            "read offsets i64: view": _time(lambda: np.frombuffer(offsets64.data, "<i8")),
            "read offsets u32: widen": _time(
                lambda: np.frombuffer(offsets32.data, "<u4").astype("<i8")
            ),
            "read lengths u32: cumsum": _time(
                lambda: np.cumsum(np.frombuffer(lengths32.data, "<u4"), dtype="<i8")
            ),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--directory", help="where to write; default: the temporary directory")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layouts", action="store_true")
    args = parser.parse_args()
    if args.layouts:
        figures = layouts()
        if args.json:
            print(json.dumps(figures, indent=2))
        else:
            for name, value in figures.items():
                print(f"{value:12.1f}  {name}")
        return 0
    result = run(args.seconds, args.directory)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{NAME}: ratio {result['ratio']:.2f} (target {TARGET}, floor {FLOOR})")
        print(f"  {result['details']}")
    return 0 if result["ratio"] >= FLOOR else 1  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
