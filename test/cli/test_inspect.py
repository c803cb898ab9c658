# SPDX-License-Identifier: Apache-2.0
"""Promises of ``thadam inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thadam_ros.cli.main import main
from thadam_ros.sinks.parquet.encoder import LINEAGE_KEY


def _write(path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("x", pa.float64(), metadata={b"PARQUET:field_id": b"101", b"unit": b"m"}),
            pa.field("plain", pa.string()),
        ],
        metadata={LINEAGE_KEY.encode(): json.dumps({"cut_no": 7, "sink": "lake"}).encode()},
    )
    pq.write_table(pa.table({"x": [1.0, 2.0], "plain": ["a", None]}, schema), path)


def test_a_file_tells_columns_ids_rows_and_lineage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people and for programs."""
    _write(tmp_path / "a.parquet")
    assert main(["inspect", str(tmp_path / "a.parquet")]) == 0
    out = capsys.readouterr().out
    assert "2 rows" in out
    assert "101" in out
    assert "cut_no" in out
    assert main(["inspect", str(tmp_path), "--json", "--rows", "1"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["rows"] == 2
    assert document["columns"][0] == {
        "name": "x",
        "type": "double",
        "id": 101,
        "nullable": True,
        "unit": "m",
    }
    assert document["lineage"]["cut_no"] == 7
    assert document["head"] == [{"x": 1.0, "plain": "a"}]


def test_what_is_no_parquet_file_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damaged, missing, empty folder."""
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "empty").mkdir()
    for name in ("bad.parquet", "missing", "empty"):
        assert main(["inspect", str(tmp_path / name)]) == 3
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert name in error
        assert "bug" not in error
