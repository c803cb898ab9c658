# SPDX-License-Identifier: Apache-2.0
"""What verbs print: JSON for programs, tables for people, plain text into pipes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import orjson

from thadam_ros.errors import Problem

if TYPE_CHECKING:
    from rich.console import Console


def is_terminal(stream: IO[str] | None = None) -> bool:
    """Tell whether a person reads ``stream`` (default stdout)."""
    out = sys.stdout if stream is None else stream
    try:
        return out.isatty()
    except ValueError:
        return False


def print_json(value: object) -> None:
    """Print one JSON document; bytes become hex, paths text."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    print(orjson.dumps(value, default=_plain, option=options).decode())


def _plain(value: Any) -> object:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def console(stream: IO[str] | None = None) -> Console:
    """Return a rich console on ``stream`` (default stdout)."""
    from rich.console import Console

    return Console(file=sys.stdout if stream is None else stream, highlight=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print a table: with rich on a terminal, in aligned columns else."""
    cells = [[str(cell) for cell in row] for row in rows]
    if is_terminal():
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, title_justify="left")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console().print(table)
        return
    if title:
        print(title)
    lines = [[column.upper() for column in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def problem_document(problem: Problem) -> dict[str, object]:
    """Return a problem for JSON output."""
    return {
        "path": problem.path,
        "value": problem.value,
        "message": problem.message,
        "suggestion": problem.suggestion,
        "line": problem.line,
    }


def human_bytes(count: float) -> str:
    """Return a size for people: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """Return a duration for people: ``2 min 5 s``."""
    if seconds < 0.1:
        return "0 s"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
