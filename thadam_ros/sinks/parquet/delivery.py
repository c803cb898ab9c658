# SPDX-License-Identifier: Apache-2.0
"""Moving stamped files into the visible folder; what may be repeated and why is in the package.

Every ``OSError`` of this module leaves through :class:`Delivery` as a ``TransientError``: the
visible folder belongs to somebody else and may come back at any time, the sealed file stays.
"""

from __future__ import annotations

import errno
import os
from enum import Enum

import xxhash

from thadam_ros.errors import FatalError, StorageFullError, TransientError
from thadam_ros.sinks.parquet.layout import SealedFile, partition_folder
from thadam_ros.storage.atomic import TEMP_SUFFIX, read_whole, replace_durably
from thadam_ros.storage.filesystem import FileSystem

#: One piece of work copies this many bytes at most.
COPY_STEP_BYTES = 8 << 20

#: Folder below the url in which copies grow. Not beside their targets: polars refuses to scan a
#: dataset folder that holds a file with another ending, hidden or not.
INCOMING_FOLDER = ".incoming"

#: Partition folders remembered as existing, so that each is made and synced once.
_FOLDERS_KNOWN_MAX = 4096

#: A hard link is impossible here, copying may be possible.
_NO_LINK = frozenset(
    {
        errno.EXDEV,
        errno.EPERM,
        errno.EMLINK,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
    }
)


class Step(Enum):
    """What one step of a delivery came to."""

    COPYING = "copying"
    DELIVERED = "delivered"
    ALREADY_THERE = "already there"
    REPLACED = "replaced"


class Delivery:
    """Delivers one file at a time from ``sealed_dir`` to the folder ``url_dir``.

    Args:
        sink: Name of the sink, for messages.
        marker: Path of the file that remembers that ``url_dir`` was seen.
    """

    def __init__(
        self, sink: str, sealed_dir: str, url_dir: str, marker: str, *, fs: FileSystem
    ) -> None:
        self._sink = sink
        self._sealed_dir = sealed_dir
        self._url_dir = url_dir
        self._marker = marker
        self._fs = fs
        self._folders: set[str] = set()
        self._copy: _Copy | None = None

    def step(self, file: SealedFile) -> Step:
        """Take ``file`` one step further; anything but COPYING means it is visible and unsealed.

        A step on another file than the last one gives an unfinished copy up. Bytes are fsynced,
        and so is the name, before the sealed file goes.

        Raises:
            TransientError: The folder cannot be written; ``StorageFullError`` when it is full.
            FatalError: The sealed file is gone and no visible file has its bytes.
        """
        try:
            return self._step(file)
        except OSError as exc:
            self.reset()
            raise self._transient(exc) from exc

    def reset(self) -> None:
        """Forget an unfinished copy and what was known about the folder. May be called again."""
        self._folders.clear()
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _step(self, file: SealedFile) -> Step:
        self._require_url_folder()
        folder = os.path.join(self._url_dir, partition_folder(file.key))
        self._make_folder(folder)
        source = os.path.join(self._sealed_dir, file.sealed_name)
        target = os.path.join(folder, file.name)
        if self._copy is not None:
            if self._copy.target == target:
                return self._continue_copy(self._copy, source, folder)
            copy, self._copy = self._copy, None
            copy.close()
        try:
            self._fs.link(source, target)
        except FileExistsError:
            if self._same_bytes(target, file):
                return self._finish(source, folder, Step.ALREADY_THERE)
            self._copy = self._begin_copy(source, target, Step.REPLACED)
        except FileNotFoundError:
            self._sealed_gone(source, target, file)
            return self._finish(source, folder, Step.ALREADY_THERE)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            if self._fs.exists(target) and self._same_bytes(target, file):
                return self._finish(source, folder, Step.ALREADY_THERE)
            self._copy = self._begin_copy(source, target, Step.DELIVERED)
        else:
            return self._finish(source, folder, Step.DELIVERED)
        return self._continue_copy(self._copy, source, folder)

    def _begin_copy(self, source: str, target: str, outcome: Step) -> _Copy:
        incoming = os.path.join(self._url_dir, INCOMING_FOLDER)
        self._fs.makedirs(incoming)
        return _Copy(self._fs, source, target, incoming, outcome)

    def _continue_copy(self, copy: _Copy, source: str, folder: str) -> Step:
        if copy.step():
            return Step.COPYING
        self._copy = None
        return self._finish(source, folder, copy.outcome)

    def _finish(self, source: str, folder: str, outcome: Step) -> Step:
        self._sync_folder(folder)
        # The removal needs no fsync: a name that comes back is delivered again, to itself.
        if self._fs.exists(source):
            self._fs.unlink(source)
        return outcome

    def _require_url_folder(self) -> None:
        if self._fs.exists(self._url_dir):
            return
        parent = os.path.dirname(self._url_dir)
        if self._remembered_url() == self._url_dir:
            reason = (
                "it was there before: mount it again, or create it if it was removed on purpose"
            )
        elif not self._fs.exists(parent):
            reason = f"nor is {parent}: mount or create it"
        else:
            self._fs.makedirs(self._url_dir)
            self._sync_folder(parent)
            return
        raise TransientError(
            f"sink {self._sink}: the folder {self._url_dir} is not there; {reason}. "
            "Sealed files wait, nothing is lost"
        )

    def _remember_url(self) -> None:
        if self._remembered_url() != self._url_dir:
            replace_durably(self._fs, self._marker, self._url_dir.encode())

    def _remembered_url(self) -> str:
        try:
            return read_whole(self._fs, self._marker).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _make_folder(self, folder: str) -> None:
        """Make a partition folder and fsync every level, so that no name in it can be lost."""
        if folder in self._folders:
            return
        self._fs.makedirs(folder)
        level = folder
        while level != self._url_dir:
            level = os.path.dirname(level)
            self._sync_folder(level)
        if not self._folders:
            # Only now is it sure to be a folder that can be written.
            self._remember_url()
        if len(self._folders) >= _FOLDERS_KNOWN_MAX:
            self._folders.clear()
        self._folders.add(folder)

    def _sync_folder(self, folder: str) -> None:
        try:
            self._fs.fsync_dir(folder)
        except OSError as exc:
            # Some network filesystems have no fsync of folders; nothing better exists there.
            if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def _same_bytes(self, target: str, file: SealedFile) -> bool:
        """Whether a visible file has the bytes that its name promises."""
        if self._fs.size(target) != file.size:
            return False
        digest = xxhash.xxh3_64()
        fd = self._fs.open(target, os.O_RDONLY)
        try:
            offset = 0
            while chunk := self._fs.pread(fd, COPY_STEP_BYTES, offset):
                digest.update(chunk)
                offset += len(chunk)
        finally:
            self._fs.close(fd)
        return digest.hexdigest() == file.content_hash

    def _sealed_gone(self, source: str, target: str, file: SealedFile) -> None:
        """Tell a vanished sealed file from a vanished folder; return when it is visible."""
        if self._fs.exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target)
        if self._fs.exists(target) and self._same_bytes(target, file):
            return
        raise FatalError(
            f"sink {self._sink}: the sealed file {source} was removed by somebody before it was "
            "delivered; restore it, or run `thadam replay` over the range in its lineage"
        )

    def _transient(self, exc: OSError) -> TransientError:
        kind = TransientError
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            kind = StorageFullError
        where = exc.filename2 or exc.filename or self._url_dir
        return kind(
            f"sink {self._sink}: cannot deliver to {self._url_dir}: {exc.strerror} ({where}). "
            "Make the folder writable again; sealed files wait, nothing is lost"
        )


class _Copy:
    """A copy in the incoming folder, renamed to its target when whole."""

    def __init__(
        self, fs: FileSystem, source: str, target: str, incoming: str, outcome: Step
    ) -> None:
        self.target = target
        self.outcome = outcome
        self._fs = fs
        # The name holds epoch and hash: no other robot that shares the url has the same.
        self._temp = os.path.join(incoming, os.path.basename(target) + TEMP_SUFFIX)
        self._offset = 0
        self._source_fd = fs.open(source, os.O_RDONLY)
        self._fd = -1
        try:
            self._fd = fs.open(self._temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except OSError:
            self.close()
            raise

    def step(self) -> bool:
        """Copy one piece; False when the target has its name.

        Raises:
            OSError: From the filesystem; the copy must be given up.
        """
        chunk = self._fs.pread(self._source_fd, COPY_STEP_BYTES, self._offset)
        if chunk:
            self._offset += self._fs.pwrite_all(self._fd, [chunk], self._offset)
            return True
        self._fs.fsync(self._fd)
        self.close()
        self._fs.rename(self._temp, self.target)
        return False

    def close(self) -> None:
        """Close both descriptors; the temp is overwritten by the next attempt."""
        for fd in (self._source_fd, self._fd):
            if fd >= 0:
                self._fs.close(fd)
        self._source_fd = self._fd = -1
