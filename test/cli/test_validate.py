# SPDX-License-Identifier: Apache-2.0
"""Promises of ``thadam validate``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.cli.main import main

DOCUMENT = """\
edge: {data_dir: /var/lib/thadam, identity: {robot: r7}}
sources: {robot: {type: ros2}}
datasets:
  imu:
    match: {source: robot, topics: [imu/data]}
    type: sensor_msgs/msg/Imu
    all_fields: true
    exclude: ["/*_covariance"]
  diagnostics:
    match: {source: robot, topics: [/diagnostics]}
    type: diagnostic_msgs/msg/DiagnosticArray
    all_fields: true
sinks:
  lake: {type: parquet, url: /lake}
"""


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """A valid document in a file."""
    path = tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT)
    return path


def test_a_valid_document_is_summarized(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Datasets, columns, hash, and what all_fields left out; nothing is written."""
    assert main(["validate", str(document)]) == 0
    out = capsys.readouterr().out
    assert "config hash" in out
    assert "imu" in out
    assert "note: diagnostics: /status" in out
    assert sorted(p.name for p in document.parent.iterdir()) == ["thadam.yaml"]


def test_json_carries_columns_with_field_ids(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For programs: types, ids, hashes, sinks."""
    assert main(["validate", str(document), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    imu = summary["datasets"]["imu"]
    columns = {c["name"]: c for c in imu["columns"]}
    assert columns["linear_acceleration_x"]["type"] == "double"
    assert columns["robot"]["id"] != columns["linear_acceleration_x"]["id"]
    assert imu["sinks"] == ["lake"]
    assert len(summary["config_hash"]) == 64
    assert len(imu["row_hash"]) == 64


def test_mistakes_of_every_layer_come_at_once(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML values, references, message fields and expressions in one list, exit code 2."""
    document.write_text(
        DOCUMENT.replace("/lake}", "lake}")
        .replace("topics: [/diagnostics]", "topics: [/diagnostics], sorce: x")
        .replace(
            '    exclude: ["/*_covariance"]\n',
            "    fields: {ax: /linear_acceleratoin/x}\n"
            "    flag_unless: {INVALID: finite(linear_aceleration_x)}\n",
        )
    )
    assert main(["validate", str(document)]) == 2
    error = capsys.readouterr().err
    for expected in (
        "sinks.lake.url = 'lake'",
        "datasets.diagnostics.match.sorce",
        "'/linear_acceleration/x'",
        "linear_aceleration_x",
    ):
        assert expected in error, error
    assert "Traceback" not in error


def test_parameters_validate_like_documents(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, over a document, and with mistakes named with their lines."""
    parameters = tmp_path / "params.yaml"
    parameters.write_text("/**:\n  ros__parameters:\n    wal: {compression: zstd}\n")
    assert main(["validate", str(document), "--parameters", str(parameters), "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)["config_hash"]
    document.write_text(DOCUMENT + "wal: {compression: zstd}\n")
    assert main(["validate", str(document), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config_hash"] == merged
    parameters.write_text("/**:\n  ros__parameters:\n    wal:\n      compresion: zstd\n")
    assert main(["validate", "--parameters", str(parameters)]) == 2
    assert "line 4: wal.compresion = 'zstd'" in capsys.readouterr().err


def test_the_merged_document_is_valid_itself(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What --merged prints validates to the same hash."""
    assert main(["validate", str(document), "--merged"]) == 0
    merged = tmp_path / "merged.yaml"
    merged.write_text(capsys.readouterr().out)
    hashes = []
    for path in (document, merged):
        assert main(["validate", str(path), "--json"]) == 0
        hashes.append(json.loads(capsys.readouterr().out)["config_hash"])
    assert hashes[0] == hashes[1]


def test_what_only_this_installation_lacks_is_no_mistake(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A laptop may check a robot's document; --runnable makes it a failure."""
    document.write_text(DOCUMENT + "  bus: {type: nats, url: 'nats://n:4222'}\n")
    assert main(["validate", str(document)]) == 0
    assert "cannot run" in capsys.readouterr().out
    assert main(["validate", str(document), "--runnable"]) == 2
    assert "sinks.bus.type" in capsys.readouterr().err


def test_a_missing_document_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a list of everything that a missing file does not say."""
    assert main(["validate", "/does/not/exist.yaml"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_lock_that_refuses_the_change_shows_both_schemas(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column's type cannot change under one version."""
    from thadam_ros.runtime.loading import load_path, save_lock
    from thadam_ros.storage.filesystem import OsFileSystem

    columns = '    all_fields: true\n    exclude: ["/*_covariance"]\n'
    text = DOCUMENT.replace(columns, "    fields: {x: /linear_acceleration/x}\n")
    assert text != DOCUMENT
    document.write_text(text)
    save_lock(load_path(document, {}), OsFileSystem())
    assert Path(f"{document}.lock").exists()
    assert main(["validate", str(document)]) == 0
    capsys.readouterr()
    document.write_text(text.replace("x: /linear_acceleration/x", "x: /header/frame_id"))
    assert main(["validate", str(document)]) == 2
    error = capsys.readouterr().err
    assert "double" in error
    assert "string" in error
    assert "version" in error


def test_checking_a_document_does_not_load_the_bag_libraries(document: Path) -> None:
    """Only ``--bag`` needs them; a missing one must not keep anybody from checking a document."""
    code = (
        "import sys; from thadam_ros.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or any(m.split('.')[0] == 'mcap' for m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", str(document)], capture_output=True, check=False
    )
    assert done.returncode == 0, done
