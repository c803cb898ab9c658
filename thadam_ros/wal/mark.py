# SPDX-License-Identifier: Apache-2.0
"""The durable mark: one page, two slots, that says how far readers may go (spec 2).

The writer writes one slot after the other, so that one is whole at any moment and a damaged spot
leaves the other; each has a counter and a CRC, so that a garbage page is seen as such and never
believed. The writer writes through the file, readers map the page: both are the same page of the
kernel's cache, but a full or failing disk gives the writer an error instead of SIGBUS.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Final, NamedTuple

from crc32c import crc32c

from thadam_ros.errors import FormatError
from thadam_ros.model.position import Position
from thadam_ros.storage.atomic import replace_durably
from thadam_ros.storage.filesystem import FileSystem, PageMap

MARK_FILE: Final = "durable"
MARK_MAGIC: Final = b"THADAMDM"
MARK_VERSION: Final = 1
MARK_BYTES: Final = 4096
_SLOT_OFFSETS: Final = (0, MARK_BYTES // 2)
#: magic, version, CRC32C of the fields after it, counter, epoch, ordinal, position,
#: segment ordinal, segment first position, offset.
_HEAD: Final = struct.Struct("<8sII")
_FIELDS: Final = struct.Struct("<QQQqQqQ")
_SLOT_BYTES: Final = _HEAD.size + _FIELDS.size
#: A reader that meets a slot in the middle of a write looks again; the page is then whole.
_ATTEMPTS: Final = 3
#: A page that stays the same this often is mapped anew: the file may have been replaced.
_REMAP_AFTER: Final = 256


class Mark(NamedTuple):
    """Content of the durable mark.

    Attributes:
        position: Last durable frame; ``(ordinal, -1)`` when the epoch has none.
        segment_ordinal, segment_first: Segment that holds the end of the log, first -1 for none.
        offset: One past the last durable byte of that segment.
    """

    epoch: int
    position: Position
    segment_ordinal: int
    segment_first: int
    offset: int


def _pack(mark: Mark, counter: int) -> bytes:
    fields = _FIELDS.pack(
        counter,
        mark.epoch,
        mark.position.ordinal,
        mark.position.frame,
        mark.segment_ordinal,
        mark.segment_first,
        mark.offset,
    )
    return _HEAD.pack(MARK_MAGIC, MARK_VERSION, crc32c(fields)) + fields


def parse_page(page: bytes, path: str) -> tuple[int, Mark] | None:
    """Return counter and content of the newest slot that verifies, None when none does.

    Raises:
        FormatError: A slot is intact but of another version.
    """
    best: tuple[int, Mark] | None = None
    for offset in _SLOT_OFFSETS:
        slot = page[offset : offset + _SLOT_BYTES]
        if len(slot) < _SLOT_BYTES:
            continue
        magic, version, stored = _HEAD.unpack_from(slot)
        if magic != MARK_MAGIC or crc32c(slot[_HEAD.size :]) != stored:
            continue
        if version != MARK_VERSION:
            raise FormatError(
                f"{path} has durable mark version {version}; this software reads version "
                f"{MARK_VERSION}"
            )
        counter, epoch, ordinal, frame, segment_ordinal, first, end = _FIELDS.unpack_from(
            slot, _HEAD.size
        )
        if best is None or counter > best[0]:
            best = counter, Mark(epoch, Position(ordinal, frame), segment_ordinal, first, end)
    return best


def load_mark(fs: FileSystem, directory: str) -> Mark | None:
    """Return the mark of ``directory``; None when it is missing or does not verify.

    Raises:
        FormatError: It has another version.
        OSError: From the filesystem, except that the file does not exist.
    """
    path = os.path.join(directory, MARK_FILE)
    try:
        fd = fs.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = parse_page(fs.pread(fd, MARK_BYTES, 0), path)
    finally:
        fs.close(fd)
    return None if found is None else found[1]


class MarkWriter:
    """The writer's side; one per log, under the log's lock.

    Raises:
        OSError: From the filesystem.
    """

    def __init__(self, fs: FileSystem, directory: str, mark: Mark) -> None:
        self._fs = fs
        path = os.path.join(directory, MARK_FILE)
        found: tuple[int, Mark] | None = None
        if not fs.exists(path) or fs.size(path) != MARK_BYTES:
            replace_durably(fs, path, bytes(MARK_BYTES))
        self._fd = fs.open(path, os.O_RDWR)
        try:
            found = parse_page(fs.pread(self._fd, MARK_BYTES, 0), path)
            self._counter = 0 if found is None else found[0]
            self.move(mark)
            self.sync()
        except BaseException:
            fs.close(self._fd)
            raise

    def move(self, mark: Mark) -> None:
        """Expose ``mark`` to all readers; call only after its bytes are synced.

        May be called again after an error: a slot written twice says the same.
        """
        self._counter += 1
        slot = _pack(mark, self._counter)
        # One call: each one gives the interpreter away and may wait to get it back.
        page = b"".join(slot.ljust(MARK_BYTES // 2, b"\0") for _ in _SLOT_OFFSETS)
        self._fs.pwrite_all(self._fd, [page], 0)

    def sync(self) -> None:
        """Make the page itself durable: a start from it is then exact, not only safe."""
        self._fs.fsync(self._fd)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1


class FixedMark:
    """A mark that does not move, in place of a :class:`MarkReader`: for logs at rest."""

    unreadable = 0

    def __init__(self, mark: Mark | None) -> None:
        self._mark = mark

    def read(self) -> Mark | None:
        """Return the mark."""
        return self._mark

    def close(self) -> None:
        """Nothing to close."""


class MarkReader:
    """A reader's side, in any process and thread; keeps the newest mark that verified.

    The log may not exist yet: it is looked for again at each :meth:`read`.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, MARK_FILE)
        self._page: PageMap | None = None
        self._last: Mark | None = None
        self._raw = b""
        self._same = 0
        self._lock = threading.Lock()
        self.unreadable = 0

    def read(self) -> Mark | None:
        """Return the durable mark; None before there is one.

        A page that does not verify moves ``unreadable`` and leaves the last good mark in force:
        a mark only ever moves forward, so an old one is safe.

        Raises:
            FormatError: The page has another version.
            OSError: From the filesystem.
        """
        with self._lock:
            return self._read()

    def _read(self) -> Mark | None:
        page = self._map()
        if page is None:
            return self._last
        for _ in range(_ATTEMPTS):
            raw = page[:]
            if raw == self._raw:
                self._same += 1
                if self._same % _REMAP_AFTER == 0:
                    self._unmap()
                return self._last
            found = parse_page(raw, self._path)
            if found is not None:
                self._raw, self._last = raw, found[1]
                return self._last
        self.unreadable += 1
        return self._last

    def _map(self) -> PageMap | None:
        if self._page is None:
            try:
                fd = self._fs.open(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                # Mapping a shorter file would fault on access.
                if self._fs.size(self._path) < MARK_BYTES:
                    return None
                self._page = self._fs.map_readonly(fd, MARK_BYTES)
            finally:
                self._fs.close(fd)
        return self._page

    def close(self) -> None:
        """Unmap; may be called again."""
        with self._lock:
            self._unmap()

    def _unmap(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None
