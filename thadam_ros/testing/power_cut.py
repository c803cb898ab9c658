# SPDX-License-Identifier: Apache-2.0
"""A disk in memory that knows what a power cut may take (spec 8.1).

Every file has the content that readers see and the content of its last fsync; every folder has the
names that readers see and those of its last ``fsync_dir``. :meth:`PowerCutFs.cut` gives a new disk
as it may look afterwards. Nothing is assumed beyond POSIX: a rename across folders is two
independent changes, an fsync of a file does not save its name.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


@dataclass(eq=False)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)


def no_fault(number: int, name: str) -> None:
    """A hook that does nothing."""


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class PowerCutFs:
    """A :class:`~thadam_ros.storage.filesystem.FileSystem` in memory.

    Args:
        hook: Called with (number from 1, name) before every call; may raise. The attribute of
            the same name may be replaced: another process then goes on with what this one left.
        far: Paths below this folder are on another filesystem: links to them fail.
    """

    def __init__(self, hook: Callable[[int, str], None] = no_fault, far: str = "") -> None:
        self._root = _Folder()
        self._fds: dict[int, _File] = {}
        self._next_fd = 3
        self.hook = hook
        self._far = far
        self.calls = 0

    def sync(self) -> None:
        """Make everything durable, as ``sync`` does; not a call of the product."""
        pending: list[_File | _Folder] = [self._root]
        while pending:
            node = pending.pop()
            if isinstance(node, _File):
                node.durable = bytes(node.content)
            else:
                node.durable = dict(node.names)
                pending += node.names.values()

    def cut(
        self, rng: random.Random | None, hook: Callable[[int, str], None] = no_fault
    ) -> PowerCutFs:
        """Return the disk after a power cut.

        Args:
            rng: None takes everything that was not synced; else each name and each content is
                kept, lost or torn by chance.
        """
        after = PowerCutFs(hook, self._far)
        survivors: dict[int, _File | _Folder] = {}
        root = self._survive(self._root, rng, survivors)
        assert isinstance(root, _Folder)
        after._root = root
        return after

    def _survive(
        self,
        node: _File | _Folder,
        rng: random.Random | None,
        survivors: dict[int, _File | _Folder],
    ) -> _File | _Folder:
        if id(node) in survivors:  # a hard link: both names keep one content
            return survivors[id(node)]
        if isinstance(node, _File):
            content = node.durable
            if rng is not None and bytes(node.content) != node.durable:
                whole = bytes(node.content)
                content = rng.choice(
                    [
                        node.durable,
                        whole,
                        whole[: rng.randint(0, len(whole))],
                        bytes(len(whole)),
                    ]
                )
            kept = _File(bytearray(content), content)
            survivors[id(node)] = kept
            return kept
        folder = _Folder()
        survivors[id(node)] = folder
        for name in {**node.names, **node.durable}:
            state = node.durable if rng is None else rng.choice([node.durable, node.names])
            child = state.get(name)
            if child is not None:
                folder.names[name] = self._survive(child, rng, survivors)
        folder.durable = dict(folder.names)
        return folder

    def _begin(self, name: str) -> None:
        self.calls += 1
        self.hook(self.calls, name)

    def _find(self, path: str) -> _File | _Folder:
        node: _File | _Folder = self._root
        for part in path.strip("/").split("/"):
            if not part:
                continue
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR, path)
            if part not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[part]
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if isinstance(node, _Folder):
            raise _error(errno.EISDIR, path)
        return node

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._begin("open")
        parent, name = posixpath.split(path)
        names = self._folder(parent).names
        if name not in names:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            names[name] = _File()
        file = self._file(path)
        if flags & os.O_TRUNC:
            file.content = bytearray()
        self._next_fd += 1
        self._fds[self._next_fd] = file
        return self._next_fd

    def close(self, fd: int) -> None:
        self._begin("close")
        del self._fds[fd]

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._begin("pread")
        return bytes(self._fds[fd].content[offset : offset + size])

    def pwrite_all(
        self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> int:
        self._begin("pwrite_all")
        data = b"".join(buffers)
        content = self._fds[fd].content
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def fsync(self, fd: int) -> None:
        self._begin("fsync")
        self._fds[fd].durable = bytes(self._fds[fd].content)

    def ftruncate(self, fd: int, size: int) -> None:
        self._begin("ftruncate")
        content = self._fds[fd].content
        content[size:] = bytes(max(0, size - len(content)))

    def size(self, path: str) -> int:
        self._begin("size")
        return len(self._file(path).content)

    def rename(self, source: str, target: str) -> None:
        self._begin("rename")
        node = self._find(source)
        self._folder(posixpath.dirname(target)).names[posixpath.basename(target)] = node
        del self._folder(posixpath.dirname(source)).names[posixpath.basename(source)]

    def link(self, source: str, target: str) -> None:
        self._begin("link")
        file = self._file(source)
        names = self._folder(posixpath.dirname(target)).names
        if posixpath.basename(target) in names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        if self._far and target.startswith(self._far):
            raise _error(errno.EXDEV, target)
        names[posixpath.basename(target)] = file

    def unlink(self, path: str) -> None:
        self._begin("unlink")
        self._file(path)
        del self._folder(posixpath.dirname(path)).names[posixpath.basename(path)]

    def listdir(self, path: str) -> list[str]:
        self._begin("listdir")
        return sorted(self._folder(path).names)

    def exists(self, path: str) -> bool:
        self._begin("exists")
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def makedirs(self, path: str) -> None:
        self._begin("makedirs")
        folder = self._root
        for part in path.strip("/").split("/"):
            child = folder.names.setdefault(part, _Folder())
            if isinstance(child, _File):
                raise _error(errno.ENOTDIR, path)
            folder = child

    def fsync_dir(self, path: str) -> None:
        self._begin("fsync_dir")
        folder = self._folder(path)
        folder.durable = dict(folder.names)

    def free_bytes(self, path: str) -> int:
        """Half of the disk is always free; asking changes nothing, so it is no step."""
        return self.total_bytes(path) // 2

    def total_bytes(self, path: str) -> int:
        return 1 << 40

    def tree(self, path: str) -> dict[str, bytes]:
        """Return path -> content of every file below a folder; not a call of the product."""
        found: dict[str, bytes] = {}
        try:
            folder = self._folder(path)
        except OSError:
            return found
        for name, node in folder.names.items():
            below = f"{path}/{name}"
            if isinstance(node, _File):
                found[below] = bytes(node.content)
            else:
                found |= self.tree(below)
        return found
