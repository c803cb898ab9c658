# SPDX-License-Identifier: Apache-2.0
"""``thadam quarantine ls | show`` over the staging of several chains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thadam_ros.cli.main import main
from thadam_ros.cli.verbs.quarantine import hex_dump
from thadam_ros.quarantine.identity import identity_of
from thadam_ros.quarantine.staging import Staging
from thadam_ros.storage.filesystem import OsFileSystem

from .reject_fixtures import only_segment, reject


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two chains: lake with three codes, spare with one reject that lake has too."""
    chains = {
        "lake": [
            reject(1),
            reject(2),
            reject(3, topic="/r2/imu", reason="ends early"),
            reject(4, error_domain="quality", error_code="quality.norm", dataset="odometry"),
        ],
        "spare": [reject(1)],
    }
    for sink, rejects in chains.items():
        staging = Staging.open(str(tmp_path / "chains" / sink / "staging"), OsFileSystem())
        staging.append(rejects)
        staging.close()
    (tmp_path / "chains" / "fresh").mkdir()
    return tmp_path


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["quarantine", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_ls_counts_by_dataset_domain_code_and_topic(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Per sink, largest group first; a chain without rejects is there with none."""
    document = _json(capsys, "ls", "--data-dir", str(data_dir), "--json")
    assert document["rejects"] == 5
    assert set(document["sinks"]) == {"lake", "spare", "fresh"}
    assert document["sinks"]["fresh"]["rejects"] == 0
    groups = document["sinks"]["lake"]["groups"]
    assert [(g["dataset"], g["domain"], g["code"], g["topic"], g["count"]) for g in groups] == [
        ("imu", "decode", "decode.truncated", "/r1/imu/data", 2),
        ("imu", "decode", "decode.truncated", "/r2/imu", 1),
        ("odometry", "quality", "quality.norm", "/r1/imu/data", 1),
    ]
    assert groups[0]["last_ingest_time"] == "2025-11-28T20:00:00.123456789Z"


@pytest.mark.parametrize("spelling", ["option", "positional", "environment"])
def test_the_data_directory_may_be_given_in_three_ways(
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spelling: str,
) -> None:
    """--data-dir, DATA_DIR or $THADAM_DATA_DIR; --json before or after the action."""
    if spelling == "environment":
        monkeypatch.setenv("THADAM_DATA_DIR", str(data_dir))
        document = _json(capsys, "--json", "ls", "--sink", "spare")
    elif spelling == "positional":
        document = _json(capsys, "ls", str(data_dir), "--sink", "spare", "--json")
    else:
        document = _json(capsys, "ls", "--data-dir", str(data_dir), "--sink", "spare", "--json")
    assert document["rejects"] == 1


def test_ls_prints_a_table_for_people(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per group, aligned, readable through a pipe."""
    assert main(["quarantine", "ls", str(data_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SINK", "DATASET", "DOMAIN", "CODE", "TOPIC", "COUNT", "LAST"]
    assert lines[1].split()[:6] == [
        "lake",
        "imu",
        "decode",
        "decode.truncated",
        "/r1/imu/data",
        "2",
    ]
    assert len(lines) == 5


def test_ls_without_rejects_says_so(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Silence would look like a failure."""
    assert main(["quarantine", "ls", str(data_dir), "--sink", "fresh"]) == 0
    assert capsys.readouterr().out == "no rejects\n"


def test_ls_rejects_lists_ids_that_show_takes(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the list to the raw bytes by a prefix of the id; a limit is said."""
    listed = _json(capsys, "ls", str(data_dir), "--rejects", "--limit", "3", "--json")
    assert listed["more"] is True
    assert len(listed["rejects"]) == 3
    assert main(["quarantine", "ls", str(data_dir), "--rejects", "--limit", "3"]) == 0
    assert "only the first 3 are listed" in capsys.readouterr().out
    chosen = next(r for r in listed["rejects"] if r["topic"] == "/r2/imu")
    assert main(["quarantine", "show", chosen["id"][:12], "--data-dir", str(data_dir)]) == 0
    out = capsys.readouterr().out
    assert "ends early" in out
    assert "sensor_msgs/msg/Imu" in out
    assert "00000000  72 61 77 20 33 20 72 61 77 20 33 20 72 61 77 20  |raw 3 raw 3 raw |" in out


def test_show_names_every_sink_that_has_the_reject(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chains stage their own rejects: the same message is one reject in each."""
    identity = identity_of(reject(1)).hex()
    document = _json(capsys, "show", identity, "--data-dir", str(data_dir), "--json")
    assert document["sinks"] == ["lake", "spare"]
    assert bytes.fromhex(document["raw"]) == reject(1).raw
    assert document["wal_pos"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls", "/nowhere"], "does not exist"),
        (["ls", "{data}", "--sink", "lak"], "lake, spare"),
        (["show", "00", "--data-dir", "{data}"], "at least 4"),
        (["show", "zzzz", "--data-dir", "{data}"], "0 rejects"),
    ],
)
def test_what_is_not_there_is_named_and_exits_with_3(
    data_dir: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """One sentence on stderr with the way on."""
    assert main(["quarantine", *(a.format(data=data_dir) for a in arguments)]) == 3
    assert said in capsys.readouterr().err


def test_damage_is_reported_with_its_range_and_exits_with_1(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read is said; a torn end may be a chain at work and is no problem."""
    path = only_segment(data_dir / "chains" / "lake" / "staging")
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"X" + whole[61:])
    assert main(["quarantine", "ls", str(data_dir)]) == 1
    assert "lake: damaged bytes 16.." in capsys.readouterr().out
    path.write_bytes(whole[:-5])
    assert main(["quarantine", "ls", str(data_dir)]) == 0
    assert "are being written, or torn" in capsys.readouterr().out


def test_a_hex_dump_shows_offsets_bytes_and_ascii() -> None:
    """16 bytes a line, the last one shorter, anything unprintable a dot."""
    assert list(hex_dump(b"")) == []
    assert list(hex_dump(bytes(range(16)) + b"A~\x7f")) == [
        "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  |................|",
        "00000010  41 7e 7f                                         |A~.|",
    ]
