# SPDX-License-Identifier: Apache-2.0
"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from thadam_ros.node.demo.balance import Line
from thadam_ros.node.demo.checks import Check

_PLAIN_EVERY_S = 3.0
_SHEET_WIDTH = 156
_SHEET_WIDTH_MIN = 118
_TOPIC_WIDTH = 24
_COLOURS = {"running": "green", "degraded": "yellow", "failed": "red", "starting": "cyan"}
_SHEET = ("published", "received_again", "delivered", "quarantined", "deduplicated", "filtered",
          "unmatched", "refused", "lost", "difference")  # fmt: skip


def read_status(folder: Path) -> dict[str, dict[str, Any]]:
    """Return component name -> its status document; a file being replaced is left out."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            document = orjson.loads(path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            continue
        if isinstance(document, dict) and "name" in document:
            found[str(document["name"])] = document
    return found


class Screen:
    """Shows progress; a context manager, used by one thread."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._start_s = time.monotonic()
        self._shown_s = 0.0

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            # No refreshing thread: children are started from this one.
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, style: str = "") -> None:
        """Print one line above the table."""
        elapsed = time.monotonic() - self._start_s
        self.console.print(Text(f"{elapsed:6.1f} s  {text}", style=style))

    def status(self, documents: dict[str, dict[str, Any]], running: bool) -> None:
        """Show the components' status."""
        if self._live is not None:
            self._live.update(_status_table(documents, running), refresh=True)
            return
        now = time.monotonic()
        if now - self._shown_s >= _PLAIN_EVERY_S and documents:
            self._shown_s = now
            for line in _status_lines(documents):
                self.say(line)

    def sheet(self, sink: str, lines: Sequence[Line], rows: dict[str, int]) -> None:
        """Print a balance sheet with the rows per dataset beside it."""
        table = Table(title=f"Balance sheet of sink {sink}, in messages", title_justify="left")
        table.add_column("topic", no_wrap=True)
        for name in _SHEET:
            # Folded on a narrow terminal, never cut.
            heading = name.replace("_", " ")
            table.add_column(heading, justify="right", overflow="fold", min_width=6)
        for line in lines:
            values = [getattr(line, name) for name in _SHEET]
            style = "red" if line.difference else ("bold" if line.topic == "total" else "")
            table.add_row(line.topic, *map(str, values), style=style)
        narrow = self.console.is_terminal
        width = max(_SHEET_WIDTH_MIN, self.console.width) if narrow else _SHEET_WIDTH
        width += max((len(line.topic) - _TOPIC_WIDTH for line in lines), default=0)
        Console(highlight=False, width=width).print(table)
        beside = Table(title="Rows per dataset", title_justify="left")
        beside.add_column("dataset")
        beside.add_column("rows", justify="right")
        for dataset, count in sorted(rows.items()):
            beside.add_row(dataset, str(count))
        self.console.print(beside)

    def checks(self, checks: Iterable[Check]) -> bool:
        """Print what is not as it must be, and how many checks were made; True when all are."""
        checks = list(checks)
        wrong = [check for check in checks if not check.is_fine]
        for check in wrong:
            self.console.print(Text(f"WRONG  {check.name}", style="red"))
            self.console.print(Text(f"       expected {check.expected}"))
            self.console.print(Text(f"       found    {check.found}"))
        fine = len(checks) - len(wrong)
        style = "red" if wrong else "green"
        self.console.print(Text(f"{fine} of {len(checks)} checks are as computed", style=style))
        return not wrong


def _status_table(documents: dict[str, dict[str, Any]], running: bool) -> Table:
    table = Table(title="" if running else "the edge is not running")
    for name in ("component", "state", "received", "delivered", "lag", "lost", "flagged",
                 "quarantined"):  # fmt: skip
        table.add_column(name, justify="left" if name in ("component", "state") else "right")
    for name, document in documents.items():
        state = str(document.get("state", "?")) if running else "gone"
        code = str(document.get("reason_code", ""))
        shown = state if code in ("ok", "") or not running else f"{state}: {code}"
        table.add_row(
            name,
            Text(shown, style=_COLOURS.get(state, "dim")),
            *(str(document.get(key, "")) for key in ("received", "delivered")),
            f"{float(document.get('backlog_age_s', 0.0)):.1f} s",
            *(str(document.get(key, "")) for key in ("lost", "flagged", "rejected")),
        )
    return table


def _status_lines(documents: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{name}: {document.get('state')} ({document.get('reason_code')}),"
        f" received {document.get('received')}, delivered {document.get('delivered')},"
        f" lag {float(document.get('backlog_age_s', 0.0)):.1f} s, lost {document.get('lost')},"
        f" flagged {document.get('flagged')}, quarantined {document.get('rejected')}"
        for name, document in documents.items()
        if not name.startswith("quarantine.")
    ]
