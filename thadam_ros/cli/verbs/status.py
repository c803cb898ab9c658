# SPDX-License-Identifier: Apache-2.0
"""``thadam status``: what works, what is late, what is bad; read from the status files."""

from __future__ import annotations

import argparse
import dataclasses
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from thadam_ros.cli.terminal import (
    console,
    human_bytes,
    human_seconds,
    is_terminal,
    print_json,
    print_table,
)
from thadam_ros.config.loader import load_document
from thadam_ros.errors import FatalError
from thadam_ros.model.clock import SystemClock
from thadam_ros.runtime.status_view import ComponentView, headline, is_fine, read_status

NAME = "status"
HELP = "say what works, what is late and what is bad"
DEFAULT_DATA_DIR = "/var/lib/thadam"
INTERVAL_S = 1.0
COLUMNS = (
    "component",
    "state",
    "backlog",
    "oldest",
    "received",
    "delivered",
    "rejected",
    "lost",
    "refused",
    "flagged",
    "why",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("document", nargs="?", help="thadam.yaml, for its edge.data_dir")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help=f"default: $THADAM_DATA_DIR, else {DEFAULT_DATA_DIR}",
    )
    parser.add_argument("--watch", action="store_true", help="repeat every second until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """Print the status; 1 when something does not work.

    Raises:
        FatalError: There is no status folder.
        ConfigError: The document is wrong.
    """
    directory = os.path.join(_data_dir(args), "status")
    if args.watch:
        return _watch(directory, args.json)
    views, unreadable = _read(directory)
    _show(views, unreadable, args.json)
    return 0 if is_fine(views, unreadable) else 1


def _data_dir(args: argparse.Namespace) -> str:
    if args.data_dir:
        return str(args.data_dir)
    if args.document:
        return load_document(Path(args.document), os.environ).edge.data_dir
    return os.environ.get("THADAM_DATA_DIR", DEFAULT_DATA_DIR)


def _read(directory: str) -> tuple[list[ComponentView], list[str]]:
    try:
        return read_status(directory, SystemClock())
    except FileNotFoundError:
        raise FatalError(
            f"{directory} does not exist: nothing has run with this data_dir yet; "
            "name another one with --data-dir"
        ) from None


def _show(views: Sequence[ComponentView], unreadable: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "fine": is_fine(views, unreadable),
                "headline": headline(views, unreadable),
                "components": [dataclasses.asdict(view) for view in views],
                "unreadable": list(unreadable),
            }
        )
        return
    print(headline(views, unreadable))
    if views:
        print()
        print_table(COLUMNS, [_row(view) for view in views])
    for sentence in unreadable:
        print(sentence)


def _row(view: ComponentView) -> tuple[object, ...]:
    count = {name: f"{number:,.0f}" for name, number in view.numbers.items()}
    backlog = view.numbers["backlog_bytes"]
    return (
        view.name,
        view.state if view.alive else f"{view.state}, gone",
        human_bytes(backlog) if backlog else "0",
        human_seconds(view.numbers["backlog_age_s"]),
        count["received"],
        count["delivered"],
        count["rejected"],
        count["lost"],
        count["refused"],
        count["flagged"],
        "" if view.reason_code == "ok" else view.reason,
    )


def _watch(directory: str, as_json: bool) -> int:
    pause = threading.Event()
    fine = False
    try:
        while True:
            views, unreadable = _read(directory)
            fine = is_fine(views, unreadable)
            if is_terminal() and not as_json:
                console().clear()
            _show(views, unreadable, as_json)
            pause.wait(INTERVAL_S)
    except KeyboardInterrupt:
        return 0 if fine else 1
