# SPDX-License-Identifier: Apache-2.0
"""WAL builders, a filesystem that fails on request, and an oracle that shares no code with the WAL.

:func:`list_valid_frames` knows the byte layout of :mod:`thadam_ros.wal` from its text and reads
it with ``struct`` alone: what a test compares the product with must not be the product.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import zstandard
from crc32c import crc32c

from thadam_ros.model.message import SourceBatch
from thadam_ros.storage.filesystem import OsFileSystem, PageMap


def make_batch(
    payloads: Sequence[bytes],
    *,
    topic_ref: int = 1,
    source_id: str = "robot",
    publisher_ref: int = 0,
    first_sequence: int | None = None,
    first_time_ns: int = 1_700_000_000_000_000_000,
    attributes: dict[int, dict[str, str]] | None = None,
) -> SourceBatch:
    """Return a batch of one topic, its records one microsecond apart."""
    n = len(payloads)
    return SourceBatch(
        source_id=source_id,
        topic_refs=[topic_ref] * n,
        ingest_times_ns=[first_time_ns + 1_000 * i for i in range(n)],
        payloads=list(payloads),
        source_timestamps_ns=[first_time_ns - 500 + 1_000 * i for i in range(n)],
        sequences=[0 if first_sequence is None else first_sequence + i + 1 for i in range(n)],
        publisher_refs=[publisher_ref] * n,
        attributes=attributes or {},
    )


# The oracle ---------------------------------------------------------------------------------

_SEGMENT_COPY = struct.Struct("<8sIIQQQq8sqQII")
_FRAME = struct.Struct("<8sQQIIBBBxIqq16sIIQII")
_MARK = struct.Struct("<8sIIQQQqQqQ")


@dataclass(frozen=True)
class OracleRecord:
    """One record as the bytes say."""

    topic: str
    payload: bytes
    ingest_time_ns: int
    source_timestamp_ns: int
    sequence: int
    publisher: bytes
    attributes: dict[str, str]


@dataclass(frozen=True)
class OracleFrame:
    """One data frame whose header and body verify, with its place in the file."""

    file: str
    start: int
    end: int
    ordinal: int
    epoch: int
    position: int
    source: str
    clock_synced: bool
    records: tuple[OracleRecord, ...] = field(repr=False)

    @property
    def place(self) -> tuple[int, int]:
        """(ordinal, position), as a ``Position`` compares."""
        return self.ordinal, self.position


def list_valid_frames(directory: str, *, durable_only: bool = True) -> list[OracleFrame]:
    """Return every CRC-valid data frame of a WAL directory in order.

    Args:
        durable_only: Leave out what lies above the durable mark; without a valid mark nothing
            is durable.
    """
    names = sorted(p.name for p in Path(directory).glob("*.wal"))
    frames: list[OracleFrame] = []
    for index, name in enumerate(names):
        found = scan_segment(name, (Path(directory) / name).read_bytes())
        if index + 1 < len(names):
            ordinal, _, first = names[index + 1].removesuffix(".wal").split("-")
            ends = int(ordinal), int(first)
            found = [frame for frame in found if frame.place < ends]
        frames += found
    if not durable_only:
        return frames
    mark = read_mark((Path(directory) / "durable").read_bytes())
    return [frame for frame in frames if mark is not None and frame.place <= mark]


def read_mark(page: bytes) -> tuple[int, int] | None:
    """Return (ordinal, position) of the durable mark, None when no slot verifies."""
    best: tuple[int, int, int] | None = None
    for offset in (0, 2048):
        if len(page) < offset + _MARK.size:
            continue
        fields = _MARK.unpack_from(page, offset)
        crc = crc32c(page[offset + 16 : offset + _MARK.size])
        if fields[:3] == (b"THADAMDM", 1, crc) and (best is None or fields[3] > best[0]):
            best = fields[3], fields[5], fields[6]
    return None if best is None else best[1:]


def scan_segment(name: str, data: bytes) -> list[OracleFrame]:
    """Return the valid data frames of one segment's bytes, wherever they lie after damage."""
    ordinal, epoch, first = name.removesuffix(".wal").split("-")
    identity = int(ordinal), int(epoch, 16)
    sync: bytes | None = None
    for start in (0, 80):
        copy = data[start : start + 80]
        if len(copy) == 80 and crc32c(copy[:76]) == struct.unpack("<I", copy[76:])[0]:
            sync = _SEGMENT_COPY.unpack(copy)[7]
            break
    names: dict[tuple[str, int], str] = {}
    frames: list[OracleFrame] = []
    offset, expected = 160, int(first)
    while offset + 96 <= len(data):
        h = _FRAME.unpack_from(data, offset)
        valid = (
            crc32c(data[offset : offset + 92]) == h[16]
            and (h[3], h[1]) == identity
            and h[2] >= expected
            and (sync is None or h[0] == sync)
        )
        if not valid:
            offset += 1
            continue
        sync = h[0]
        end = offset + 96 + (h[4] + 7) // 8 * 8
        body = data[offset + 96 : end]
        if len(body) == end - offset - 96 and crc32c(body) == h[15]:
            if h[5] == 2:
                _learn(names, _payload(h, body[: h[4]]))
            else:
                frames.append(_oracle_frame(name, offset, end, h, body[: h[4]], names))
        if h[5] == 1:
            expected = h[2] + 1
        offset = end
    return frames


def _payload(h: tuple[int, ...], stored: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(stored) if h[7] == 1 else stored


def _learn(names: dict[tuple[str, int], str], declarations: bytes) -> None:
    for entry in orjson.loads(declarations):
        names[entry["kind"], entry["ref"]] = entry.get("name") or entry["gid"]


def _oracle_frame(
    name: str,
    start: int,
    end: int,
    h: tuple[int, ...],
    body: bytes,
    names: dict[tuple[str, int], str],
) -> OracleFrame:
    n = h[12]
    arrays = struct.unpack_from(f"<{n}q{n}q{n}Q{n + 1}q{n}I{n}I", body)
    times, stamps, sequences = arrays[:n], arrays[n : 2 * n], arrays[2 * n : 3 * n]
    offsets, refs = arrays[3 * n : 4 * n + 1], arrays[4 * n + 1 : 5 * n + 1]
    publishers = arrays[5 * n + 1 :]
    at = 40 * n + 8
    attributes = orjson.loads(body[at : at + h[13]]) if h[13] else {}
    payload = _payload(h, body[at + (h[13] + 7) // 8 * 8 :])
    records = tuple(
        OracleRecord(
            topic=names.get(("topic", refs[i]), ""),
            payload=payload[offsets[i] : offsets[i + 1]],
            ingest_time_ns=times[i],
            source_timestamp_ns=stamps[i],
            sequence=sequences[i],
            publisher=bytes.fromhex(names.get(("publisher", publishers[i]), "")),
            attributes=attributes.get(str(i), {}),
        )
        for i in range(n)
    )
    return OracleFrame(
        file=name,
        start=start,
        end=end,
        ordinal=h[3],
        epoch=h[1],
        position=h[2],
        source=names.get(("source", h[8]), ""),
        clock_synced=bool(h[6] & 1),
        records=records,
    )


# Filesystems --------------------------------------------------------------------------------


class FaultyFileSystem(OsFileSystem):
    """The real filesystem, except for the calls that :meth:`fail` arms.

    Attributes:
        calls: (call, path) so far, in order.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._armed: list[_Fault] = []
        self._paths: dict[int, str] = {}

    def fail(
        self,
        call: str,
        error: int,
        *,
        times: int = 1,
        path: str = "",
        short_bytes: int | None = None,
    ) -> _Fault:
        """Let the next ``times`` calls of ``call`` on paths that contain ``path`` fail.

        Args:
            error: An errno.
            times: -1 for every call until :meth:`mend`.
            short_bytes: A write puts down this many bytes first.
        """
        fault = _Fault(call, error, times, path, short_bytes)
        self._armed.append(fault)
        return fault

    def mend(self) -> None:
        """Let everything work again."""
        self._armed.clear()

    def _check(self, call: str, path: str) -> _Fault | None:
        self.calls.append((call, path))
        for fault in self._armed:
            if fault.call == call and fault.path in path and fault.times:
                fault.times -= 1
                fault.hits += 1
                return fault
        return None

    def _raise(self, call: str, path: str) -> None:
        fault = self._check(call, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._raise("open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._raise("pread", self._paths.get(fd, ""))
        return super().pread(fd, size, offset)

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        path = self._paths.get(fd, "")
        fault = self._check("pwrite_all", path)
        if fault is None:
            return super().pwrite_all(fd, buffers, offset)
        if fault.short_bytes is not None:
            data = b"".join(bytes(memoryview(b).cast("B")) for b in buffers)
            super().pwrite_all(fd, [data[: fault.short_bytes]], offset)
        raise OSError(fault.error, os.strerror(fault.error), path)

    def fdatasync(self, fd: int) -> None:
        self._raise("fdatasync", self._paths.get(fd, ""))
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._raise("fsync", self._paths.get(fd, ""))
        super().fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        self._raise("ftruncate", self._paths.get(fd, ""))
        super().ftruncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        self._raise("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._raise("unlink", path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self._raise("fsync_dir", path)
        super().fsync_dir(path)


@dataclass
class _Fault:
    """One armed fault; ``hits`` counts how often it struck."""

    call: str
    error: int
    times: int
    path: str
    short_bytes: int | None
    hits: int = 0


class MemoryFileSystem:
    """Files in memory, for tests that open a log tens of thousands of times.

    Nothing is ever lost here: syncs do nothing. Directories exist as soon as they are named.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {path: bytearray(data) for path, data in (files or {}).items()}
        self._open: dict[int, bytearray] = {}
        self._next_fd = 1_000_000

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        data = self.files.get(path)
        if data is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            data = self.files[path] = bytearray()
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if flags & os.O_TRUNC:
            data[:] = b""
        self._next_fd += 1
        self._open[self._next_fd] = data
        return self._next_fd

    def close(self, fd: int) -> None:
        del self._open[fd]

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._open[fd][offset : offset + size])

    def map_readonly(self, fd: int, size: int) -> PageMap:
        return _MemoryMap(self._open[fd])

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        data = b"".join(bytes(memoryview(b).cast("B")) for b in buffers)
        target = self._open[fd]
        if len(target) < offset:
            target.extend(bytes(offset - len(target)))
        target[offset : offset + len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        assert fd in self._open

    def fsync(self, fd: int) -> None:
        assert fd in self._open

    def ftruncate(self, fd: int, size: int) -> None:
        data = self._open[fd]
        del data[size:]
        data.extend(bytes(size - len(data)))

    def size(self, path: str) -> int:
        return len(self._existing(path))

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self._existing(source)
        del self.files[source]

    def link(self, source: str, target: str) -> None:
        self.files[target] = self._existing(source)

    def unlink(self, path: str) -> None:
        self._existing(path)
        del self.files[path]

    def listdir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(p[len(prefix) :] for p in self.files if p.startswith(prefix))

    def exists(self, path: str) -> bool:
        return path in self.files

    def makedirs(self, path: str) -> None:
        """Directories need not be made."""

    def fsync_dir(self, path: str) -> None:
        """Directories are never lost."""

    def free_bytes(self, path: str) -> int:
        return self.total_bytes(path) // 2

    def total_bytes(self, path: str) -> int:
        return 1 << 40

    @property
    def open_files(self) -> int:
        """Descriptors not closed yet."""
        return len(self._open)

    def _existing(self, path: str) -> bytearray:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None


class _MemoryMap:
    def __init__(self, data: bytearray) -> None:
        self._data = data

    def __getitem__(self, key: slice) -> bytes:
        return bytes(self._data[key])

    def close(self) -> None:
        """Nothing to give back."""


def load_directory(directory: str) -> dict[str, bytes]:
    """Return path -> content of a directory's files, for a :class:`MemoryFileSystem`."""
    return {str(path): path.read_bytes() for path in Path(directory).iterdir() if path.is_file()}
