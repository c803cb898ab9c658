# SPDX-License-Identifier: Apache-2.0
"""A power cut at every call of the disk: what was durable is there, in order, with its content."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import PageMap
from thadam_ros.testing.power_cut import PowerCutFs, no_fault
from thadam_ros.testing.wal import make_batch
from thadam_ros.wal.encode import EncodedFrame, Stamp, encode_frame, pack_batch
from thadam_ros.wal.layout import list_segments
from thadam_ros.wal.log import SegmentLog
from thadam_ros.wal.recovery import make_directory, recover

from .logs import read_all

DIRECTORY = "/data/wal"
BLOCK_BYTES = 64
SEEDS = [(None,), tuple(range(1, 13)), pytest.param(tuple(range(13, 200)), marks=pytest.mark.long)]


class _PowerCut(BaseException):
    """The lights went out."""


class _Page:
    def __init__(self, fs: Disk, fd: int) -> None:
        self._content = fs.pread(fd, 1 << 20, 0)

    def __getitem__(self, key: slice) -> bytes:
        return self._content[key]

    def close(self) -> None:
        """Nothing to unmap."""


class Disk(PowerCutFs):
    """The simulated disk with what only the log asks of it.

    What a cut leaves of a file is finer than in the base: bytes that were synced and not written
    since stay; each block of unsynced bytes is kept, lost, zeroed or garbage on its own.
    """

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_EXCL and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return super().open(path, flags, mode)

    def map_readonly(self, fd: int, size: int) -> PageMap:
        return _Page(self, fd)

    def after(self, rng: random.Random | None, hook: Callable[[int, str], None]) -> Disk:
        disk = Disk(hook)
        disk._root = self.cut(rng)._root
        return disk

    def _survive(self, node: Any, rng: random.Random | None, survivors: dict[int, Any]) -> Any:
        if rng is None or not hasattr(node, "content") or id(node) in survivors:
            return super()._survive(node, rng, survivors)
        left = _left_of(bytes(node.content), node.durable, rng)
        kept = survivors[id(node)] = type(node)(bytearray(left), left)
        return kept


def _left_of(content: bytes, durable: bytes, rng: random.Random) -> bytes:
    """Return what may be left of a file that holds ``content`` and was synced as ``durable``."""
    if content == durable:
        return durable
    size = rng.choice(
        [len(durable), len(content), rng.randint(*sorted((len(durable), len(content))))]
    )
    left = bytearray(durable[:size].ljust(size, b"\0"))
    for start in range(0, size, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, size)
        old, new = left[start:end], content[start:end].ljust(end - start, b"\0")
        written = rng.choice([old, new, new, bytes(end - start), rng.randbytes(end - start)])
        for at in range(start, end):
            if at >= len(durable) or durable[at : at + 1] != content[at : at + 1]:
                left[at] = written[at - start]
    return bytes(left)


def _cut_at(call: int) -> Callable[[int, str], None]:
    def hook(number: int, name: str) -> None:
        if number >= call:
            raise _PowerCut(f"at call {number}, {name}")

    return hook


def _frame(payload: bytes) -> EncodedFrame:
    stamp = Stamp(1, 2, bytes(16), True)
    return encode_frame([pack_batch(make_batch([payload]), stamp, 0)], None)


def _declare(topics: bool, refs: Sequence[int]) -> list[dict[str, object]]:
    return [{"kind": "topic", "ref": ref, "name": f"/t{ref}"} for ref in refs if topics]


def _session(fs: Disk, durable: dict[int, bytes], name: str) -> None:
    """Open, recover, write four commits of one or two frames over two segments, close.

    ``durable`` learns position -> payload after each commit returned.
    """
    make_directory(fs, DIRECTORY)
    recovered = recover(fs, DIRECTORY, cursors=(), draw_epoch=lambda: 5)
    log = SegmentLog(
        fs,
        DIRECTORY,
        recovered.mark,
        segment_bytes=900,
        segments=len(list_segments(fs, DIRECTORY)),
        declare=_declare,
        time_ns=lambda: 1,
        random_bytes=lambda size: random.Random(len(durable)).randbytes(size),
    )
    for commit in range(4):
        payloads = [f"{name}-{commit}-{i}".encode() * 9 for i in range(1 + commit % 2)]
        position = log.mark.position.frame
        log.write([_frame(payload) for payload in payloads])
        durable.update({position + 1 + i: p for i, p in enumerate(payloads)})
    log.close()


def _check(fs: Disk, durable: dict[int, bytes]) -> int:
    """Recover and read: all of ``durable`` is there. Return the number of frames."""
    make_directory(fs, DIRECTORY)
    recovered = recover(fs, DIRECTORY, cursors=(), draw_epoch=lambda: 5)
    log = SegmentLog(
        fs,
        DIRECTORY,
        recovered.mark,
        segment_bytes=900,
        segments=0,
        declare=_declare,
        time_ns=lambda: 1,
    )
    log.close()
    outcome = read_all(fs, DIRECTORY)
    seen = {frame.position: frame.payload.tobytes() for frame in outcome.frames}
    positions = [frame.position for frame in outcome.frames]
    assert positions == sorted(set(positions)), "served twice or out of order"
    assert {p: seen.get(p) for p in durable} == durable
    assert not outcome.gaps
    # Of a commit of two frames the cut may take the first: damage, but of nothing durable.
    lost = {p for p in durable if any(r.loses(Position(0, p)) for r in outcome.ranges)}
    assert not lost
    return len(seen)


@pytest.mark.parametrize(
    "seeds", SEEDS, ids=["nothing unsynced is left", "some is left", "some is left, long"]
)
def test_what_was_durable_survives_a_power_cut_at_every_call(
    seeds: tuple[int | None, ...],
) -> None:
    """Two sessions; the cut falls into each call of either, and then into the recovery after it."""
    first: dict[int, bytes] = {}
    base = Disk()
    base.makedirs("/data")
    base.sync()
    _session(base, first, "first")
    length = base.after(None, no_fault)
    _session(length, dict(first), "second")
    for seed in seeds:
        for call in range(1, length.calls + 1):
            rng = None if seed is None else random.Random(10_000 * seed + call)
            durable = dict(first)
            disk = base.after(rng, _cut_at(call))
            with pytest.raises(_PowerCut):
                _session(disk, durable, "second")
            again = disk.after(rng, _cut_at(1 + call // 3))
            more = dict(durable)
            with contextlib.suppress(_PowerCut):
                _session(again, more, "third")
            finished = again.after(rng, no_fault)
            assert _check(finished, more) >= len(more)


def test_a_killed_process_and_then_a_power_cut_lose_nothing_that_was_exposed() -> None:
    """What the first process wrote but never synced is synced before the second one exposes it."""
    base = Disk()
    base.makedirs("/data")
    base.sync()
    length = base.after(None, no_fault)
    _session(length, {}, "first")
    for call in range(1, length.calls + 1):
        disk = base.after(None, _cut_at(call))
        with pytest.raises(_PowerCut):
            _session(disk, {}, "first")
        disk.hook = no_fault
        exposed: dict[int, bytes] = {}
        _session(disk, exposed, "second")
        exposed |= {f.position: f.payload.tobytes() for f in read_all(disk, DIRECTORY).frames}
        _check(disk.after(None, no_fault), exposed)
