# SPDX-License-Identifier: Apache-2.0
"""What stands in the visible Parquet folders, read with pyarrow alone (both trees)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from thadam_ros.model.quality import QualityFlag


@dataclass(slots=True)
class TableFigures:
    """Figures of one sink's folder.

    Attributes:
        rows: Dataset -> rows.
        event_ids: Dataset -> distinct event ids.
        flagged: ``<dataset>.<FLAG>`` -> rows.
        infinities: Infinite values of ``scan.ranges``.
        files: Files read.
    """

    rows: Counter[str] = field(default_factory=Counter)
    event_ids: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    infinities: int = 0
    files: int = 0


def read_tables(folder: Path) -> TableFigures:
    """Read every Parquet file below ``folder``; its first level names the dataset.

    Raises:
        OSError, pyarrow.ArrowInvalid: If a file cannot be read.
    """
    figures = TableFigures()
    ids: dict[str, set[bytes]] = {}
    for path in sorted(folder.glob("*/**/*.parquet")):
        dataset = path.relative_to(folder).parts[0]
        with pq.ParquetFile(path) as file:
            table = file.read(columns=_columns(dataset, file.schema_arrow.names))
        figures.files += 1
        figures.rows[dataset] += table.num_rows
        ids.setdefault(dataset, set()).update(table.column("_event_id").to_pylist())
        flags = table.column("_quality_flags")
        for flag in QualityFlag:
            count = pc.sum(pc.not_equal(pc.bit_wise_and(flags, int(flag)), 0)).as_py() or 0
            if count:
                figures.flagged[f"{dataset}.{flag.name}"] += count
        if dataset == "scan":
            values = pc.list_flatten(table.column("ranges")).to_pylist()
            figures.infinities += sum(1 for value in values if math.isinf(value))
    for dataset, found in ids.items():
        figures.event_ids[dataset] = len(found)
    return figures


def _columns(dataset: str, names: list[str]) -> list[str]:
    wanted = ["_event_id", "_quality_flags"]
    if dataset == "scan" and "ranges" in names:
        wanted.append("ranges")
    return wanted
