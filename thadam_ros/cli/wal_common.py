# SPDX-License-Identifier: Apache-2.0
"""What the actions of ``thadam wal`` share: where the log is, and how places in it are written."""

from __future__ import annotations

import argparse
import os
import re
from datetime import datetime, timedelta, timezone
from typing import Final

from thadam_ros.errors import ThadamError
from thadam_ros.model.position import Position
from thadam_ros.wal.ranges import DamagedRange, Gap

DEFAULT_DATA_DIR: Final = "/var/lib/thadam"
_POSITION: Final = re.compile(r"(?:(\d{1,10}):)?(\d{1,19})")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?"
    r"(?:(Z)|([+-])(\d\d):?(\d\d))?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Declare ``--data-dir``, and ``--json`` once more: also accepted after the action."""
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help=f"edge.data_dir (default: $THADAM_DATA_DIR, else {DEFAULT_DATA_DIR})",
    )
    # The value given before the action must not be overwritten by a default.
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )


def default_data_dir() -> str:
    """Return the data_dir where no argument names one."""
    return os.environ.get("THADAM_DATA_DIR") or DEFAULT_DATA_DIR


def log_directory(given: str) -> str:
    """Return the log's own folder: ``given`` or ``wal`` in it.

    Raises:
        ThadamError: Neither exists.
    """
    for directory in (os.path.join(given, "wal"), given):
        if os.path.isdir(directory):
            return directory
    raise ThadamError(f"{given} does not exist: name a data_dir, or the wal folder in one")


def parse_position(text: str) -> Position:
    """Return the position that ``17`` or ``1:17`` names."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a position; valid: 17 or 0:17")
    return Position(int(match[1] or 0), int(match[2]))


def parse_bound(text: str) -> Position | int:
    """Return a position, or the ns since the Unix epoch of a time; without a zone it is UTC."""
    if _POSITION.fullmatch(text):
        return parse_position(text)
    match = _TIME.fullmatch(text)
    if match is not None:
        clock = match[2] or "00:00"
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{clock}").replace(tzinfo=timezone.utc)
        except ValueError:
            moment = None
        if moment is not None:
            if match[5]:
                offset = timedelta(hours=int(match[6]), minutes=int(match[7]))
                moment -= offset if match[5] == "+" else -offset
            # Whole seconds as integers: a float would lose nanoseconds.
            seconds = (moment - _EPOCH) // timedelta(seconds=1)
            return seconds * 1_000_000_000 + int((match[3] or "0").ljust(9, "0"))
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a position nor a time; valid: 17, 1:17, 2026-03-01, "
        "2026-03-01T12:30:05.25Z, 2026-03-01T12:30+01:00"
    )


def format_time(ns: int) -> str:
    """Return a wall clock time with nanoseconds, empty for 0."""
    if not ns:
        return ""
    seconds, rest = divmod(ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z"


def range_document(item: DamagedRange) -> dict[str, object]:
    """Return a bad range for JSON output."""
    return {
        "file": item.file,
        "start": item.start,
        "end": item.end,
        "kind": item.kind,
        "first": None if item.first is None else list(item.first),
        "last": None if item.last is None else list(item.last),
    }


def gap_document(gap: Gap) -> dict[str, object]:
    """Return a gap for JSON output."""
    return {"first": list(gap.first), "last": list(gap.last), "before_file": gap.before_file}
