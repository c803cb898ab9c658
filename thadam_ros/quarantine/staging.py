# SPDX-License-Identifier: Apache-2.0
"""Rejects on their way to quarantine: appended and fsynced before any put that covers them.

Format, recovery and crash windows are the docstring of the package.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thadam_ros.errors import FatalError, StorageFullError, TransientError
from thadam_ros.model.event import Reject
from thadam_ros.quarantine.format import (
    Damage,
    encode_header,
    encode_record,
    scan_segment,
    segment_name,
    segment_number,
)
from thadam_ros.quarantine.identity import IdentityIndex, identity_of
from thadam_ros.quarantine.reader import list_segments, read_staging
from thadam_ros.storage.atomic import read_whole
from thadam_ros.storage.filesystem import FileSystem

__all__ = ["QuarantineUnwritableError", "Staging", "StagingStatistics", "read_staging"]

#: A segment that has reached this size is not appended to any more.
SEGMENT_BYTES = 16 << 20

_DAMAGES_MAX = 100


class QuarantineUnwritableError(FatalError):
    """Staging cannot be written for another reason than space; no put may start (spec 1.6).

    The state reason is ``quarantine_unwritable``.
    """


@dataclass(frozen=True, slots=True)
class StagingStatistics:
    """Snapshot of staging; names that end in ``_total`` count since it was opened.

    Attributes:
        rejects: Rejects that staging holds.
        bytes: Their bytes on disk, headers included.
        segments: Files.
        appended_total: Rejects made durable.
        duplicates_total: Rejects not written because their identity was known.
        failures_total: Calls of ``append`` that raised.
        torn_bytes: Unacknowledged bytes cut off when it was opened.
        damaged: Ranges skipped when it was opened, at most 100.
        damaged_ranges: How many there were.
    """

    rejects: int = 0
    bytes: int = 0
    segments: int = 0
    appended_total: int = 0
    duplicates_total: int = 0
    failures_total: int = 0
    torn_bytes: int = 0
    damaged: tuple[Damage, ...] = ()
    damaged_ranges: int = 0


class Staging:
    """The staging of one chain; used by its lane alone, inside the chain's lock.

    Made by :meth:`open`. ``counts`` and ``statistics`` may be called from any thread.
    """

    def __init__(self, directory: str, fs: FileSystem, segment_bytes: int) -> None:
        self._directory = directory
        self._fs = fs
        self._segment_bytes = segment_bytes
        self._index = IdentityIndex()
        self._counts: Mapping[tuple[str, str], int] = {}
        self._fd = -1
        self._number = 0
        self._end = 0
        # Bytes beyond `_end` that do not count; cut off before the next append.
        self._dirty = False
        self._closed_bytes = 0
        self._segments = 0
        self._rejects = 0
        self._appended = 0
        self._duplicates = 0
        self._failures = 0
        self._torn_bytes = 0
        self._damaged: list[Damage] = []

    @classmethod
    def open(cls, directory: str, fs: FileSystem, *, segment_bytes: int = SEGMENT_BYTES) -> Staging:
        """Make the directory, cut a torn tail off and load what is known.

        Raises:
            FormatError: A segment has another version.
            StorageFullError: The disk is full.
            QuarantineUnwritableError: Any other error of the filesystem.
        """
        staging = cls(directory, fs, segment_bytes)
        try:
            fs.makedirs(directory)
            fs.fsync_dir(os.path.dirname(directory))
            staging._load()
        except OSError as exc:
            staging.close()
            raise staging._error(exc) from exc
        except BaseException:
            staging.close()
            raise
        return staging

    def append(self, rejects: Sequence[Reject]) -> int:
        """Make rejects durable, skipping those already known; return how many were new.

        A call that raises counts nothing and may be repeated with the same or other rejects.

        Raises:
            StorageFullError: Disk or quota is full (a ``TransientError``).
            QuarantineUnwritableError: Any other error of the filesystem.
        """
        keyed = {identity_of(reject): reject for reject in rejects}
        identities = list(keyed)
        known = self._index.known(identities)
        fresh = [key for key, old in zip(identities, known, strict=True) if not old]
        if fresh:
            try:
                end = self._write([(key, keyed[key]) for key in fresh])
            except OSError as exc:
                self._failures += 1
                raise self._error(exc) from exc
            # The end first: were the identities known before it, an interruption in between would
            # cut rejects off that are never appended again.
            self._end = end
            self._dirty = False
            self._index.add(fresh)
            self._count([keyed[key] for key in fresh])
            self._appended += len(fresh)
        self._duplicates += len(rejects) - len(fresh)
        return len(fresh)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return (domain, code) -> rejects held; a mapping that does not change afterwards."""
        return self._counts

    def statistics(self) -> StagingStatistics:
        """Return a snapshot."""
        return StagingStatistics(
            rejects=self._rejects,
            bytes=self._closed_bytes + self._end,
            segments=self._segments,
            appended_total=self._appended,
            duplicates_total=self._duplicates,
            failures_total=self._failures,
            torn_bytes=self._torn_bytes,
            damaged=tuple(self._damaged[:_DAMAGES_MAX]),
            damaged_ranges=len(self._damaged),
        )

    def close(self) -> None:
        """Close the segment; everything appended is durable already. May be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._fs.close(fd)

    def _load(self) -> None:
        names = list_segments(self._directory, self._fs)
        for name in names:
            path = os.path.join(self._directory, name)
            last = name == names[-1]
            if last:
                self._open_last(name, path)
            data = read_whole(self._fs, path)
            records: dict[bytes, Reject] = {}
            size = len(data)
            for found in scan_segment(name, data, last=last):
                if not isinstance(found, Damage):
                    records.setdefault(found.identity, found.reject)
                elif found.torn:
                    self._torn_bytes += found.end - found.start
                    size = found.start
                else:
                    self._damaged.append(found)
                    if last and found.start == 0:
                        # Records behind a broken header are read; none is added to them.
                        self.close()
            self._remember(records)
            self._closed_bytes += size
            if last and self._fd >= 0:
                if size < len(data):
                    self._fs.ftruncate(self._fd, size)
                    self._fs.fsync(self._fd)
                self._closed_bytes -= size
                self._end = size

    def _open_last(self, name: str, path: str) -> None:
        self._number = segment_number(name) or 0
        self._fd = self._fs.open(path, os.O_RDWR)
        # What can be read, name included, may still be in the page cache alone, left there by a
        # process that ended before its fsync; known means durable.
        self._fs.fsync(self._fd)
        self._fs.fsync_dir(self._directory)

    def _remember(self, records: Mapping[bytes, Reject]) -> None:
        self._segments += 1
        identities = list(records)
        known = self._index.known(identities)
        fresh = [key for key, old in zip(identities, known, strict=True) if not old]
        self._index.add(fresh)
        self._count([records[key] for key in fresh])

    def _write(self, fresh: Sequence[tuple[bytes, Reject]]) -> int:
        """Write records behind the last good end, fsync them, return the new end."""
        if self._dirty and self._fd >= 0:
            self._fs.ftruncate(self._fd, self._end)
        elif self._fd >= 0 and self._end >= self._segment_bytes:
            self._closed_bytes += self._end
            self.close()
        if self._fd < 0:
            # Number and end first: an interruption here costs a number, never a segment.
            self._number += 1
            self._end = 0
            path = os.path.join(self._directory, segment_name(self._number))
            self._fd = self._fs.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._segments += 1
        self._dirty = True
        begins = self._end == 0
        buffers = [encode_header()] if begins else []
        end = self._end + sum(map(len, buffers))
        for identity, reject in fresh:
            record = encode_record(identity, reject, end)
            buffers.append(record)
            end += len(record)
        self._fs.pwrite_all(self._fd, buffers, self._end)
        self._fs.fsync(self._fd)
        if begins:
            self._fs.fsync_dir(self._directory)
        return end

    def _count(self, rejects: Sequence[Reject]) -> None:
        added = Counter((reject.error_domain, reject.error_code) for reject in rejects)
        # A new mapping each time: readers in other threads hold the old one.
        self._counts = {
            key: self._counts.get(key, 0) + added[key] for key in {**self._counts, **added}
        }
        self._rejects += len(rejects)

    def _error(self, exc: OSError) -> TransientError | FatalError:
        where = exc.filename or self._directory
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFullError(
                f"rejects cannot be made durable in {self._directory}: {exc.strerror} ({where}); "
                "free some space, nothing is published until then"
            )
        return QuarantineUnwritableError(
            f"rejects cannot be made durable in {self._directory}: {exc.strerror} ({where}); "
            "give this process its folder back"
        )
