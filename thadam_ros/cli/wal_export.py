# SPDX-License-Identifier: Apache-2.0
"""``thadam wal export``: a window of the log as a rosbag2 bag."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thadam_ros.cli.progress import Progress
from thadam_ros.cli.terminal import human_bytes, print_json, print_table
from thadam_ros.cli.wal_common import (
    add_data_dir,
    default_data_dir,
    gap_document,
    log_directory,
    parse_bound,
    range_document,
)
from thadam_ros.errors import ConfigError, Problem
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.fsck import describe_gap, describe_range

if TYPE_CHECKING:
    from thadam_ros.files.wal_export import ExportResult, Window

HELP = "write a window of the log as a rosbag2 bag (MCAP)"
#: Keys of ``files.bag_writer.COMPRESSIONS``, which only an export has to import.
COMPRESSIONS: Final = ("none", "zstd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Reads what is durable, also beside a running writer. Exit code 1 when frames of the "
        "window are damaged or missing."
    )
    parser.add_argument("bag", metavar="BAG", help="folder to make; it must not exist")
    add_data_dir(parser)
    bound = "a position (17, or 1:17 in a later epoch), or a time (2026-03-01T12:30:05Z)"
    parser.add_argument(
        "--from", dest="start", type=parse_bound, metavar="WHERE", help=f"first: {bound}"
    )
    parser.add_argument(
        "--to", dest="end", type=parse_bound, metavar="WHERE", help="last, included: the same forms"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="GLOB",
        help="only such topics; * within a level, ** across; may be repeated",
    )
    parser.add_argument("--source", metavar="NAME", help="only what this source captured")
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, default="zstd", help="of chunks (zstd)"
    )


def run(args: argparse.Namespace) -> int:
    """Export.

    Raises:
        ThadamError: No such log, the folder exists, a file is of another version.
        OSError: From the filesystem.
    """
    from thadam_ros.files.wal_export import export_window

    window = _window(args)
    directory = log_directory(args.data_dir or default_data_dir())
    with Progress("exported") as progress:
        result = export_window(
            directory,
            Path(args.bag),
            window,
            fs=OsFileSystem(),
            compression=args.compression,
            progress=lambda so_far: progress.update(so_far.messages, so_far.bytes),
        )
    if args.json:
        print_json(_document(args.bag, result))
    else:
        _print(args.bag, result)
    return 0 if result.is_whole else 1


def _window(args: argparse.Namespace) -> Window:
    from thadam_ros.files.wal_export import Window

    start, end = args.start, args.end
    window = Window(
        first=start if isinstance(start, Position) else None,
        last=end if isinstance(end, Position) else None,
        from_ns=start if isinstance(start, int) else None,
        to_ns=end if isinstance(end, int) else None,
        topics=tuple(args.topic),
        source=args.source,
    )
    if type(start) is type(end) and start is not None and start > end:
        raise ConfigError([Problem("--to", args.end, "comes before --from; exchange the two")])
    return window


def _document(bag: str, result: ExportResult) -> dict[str, object]:
    return {
        "bag": bag,
        "messages": result.messages,
        "bytes": result.bytes,
        "first": None if result.first is None else list(result.first),
        "last": None if result.last is None else list(result.last),
        "topics": dict(sorted(result.topics.items())),
        "left_out": [
            {"topic": topic, "reason": reason, "messages": count}
            for (topic, reason), count in sorted(result.left_out.items())
        ],
        "damage_count": result.damage_count,
        "damage": [range_document(item) for item in result.damage],
        "gap_count": result.gap_count,
        "gaps": [gap_document(gap) for gap in result.gaps],
    }


def _print(bag: str, result: ExportResult) -> None:
    from thadam_ros.files.wal_export import left_out_sentences

    print_table(("topic", "messages"), sorted(result.topics.items()))
    for sentence in (
        *map(describe_range, result.damage),
        *map(describe_gap, result.gaps),
        *left_out_sentences(result.left_out),
    ):
        print(sentence, file=sys.stderr)
    hidden = result.damage_count + result.gap_count - len(result.damage) - len(result.gaps)
    if hidden:
        print(f"{hidden} more damaged ranges and gaps; see thadam wal fsck", file=sys.stderr)
    if result.first is None:
        print(f"{bag}: the window holds no message; an empty bag was written")
        return
    print(
        f"{bag}: {result.messages} messages, {human_bytes(result.bytes)}, "
        f"positions {result.first} to {result.last}"
    )
