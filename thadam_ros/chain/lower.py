# SPDX-License-Identifier: Apache-2.0
"""Setting a cursor back, so that a range is read again (spec 2, ``RETAIN.lock``)."""

from __future__ import annotations

from thadam_ros.chain.cursor import Cursor, CursorStore
from thadam_ros.errors import FatalError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.layout import list_segments
from thadam_ros.wal.retain_lock import hold_segments


class RangeGoneError(FatalError):
    """The segment to read again from was deleted; the cursor is where it was."""


def lower_cursor(
    store: CursorStore,
    position: Position,
    epoch: int,
    state: bytes,
    *,
    wal_dir: str,
    fs: FileSystem,
) -> Cursor:
    """Make the chain read again what lies after ``position``.

    The new cursor is durable before the segment is looked for: a deletion pass that comes after
    it sees the cursor, one that came before it has left its trace in the directory.

    Args:
        store: Of a chain whose lock the caller holds and whose driver has voided every file
            above the stamped cut: the new cursor takes the next cut number.
        epoch: Epoch of the frame at ``position``.
        state: The state that belongs to ``position``.

    Returns:
        The cursor in force.

    Raises:
        RangeGoneError: The log no longer holds the frame after ``position``.
        ValueError: ``position`` is not below the cursor.
        FormatError: The cursor or the log is damaged or of another version.
        OSError: From the filesystem; the cursor may be the new one, which is safe.
    """
    before, state_before = store.load()
    before = before or Cursor()
    if position >= before.position:
        raise ValueError(f"{position} is not below the cursor {before.position}")
    with hold_segments(wal_dir):
        lowered = Cursor(position, epoch, before.cut_no + 1)
        store.commit(lowered, state)
        oldest = next(iter(list_segments(fs, wal_dir)), None)
        wanted = position.ordinal, position.frame + 1
        if oldest is not None and oldest[:2] <= wanted:
            return lowered
        restored = Cursor(before.position, before.epoch, before.cut_no + 2)
        store.commit(restored, state_before or b"")
    begins = "nothing" if oldest is None else str(Position(oldest.ordinal, oldest.first))
    asked = "the beginning" if position == BEFORE_ALL else str(position)
    raise RangeGoneError(
        f"the log begins with {begins} and no longer holds what follows {asked}; "
        "the cursor stays where it was"
    )
