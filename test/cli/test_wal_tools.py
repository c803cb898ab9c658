# SPDX-License-Identifier: Apache-2.0
"""``thadam wal export | import | fsck --repair``: arguments, documents, exit codes."""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import StoragePlugin, Writer

from thadam_ros.cli.main import main
from thadam_ros.cli.progress import Progress
from thadam_ros.cli.wal_common import format_time, parse_bound
from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import list_valid_frames
from thadam_ros.wal.writer import WalWriter

T0 = 1_700_000_000_000_000_000
TYPE = "std_msgs/msg/UInt64"
HASH = "RIHS01_fbdc52018fc13755dce18024d1a671c856aa8b4aaf63adfb095b608f98e8c943"


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """Five messages on each of two topics, a second apart."""
    with Writer(tmp_path / "in", version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        topics = [
            writer.add_connection(name, TYPE, msgdef="uint64 data\n", rihs01=HASH)
            for name in ("/a", "/b")
        ]
        for n in range(5):
            for topic in topics:
                writer.write(topic, T0 + n * 10**9, b"\0\1\0\0" + n.to_bytes(8, "little"))
    return tmp_path / "in"


@pytest.fixture
def data_dir(tmp_path: Path, bag: Path) -> Path:
    """A data_dir with that bag in its log."""
    arguments = ["import", str(bag), "--data-dir", str(tmp_path / "d"), "--source", "robot"]
    assert main(["wal", *arguments]) == 0
    return tmp_path / "d"


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["wal", *arguments, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_import_says_what_it_made(
    tmp_path: Path, bag: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts, positions, epoch; as a document and for people."""
    arguments = ["import", str(bag), "--data-dir", str(tmp_path / "d"), "--source", "robot"]
    document = run_json(capsys, *arguments)
    (frame,) = list_valid_frames(str(tmp_path / "d" / "wal"))
    assert document == {
        "bag": str(bag),
        "data_dir": str(tmp_path / "d"),
        "source": "robot",
        "messages": 10,
        "bytes": 120,
        "epoch": frame.epoch,
        "first": [0, 0],
        "last": [0, 0],
        "topics": {"/a": 5, "/b": 5},
        "skipped": {},
        "problem": "",
    }
    assert not frame.clock_synced
    assert main(["wal", *arguments]) == 3
    assert "--append" in capsys.readouterr().err
    assert main(["wal", *arguments, "--append", "--clock-synced"]) == 0
    assert "positions 1:0 to 1:0" in capsys.readouterr().out
    assert list_valid_frames(str(tmp_path / "d" / "wal"))[1].clock_synced


DOCUMENT = """
schema: 1
edge: {{data_dir: {data_dir}}}
wal: {{compression: zstd}}
sources: {{{sources}}}
sinks: {{lake: {{type: parquet, url: {data_dir}/lake}}}}
datasets:
  rows: {{match: {{source: one, topics: [/a]}}, type: std_msgs/msg/UInt64, all_fields: true}}
"""


def test_import_takes_source_and_place_from_a_configuration(
    tmp_path: Path, bag: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only source needs no name; of several one has to be named."""
    path = tmp_path / "thadam.yaml"
    path.write_text(DOCUMENT.format(data_dir=tmp_path / "c", sources="one: {type: ros2}"))
    document = run_json(capsys, "import", str(bag), "--config", str(path))
    assert (document["source"], document["data_dir"]) == ("one", str(tmp_path / "c"))
    several = "one: {type: ros2}, two: {type: ros2}"
    path.write_text(DOCUMENT.format(data_dir=tmp_path / "e", sources=several))
    assert main(["wal", "import", str(bag), "--config", str(path)]) == 2
    assert "valid: one, two" in capsys.readouterr().err
    assert main(["wal", "import", str(bag), "--config", str(path), "--source", "three"]) == 2
    assert "valid: one, two" in capsys.readouterr().err
    document = run_json(capsys, "import", str(bag), "--config", str(path), "--source", "two")
    assert document["source"] == "two"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--source"),
        (["--source", "No Name"], "is no name"),
        (["--source", "robot", "--namespace", "r1"], "is no namespace"),
    ],
)
def test_wrong_arguments_of_import_are_said(
    tmp_path: Path,
    bag: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    """Exit code 2, and no log."""
    assert main(["wal", "import", str(bag), "--data-dir", str(tmp_path / "d"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_a_bag_cut_short_ends_with_one(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was read is in the log; the sentence says where it stopped."""
    assert main(["wal", "export", str(tmp_path / "out"), "--data-dir", str(data_dir)]) == 0
    (file,) = (tmp_path / "out").glob("*.mcap")
    file.write_bytes(file.read_bytes()[:-200])
    document = run_json(
        capsys,
        *("import", str(file), "--data-dir", str(tmp_path / "e"), "--source", "robot"),
        code=1,
    )
    assert document["messages"] == 10
    assert "cannot be read on" in document["problem"]


def test_export_says_what_it_wrote(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By time and by topic; a bag that exists is refused."""
    document = run_json(
        capsys,
        *("export", str(tmp_path / "out"), "--data-dir", str(data_dir), "--topic", "/a"),
        *("--from", "2023-11-14T22:13:21Z", "--to", "2023-11-14T23:13:22.5+01:00"),
    )
    assert document == {
        "bag": str(tmp_path / "out"),
        "messages": 2,
        "bytes": 24,
        "first": [0, 0],
        "last": [0, 0],
        "topics": {"/a": 2},
        "left_out": [],
        "damage_count": 0,
        "damage": [],
        "gap_count": 0,
        "gaps": [],
    }
    assert main(["wal", "export", str(tmp_path / "out"), "--data-dir", str(data_dir)]) == 3
    assert "exists already" in capsys.readouterr().err
    assert main(["wal", "export", str(tmp_path / "o2"), "--data-dir", str(data_dir)]) == 0
    assert "10 messages, 120 B, positions 0:0 to 0:0" in capsys.readouterr().out
    arguments = ["--data-dir", str(data_dir), "--topic", "/none"]
    assert main(["wal", "export", str(tmp_path / "o3"), *arguments]) == 0
    assert "holds no message" in capsys.readouterr().out


def test_export_past_damage_ends_with_one(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bag has what is intact; what is lost is named."""
    (frame,) = list_valid_frames(str(data_dir / "wal"))
    with (data_dir / "wal" / frame.file).open("r+b") as file:
        file.seek(frame.start + 120)
        file.write(b"\xee" * 4)
    document = run_json(
        capsys, "export", str(tmp_path / "out"), "--data-dir", str(data_dir), code=1
    )
    assert document["messages"] == 0
    (item,) = document["damage"]
    assert (item["first"], item["start"], item["end"]) == ([0, 0], frame.start, frame.end)
    assert main(["wal", "export", str(tmp_path / "o2"), "--data-dir", str(data_dir)]) == 1
    assert f"bytes {frame.start} to {frame.end} are damaged" in capsys.readouterr().err


def test_a_window_that_ends_before_it_begins_is_said(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    arguments = ["export", str(tmp_path / "o"), "--data-dir", str(data_dir)]
    assert main(["wal", *arguments, "--from", "5", "--to", "3"]) == 2
    assert "comes before --from" in capsys.readouterr().err
    assert main(["wal", *arguments, "--from", "yesterday"]) == 2
    assert "neither a position nor a time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", Position(0, 17)),
        ("2:17", Position(2, 17)),
        ("1970-01-02", 86_400 * 10**9),
        ("1970-01-01T00:00:01", 10**9),
        ("1970-01-01 00:00:01.000000001Z", 10**9 + 1),
        ("2026-03-01T12:30:05.123456789Z", 1_772_368_205_123_456_789),
        ("1970-01-01T01:00+01:00", 0),
        ("1969-12-31T22:30:00-0130", 0),
    ],
)
def test_bounds_are_positions_or_times(text: str, value: object) -> None:
    """Nanoseconds survive; without a zone it is UTC."""
    assert parse_bound(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1:2:3", "2026-13-01", "2026-01-01T25:00", "12:3x"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    """One sentence with examples."""
    with pytest.raises(argparse.ArgumentTypeError, match="valid: 17"):
        parse_bound(text)


def test_times_are_written_as_they_are_read() -> None:
    """What dump prints can be given to export."""
    assert parse_bound(format_time(T0 + 123)) == T0 + 123
    assert parse_bound(format_time(-1)) == -1


def test_repair_says_what_it_found_did_and_left(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 when nothing is left, 1 when something stays lost."""
    (name,) = [f for f in os.listdir(data_dir / "wal") if f.endswith(".wal")]
    path = data_dir / "wal" / name
    whole = path.read_bytes()
    path.write_bytes(b"\0" * 80 + whole[80:])
    assert main(["wal", "fsck", str(data_dir), "--repair"]) == 0
    out = capsys.readouterr().out
    assert f"found: {name}: bytes 0 to 80 are damaged" in out
    assert f"done: {name}: bytes 0 to 80 are written again from the other copy" in out
    assert "1 repair, no problem left" in out
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-8] + b"damaged!")
    document = run_json(capsys, "fsck", str(data_dir), "--repair", code=1)
    assert len(document["found"]) == len(document["problems"]) == 1
    (item,) = document["repairs"]
    assert item["file"] == name
    assert (data_dir / "wal" / item["kept_in"]).read_bytes().endswith(b"damaged!")


@pytest.fixture
def writer(data_dir: Path) -> Iterator[WalWriter]:
    """A writer that has the log."""
    writer = WalWriter.open(
        str(data_dir / "wal"),
        WalConfig(),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    yield writer
    writer.close()


@pytest.mark.usefixtures("writer")
def test_beside_a_writer_export_works_and_repair_is_refused(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3; the sentence names the holder."""
    assert main(["wal", "fsck", str(data_dir), "--repair"]) == 3
    assert f"is held by thadam WAL writer (pid {os.getpid()})" in capsys.readouterr().err
    assert (
        run_json(capsys, "export", str(tmp_path / "o"), "--data-dir", str(data_dir))["messages"]
        == 10
    )


class Terminal(io.StringIO):
    """A stream that says to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_only_there() -> None:
    """One line, rewritten, and cleared at the end."""
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with Progress("exported", 20, stream) as progress:
            progress.update(5, 2048)
    assert "exported 5 of 20 messages, 2.0 KiB" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")
    assert "\n" not in terminal.getvalue()
    assert pipe.getvalue() == ""
