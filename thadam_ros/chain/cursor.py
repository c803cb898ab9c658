# SPDX-License-Identifier: Apache-2.0
"""The cursor file: the last stamped cut and the state file that belongs to it (spec 4.1)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import crc32c
import orjson

from thadam_ros.errors import FormatError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.atomic import TEMP_SUFFIX, read_whole, replace_durably
from thadam_ros.storage.filesystem import FileSystem

CURSOR_FORMAT = 1
STATE_PREFIX = "state-"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything at or below ``position`` is settled for every dataset of the sink.

    Attributes:
        position: Last settled frame, or :data:`BEFORE_ALL`.
        epoch: Epoch of that frame; 0 before the first.
        cut_no: Number of the stamped cut; never decreases.
    """

    position: Position = BEFORE_ALL
    epoch: int = 0
    cut_no: int = 0


class CursorStore:
    """Reads and commits the cursor and its state in one chain folder.

    The caller holds the chain's lock.
    """

    def __init__(self, directory: str, fs: FileSystem) -> None:
        self._directory = directory
        self._fs = fs
        self._path = os.path.join(directory, "cursor")

    def load(self) -> tuple[Cursor | None, bytes | None]:
        """Return the cursor and its state, or (None, None) for a chain that never stamped.

        Leftovers of an interrupted commit (unnamed state files, temporary files) are deleted.

        Raises:
            FormatError: If the cursor or its state is damaged or of another version.
        """
        # After a kill the newest rename may live in the page cache alone. It is made durable before
        # anything is built on it or an older state, which an older cursor would name, is deleted.
        self._fs.fsync_dir(self._directory)
        cursor, state_name, state = self._read()
        for name in self._fs.listdir(self._directory):
            unnamed_state = name.startswith(STATE_PREFIX) and name != state_name
            if unnamed_state or name == "cursor" + TEMP_SUFFIX:
                self._fs.unlink(os.path.join(self._directory, name))
        return cursor, state

    def commit(self, cursor: Cursor, state: bytes) -> None:
        """Make ``cursor`` and ``state`` durable together.

        Raises:
            OSError: Nothing can be said about which of the two cursors a crash would leave; the
                caller must use a higher ``cut_no`` for its next try.
        """
        state_name = f"{STATE_PREFIX}{cursor.cut_no}"
        replace_durably(self._fs, os.path.join(self._directory, state_name), state)
        document: dict[str, object] = {
            "format": CURSOR_FORMAT,
            "ordinal": cursor.position.ordinal,
            "position": cursor.position.frame,
            "epoch": cursor.epoch,
            "cut_no": cursor.cut_no,
            "state": state_name,
            "state_crc32c": crc32c.crc32c(state),
        }
        replace_durably(self._fs, self._path, orjson.dumps({**document, "crc32c": _crc(document)}))
        self._delete_older_states(state_name)

    def _delete_older_states(self, keep: str) -> None:
        for name in self._fs.listdir(self._directory):
            if name.startswith(STATE_PREFIX) and name != keep:
                self._fs.unlink(os.path.join(self._directory, name))

    def _read(self) -> tuple[Cursor | None, str | None, bytes | None]:
        parsed = read_cursor_document(self._path, self._fs)
        if parsed is None:
            return None, None, None
        cursor, document = parsed
        state_name = str(document["state"])
        path = os.path.join(self._directory, state_name)
        try:
            state = read_whole(self._fs, path)
        except FileNotFoundError as exc:
            raise FormatError(f"{self._path} names {state_name}, which does not exist") from exc
        if crc32c.crc32c(state) != document["state_crc32c"]:
            raise FormatError(f"{path}: checksum differs from the one in {self._path}")
        return cursor, state_name, state


def read_cursor(directory: str, fs: FileSystem) -> Cursor | None:
    """Return the cursor of a chain folder without touching anything, None before the first stamp.

    Raises:
        FormatError: If the cursor is damaged or of another version.
    """
    parsed = read_cursor_document(os.path.join(directory, "cursor"), fs)
    return None if parsed is None else parsed[0]


def read_cursor_document(path: str, fs: FileSystem) -> tuple[Cursor, dict[str, object]] | None:
    """Parse and verify a cursor file; None when there is none."""
    try:
        raw = read_whole(fs, path)
    except FileNotFoundError:
        return None
    try:
        document = orjson.loads(raw)
        stated = document.pop("crc32c")
        version = document["format"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as exc:
        raise FormatError(f"{path}: not a cursor file") from exc
    if version != CURSOR_FORMAT:
        raise FormatError(f"{path}: format {version}, this software reads {CURSOR_FORMAT}")
    if stated != _crc(document):
        raise FormatError(f"{path}: checksum differs, the file is damaged")
    position = Position(int(document["ordinal"]), int(document["position"]))
    return Cursor(position, int(document["epoch"]), int(document["cut_no"])), document


def _crc(document: dict[str, object]) -> int:
    return int(crc32c.crc32c(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)))
