# SPDX-License-Identifier: Apache-2.0
"""``thadam inspect``: schema, field ids, rows and lineage of Parquet files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from thadam_ros.cli.terminal import human_bytes, print_json, print_table
from thadam_ros.errors import FatalError, FormatError
from thadam_ros.sinks.parquet.encoder import LINEAGE_KEY

NAME = "inspect"
HELP = "show schema, field ids, rows and lineage of Parquet files"
_FIELD_ID = b"PARQUET:field_id"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Parquet file, or folder of them")
    parser.add_argument("--rows", type=int, default=0, metavar="N", help="also print N rows")


def run(args: argparse.Namespace) -> int:
    """Print what the files say about themselves.

    Raises:
        FatalError: No file is there.
        FormatError: A file is not Parquet, or is damaged.
    """
    documents = [describe(path, args.rows) for path in _files(args.paths)]
    if args.json:
        print_json(documents)
        return 0
    for index, document in enumerate(documents):
        if index:
            print()
        _print(document)
    return 0


def _files(names: list[str]) -> list[Path]:
    files: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            files += sorted(path.rglob("*.parquet"))
        elif path.exists():
            files.append(path)
        else:
            raise FatalError(f"{path} does not exist")
    if not files:
        raise FatalError(f"no Parquet file in {', '.join(names)}")
    return files


def describe(path: Path, rows: int = 0) -> dict[str, Any]:
    """Return what ``--json`` prints of one file.

    Raises:
        FormatError: It is not Parquet, or is damaged.
    """
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
            head = file.read_row_group(0).slice(0, rows).to_pylist() if rows > 0 else []
            key_values = metadata.metadata or {}
    except (pa.ArrowException, OSError) as exc:
        raise FormatError(f"{path} is not a readable Parquet file: {exc}") from exc
    raw = key_values.get(LINEAGE_KEY.encode())
    try:
        lineage = orjson.loads(raw) if raw else None
    except ValueError as exc:
        raise FormatError(f"{path} has damaged lineage: {exc}") from exc
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "rows": metadata.num_rows,
        "row_groups": metadata.num_row_groups,
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "id": _field_id(column),
                "nullable": column.nullable,
                "unit": (column.metadata or {}).get(b"unit", b"").decode(),
            }
            for column in schema
        ],
        "lineage": lineage,
        **({"head": head} if rows > 0 else {}),
    }


def _field_id(column: pa.Field) -> int | None:
    value = (column.metadata or {}).get(_FIELD_ID)
    return int(value) if value is not None else None


def _print(document: dict[str, Any]) -> None:
    size = human_bytes(document["bytes"])
    groups = document["row_groups"]
    print(f"{document['path']}: {document['rows']:,} rows, {size}, {groups} row groups")
    columns = [
        (c["id"] if c["id"] is not None else "", c["name"], c["type"], c["unit"])
        for c in document["columns"]
    ]
    print_table(("id", "column", "type", "unit"), columns)
    if document["lineage"]:
        print("lineage:")
        width = max(len(key) for key in document["lineage"])
        for key, value in document["lineage"].items():
            shown = value if isinstance(value, str) else orjson.dumps(value).decode()
            print(f"  {key.ljust(width)}  {shown}")
    for row in document.get("head", []):
        print(row)
