# SPDX-License-Identifier: Apache-2.0
"""``thadam wal import``: a bag as a log."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from thadam_ros.cli.progress import Progress
from thadam_ros.cli.terminal import human_bytes, print_json, print_table
from thadam_ros.cli.wal_common import add_data_dir, default_data_dir
from thadam_ros.config.loader import load_document
from thadam_ros.config.schema import Config, WalConfig
from thadam_ros.errors import ConfigError, Problem
from thadam_ros.storage.filesystem import OsFileSystem

if TYPE_CHECKING:
    from thadam_ros.files.wal_import import ImportResult

HELP = "make a log of a rosbag2 bag (MCAP or sqlite3)"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Log times become ingest times. Exit code 1 when the bag cannot be read to its end, or "
        "holds messages that are not CDR."
    )
    parser.add_argument("bag", metavar="BAG", help="a bag's folder, or one of its files")
    add_data_dir(parser)
    parser.add_argument(
        "--config", metavar="FILE", help="thadam.yaml: its data_dir, wal options and source"
    )
    parser.add_argument(
        "--source", metavar="NAME", help="whose messages these are (default: the only source)"
    )
    parser.add_argument(
        "--namespace",
        metavar="NS",
        help="namespace in which relative topic names match (default: the exported one, else /)",
    )
    parser.add_argument(
        "--clock-synced", action="store_true", help="say that the recorder's clock was right"
    )
    parser.add_argument(
        "--append", action="store_true", help="go on behind frames that are there already"
    )


def run(args: argparse.Namespace) -> int:
    """Import.

    Raises:
        ConfigError: The configuration or the source is wrong.
        ThadamError: It is no bag, the log has frames or a writer.
        OSError: From the filesystem.
    """
    # Imported late: the other actions of this verb need none of these libraries.
    from thadam_ros.files.bag_reader import BagReader
    from thadam_ros.files.wal_import import import_bag
    from thadam_ros.runtime.edge import chain_cursors

    config = load_document(Path(args.config), os.environ) if args.config else None
    source_id = _source(args.source, config)
    namespace = _namespace(args.namespace)
    data_dir = args.data_dir or (config.edge.data_dir if config else default_data_dir())
    fs = OsFileSystem()
    bag = BagReader(Path(args.bag), namespace=namespace)
    with Progress("imported", bag.message_count()) as progress:
        result = import_bag(
            os.path.join(os.path.abspath(data_dir), "wal"),
            bag,
            source_id=source_id,
            config=config.wal if config else WalConfig(),
            fs=fs,
            clock_synced=args.clock_synced,
            append=args.append,
            cursors=chain_cursors(data_dir, fs),
            progress=lambda so_far: progress.update(so_far.messages, so_far.bytes),
        )
    if args.json:
        print_json(_document(args.bag, data_dir, source_id, result))
    else:
        _print(args.bag, data_dir, source_id, result)
    return 1 if result.problem or result.skipped else 0


def _source(given: str | None, config: Config | None) -> str:
    """Return whose messages the bag's are.

    Raises:
        ConfigError: Nobody says, or there is no such source.
    """
    names: Sequence[str] = sorted(config.sources) if config else ()
    if given is None:
        if len(names) == 1:
            return names[0]
        if not config:
            message = "missing: name the source as the configuration does, or give --config"
        else:
            message = f"missing, and several are configured; valid: {', '.join(names)}"
        raise ConfigError([Problem("--source", None, message)])
    if config and given not in names:
        valid = ", ".join(names)
        raise ConfigError([Problem("--source", given, f"is not configured; valid: {valid}")])
    if not _NAME.fullmatch(given):
        raise ConfigError([Problem("--source", given, f"is no name; valid: {_NAME.pattern}")])
    return given


def _namespace(given: str | None) -> str | None:
    if given is None:
        return None
    if not re.fullmatch(r"/|(/[A-Za-z_][A-Za-z0-9_]*)+", given):
        raise ConfigError([Problem("--namespace", given, "is no namespace; valid: / or /robot1")])
    return given


def _document(bag: str, data_dir: str, source_id: str, result: ImportResult) -> dict[str, object]:
    return {
        "bag": bag,
        "data_dir": data_dir,
        "source": source_id,
        "messages": result.messages,
        "bytes": result.bytes,
        "epoch": result.epoch,
        "first": None if result.first is None else list(result.first),
        "last": None if result.last is None else list(result.last),
        "topics": dict(sorted(result.topics.items())),
        "skipped": dict(sorted(result.skipped.items())),
        "problem": result.problem,
    }


def _print(bag: str, data_dir: str, source_id: str, result: ImportResult) -> None:
    print_table(("topic", "messages"), sorted(result.topics.items()))
    for topic, count in sorted(result.skipped.items()):
        print(f"{topic}: {count} messages skipped: not CDR", file=sys.stderr)
    if result.problem:
        print(f"{result.problem}; what comes before it was imported", file=sys.stderr)
    if result.first is None:
        print(f"{bag} holds no message; nothing was written")
        return
    print(
        f"{data_dir}: {result.messages} messages of source {source_id}, "
        f"{human_bytes(result.bytes)}, positions {result.first} to {result.last}"
    )
