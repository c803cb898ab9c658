# SPDX-License-Identifier: Apache-2.0
"""``thadam wal``: what people and programs get to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thadam_ros.cli.main import main
from thadam_ros.wal.mark import MARK_FILE

from .logs import SmallLog, write_small_log

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def log(wal_dir: str) -> SmallLog:
    return write_small_log(wal_dir, 8 << 10, segment_bytes=3 << 10)


def run_json(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> dict[str, object]:
    assert main(["wal", *arguments, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_ls_names_every_segment(log: SmallLog, capsys: pytest.CaptureFixture[str]) -> None:
    """By the data_dir or by the wal folder; as a table and as JSON."""
    for directory in (log.directory, os.path.dirname(log.directory)):
        assert main(["wal", "ls", directory]) == 0
        out = capsys.readouterr().out
        assert all(os.path.basename(path) in out for path in log.segments)
        assert f"durable: 0:{log.frames[-1].position}" in out
    document = run_json(capsys, "ls", log.directory)
    segments = document["segments"]
    assert isinstance(segments, list)
    assert segments[-1]["last"] == log.frames[-1].position


def test_fsck_ends_with_one_and_says_where(
    log: SmallLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 on a sound log; a flipped bit is named by file, bytes and frame."""
    assert main(["wal", "fsck", log.directory]) == 0
    assert "no problem" in capsys.readouterr().out
    frame = log.frames[2]
    with open(os.path.join(log.directory, frame.file), "r+b") as file:
        file.seek(frame.start + 97)
        file.write(b"\xee\xee")
    assert main(["wal", "fsck", log.directory]) == 1
    out = capsys.readouterr().out
    assert f"bytes {frame.start} to {frame.end} are damaged; frame 0:{frame.position}" in out
    document = run_json(capsys, "fsck", log.directory, code=1)
    assert len(document["problems"]) == 1  # type: ignore[arg-type]


def test_dump_shows_the_records_asked_for(
    log: SmallLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """--from, --limit, --topic and --frames; values equal the oracle's."""
    records = [(f, i, r) for f in log.frames for i, r in enumerate(f.records)]
    document = run_json(capsys, "dump", log.directory, "--limit", "0")
    shown = document["records"]
    assert isinstance(shown, list)
    assert [
        (s["position"], s["record_index"], s["topic"], s["bytes"], s["ingest_time_ns"])
        for s in shown
    ] == [(f.position, i, r.topic, len(r.payload), r.ingest_time_ns) for f, i, r in records]
    assert [s["sequence"] for s in shown] == [r.sequence - 1 for _, _, r in records]
    document = run_json(capsys, "dump", log.directory, "--from", "3", "--limit", "4")
    shown = document["records"]
    assert isinstance(shown, list)
    assert [(s["position"], s["record_index"]) for s in shown] == [
        (f.position, i) for f, i, _ in records if f.position >= 3
    ][:4]
    document = run_json(capsys, "dump", log.directory, "--topic", "/t[12]", "--limit", "0")
    shown = document["records"]
    assert isinstance(shown, list)
    assert len(shown) == sum(r.topic in ("/t1", "/t2") for _, _, r in records)
    assert {s["topic"] for s in shown} == {"/t1", "/t2"}
    document = run_json(capsys, "dump", log.directory, "--frames", "--limit", "0")
    shown = document["frames"]
    assert isinstance(shown, list)
    assert [s["records"] for s in shown] == [len(f.records) for f in log.frames]


def test_dump_for_people_has_a_line_for_each_record(
    log: SmallLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table under a heading; with --limit 0 plain lines."""
    assert main(["wal", "dump", log.directory, "--limit", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("POSITION")
    assert len(lines) == 6
    assert main(["wal", "dump", log.directory, "--limit", "0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == sum(len(f.records) for f in log.frames)


def test_dump_all_reads_a_log_whose_mark_is_lost(
    log: SmallLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the mark nothing is durable; --all shows what is intact."""
    os.unlink(os.path.join(log.directory, MARK_FILE))
    assert run_json(capsys, "dump", log.directory, "--frames")["frames"] == []
    shown = run_json(capsys, "dump", log.directory, "--frames", "--all", "--limit", "0")["frames"]
    assert isinstance(shown, list)
    assert [s["position"] for s in shown] == [f.position for f in log.frames]


def test_a_directory_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3 and one sentence."""
    assert main(["wal", "ls", "/nonexistent/thadam"]) == 3
    assert "/nonexistent/thadam does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["x", "1:y", ""])
def test_a_position_that_is_none_is_said(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 with the valid forms."""
    assert main(["wal", "dump", "/tmp", "--from", text]) == 2
    assert "valid: 17 or 0:17" in capsys.readouterr().err


def test_the_bench_runs_and_reports_a_ratio(tmp_path: Path) -> None:
    """A second of it: the document has what scripts/bench reads."""
    done = subprocess.run(
        [
            sys.executable,
            str(CHECKOUT / "bench" / "wal_append.py"),
            *("--seconds", "1", "--json", "--directory", str(tmp_path)),
        ],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    document = json.loads(done.stdout)
    assert document["name"] == "wal_append"
    assert document["ratio"] > 0
    assert (document["target"], document["floor"]) == (0.70, 0.42)
