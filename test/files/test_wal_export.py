# SPDX-License-Identifier: Apache-2.0
"""Export: what the window takes, byte for byte, and what was lost in it."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from rosbags.interfaces import ConnectionExtRosbag2, QosDurability, QosReliability

from thadam_ros.errors import FatalError
from thadam_ros.files.wal_export import BEFORE_1970, NOT_CDR, ExportResult, Window, export_window
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import list_valid_frames
from thadam_ros.wal.repair import repair

from .logs import (
    NUMBER,
    T0,
    Record,
    Seen,
    number,
    number_topic,
    see_with_mcap,
    see_with_rosbags,
    write_log,
)

A, B = number_topic("/r/a"), number_topic("/r/sub/b")


def export(tmp_path: Path, window: Window | None = None, **options: Any) -> ExportResult:
    return export_window(
        str(tmp_path / "wal"), tmp_path / "bag", window or Window(), fs=OsFileSystem(), **options
    )


def ten_frames(tmp_path: Path, segment_bytes: int = 1 << 20) -> list[list[Record]]:
    """Frames of a record on each topic, a second apart."""
    frames = [
        [Record(topic, T0 + n * 10**9, number(n), T0 + n * 10**9 - 5) for topic in (A, B)]
        for n in range(10)
    ]
    write_log(tmp_path / "wal", frames, segment_bytes=segment_bytes)
    return frames


def values(folder: Path) -> list[tuple[str, int]]:
    return [
        (seen.topic, int.from_bytes(seen.payload[4:], "little")) for seen in see_with_mcap(folder)
    ]


def test_both_libraries_see_the_records_as_they_are(tmp_path: Path) -> None:
    """Order, payload, log time = ingest time, publish time = source timestamp."""
    frames = ten_frames(tmp_path)
    result = export(tmp_path)
    expected = [r for frame in frames for r in frame]
    assert see_with_mcap(tmp_path / "bag") == [
        Seen(r.topic.name, NUMBER, r.time_ns, r.source_ns, r.payload) for r in expected
    ]
    assert sorted(see_with_rosbags(tmp_path / "bag")) == sorted(
        (r.topic.name, NUMBER, r.time_ns, r.payload) for r in expected
    )
    assert (result.messages, result.bytes) == (20, 240)
    assert (result.first, result.last) == (Position(0, 0), Position(0, 9))
    assert result.topics == {"/r/a": 10, "/r/sub/b": 10}
    assert result.is_whole


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_the_file_is_chunked_indexed_and_compressed_as_asked(
    tmp_path: Path, compression: str
) -> None:
    """Players seek by the summary; metadata.yaml says the same as the file."""
    records = [Record(A, T0 + n, bytes(4) + bytes(60_000)) for n in range(60)]
    write_log(tmp_path / "wal", [records])
    export(tmp_path, compression=compression)
    (path,) = (tmp_path / "bag").glob("*.mcap")
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    assert summary.statistics is not None
    assert summary.statistics.message_count == 60
    assert len(summary.chunk_indexes) >= 3
    expected = "zstd" if compression == "zstd" else ""
    assert {index.compression for index in summary.chunk_indexes} == {expected}
    assert all(index.message_index_offsets for index in summary.chunk_indexes)
    schema = next(iter(summary.schemas.values()))
    assert (schema.name, schema.encoding, schema.data) == (NUMBER, "ros2msg", b"uint64 data\n")
    assert (path.stat().st_size < 100_000) == (compression == "zstd")
    document = yaml.safe_load((tmp_path / "bag" / "metadata.yaml").read_text())
    information = document["rosbag2_bagfile_information"]
    assert information["storage_identifier"] == "mcap"
    assert information["relative_file_paths"] == [path.name]
    assert information["message_count"] == 60
    assert information["starting_time"] == {"nanoseconds_since_epoch": T0}
    assert information["duration"] == {"nanoseconds": 59}


def test_profiles_are_offered_that_subscriptions_accept(tmp_path: Path) -> None:
    """Reliable everywhere; what is latched by convention is offered transient local."""
    topics = [A, number_topic("/tf_static"), number_topic("/r1/robot_description")]
    write_log(tmp_path / "wal", [[Record(topic, T0, number(1)) for topic in topics]])
    export(tmp_path)
    with AnyReader([tmp_path / "bag"]) as reader:
        offered = {}
        for connection in reader.connections:
            assert isinstance(connection.ext, ConnectionExtRosbag2)
            (profile,) = connection.ext.offered_qos_profiles
            assert profile.reliability == QosReliability.RELIABLE
            offered[connection.topic] = profile.durability
    assert offered == {
        "/r/a": QosDurability.VOLATILE,
        "/tf_static": QosDurability.TRANSIENT_LOCAL,
        "/r1/robot_description": QosDurability.TRANSIENT_LOCAL,
    }


SECOND = 10**9
WINDOWS = {
    "positions": (Window(first=Position(0, 3), last=Position(0, 5)), range(3, 6)),
    "from a position": (Window(first=Position(0, 8)), range(8, 10)),
    "times, both included": (Window(from_ns=T0 + 2 * SECOND, to_ns=T0 + 4 * SECOND), range(2, 5)),
    "until a time": (Window(to_ns=T0 + SECOND + 1), range(2)),
    "position and time": (Window(first=Position(0, 5), to_ns=T0 + 6 * SECOND), range(5, 7)),
    "another source": (Window(source="other"), range(0)),
    "after the end": (Window(first=Position(0, 10)), range(0)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_takes_what_lies_in_it(tmp_path: Path, name: str) -> None:
    """By position, by time, by both; nothing outside of it is damage."""
    ten_frames(tmp_path)
    window, expected = WINDOWS[name]
    result = export(tmp_path, window)
    assert values(tmp_path / "bag") == [(t, n) for n in expected for t in ("/r/a", "/r/sub/b")]
    assert result.is_whole


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (("/r/*",), {"/r/a"}),
        (("/r/**",), {"/r/a", "/r/sub/b"}),
        (("/x", "/r/sub/b"), {"/r/sub/b"}),
        (("/x",), set()),
    ],
)
def test_topic_globs_choose(tmp_path: Path, globs: tuple[str, ...], expected: set[str]) -> None:
    """The globs are those of the configuration."""
    ten_frames(tmp_path)
    assert set(export(tmp_path, Window(topics=globs)).topics) == expected


def test_times_step_back_and_messages_keep_the_logs_order(tmp_path: Path) -> None:
    """The log is in order of position: a time window takes what fits from anywhere in it."""
    times = [5, 1, 9, 2, 5]
    frames = [[Record(A, T0 + t, number(i))] for i, t in enumerate(times)]
    write_log(tmp_path / "wal", frames)
    export(tmp_path, Window(from_ns=T0 + 2, to_ns=T0 + 5))
    assert [value for _, value in values(tmp_path / "bag")] == [0, 3, 4]


def damage_frame(tmp_path: Path, position: int) -> None:
    (frame,) = [f for f in list_valid_frames(str(tmp_path / "wal")) if f.position == position]
    with (tmp_path / "wal" / frame.file).open("r+b") as file:
        file.seek(frame.start + 100)
        file.write(b"\xee" * 8)


@pytest.mark.parametrize(
    ("window", "whole"),
    [
        (Window(), False),
        (Window(first=Position(0, 4), last=Position(0, 4)), False),
        (Window(first=Position(0, 5)), True),
        (Window(last=Position(0, 3)), True),
        (Window(from_ns=T0 + 4 * SECOND, to_ns=T0 + 4 * SECOND), False),
        (Window(from_ns=T0 + 5 * SECOND), False),
        (Window(from_ns=T0 + 6 * SECOND), True),
        (Window(to_ns=T0 + 2 * SECOND), True),
        (Window(to_ns=T0 + 3 * SECOND), False),
    ],
)
@pytest.mark.parametrize("kind", ["damage", "gap"])
def test_loss_in_the_window_is_reported_and_loss_outside_is_not(
    tmp_path: Path, window: Window, whole: bool, kind: str
) -> None:
    """Frame 4 of 0..9 is lost; by time it may lie anywhere between its neighbours."""
    ten_frames(tmp_path, segment_bytes=1)
    if kind == "damage":
        damage_frame(tmp_path, 4)
    else:
        (name,) = (tmp_path / "wal").glob("*-00000000000000000004.wal")
        name.unlink()
    result = export(tmp_path, window)
    assert result.is_whole is whole
    found = [(d.first, d.last) for d in result.damage] + [(g.first, g.last) for g in result.gaps]
    assert found == ([] if whole else [(Position(0, 4), Position(0, 4))])
    inside = [n for n in range(10) if n != 4]
    assert set(values(tmp_path / "bag")) <= {(t, n) for n in inside for t in ("/r/a", "/r/sub/b")}


def test_a_window_before_what_is_kept_is_a_gap(tmp_path: Path) -> None:
    """Retention took it: asked for by position, it is missing."""
    ten_frames(tmp_path, segment_bytes=1)
    for n in range(3):
        next((tmp_path / "wal").glob(f"*-{n:020d}.wal")).unlink()
    result = export(tmp_path, Window(first=Position(0, 1), last=Position(0, 4)))
    assert [(g.first, g.last) for g in result.gaps] == [(Position(0, 1), Position(0, 2))]


def test_what_a_bag_cannot_hold_is_left_out_and_counted(tmp_path: Path) -> None:
    """JSON is not CDR; MCAP has no time before 1970. Only the second is a loss."""
    json = TopicDeclaration("/m", encoding="json")
    write_log(tmp_path / "wal", [[Record(json, T0, b"{}"), Record(A, T0, number(1))]])
    result = export(tmp_path)
    assert result.left_out == {("/m", NOT_CDR): 1}
    assert result.is_whole
    assert len(see_with_rosbags(tmp_path / "bag")) == 1
    write_log(tmp_path / "old" / "wal", [[Record(A, -1, number(1)), Record(A, 0, number(2), -7)]])
    result = export(tmp_path / "old")
    assert result.left_out == {("/r/a", BEFORE_1970): 1}
    assert not result.is_whole
    assert [s.publish_time_ns for s in see_with_mcap(tmp_path / "old" / "bag")] == [0]


def test_a_lost_mark_is_said_and_not_taken_for_an_empty_log(tmp_path: Path) -> None:
    """Nothing is durable without it, but something is there."""
    ten_frames(tmp_path)
    (tmp_path / "wal" / "durable").unlink()
    with pytest.raises(FatalError, match="fsck --repair"):
        export(tmp_path)
    repair(OsFileSystem(), str(tmp_path / "wal"))
    assert export(tmp_path).messages == 20


def test_an_empty_window_is_an_empty_bag(tmp_path: Path) -> None:
    """It opens; nothing is in it."""
    ten_frames(tmp_path)
    assert export(tmp_path, Window(topics=("/x",))).messages == 0
    assert see_with_mcap(tmp_path / "bag") == []


def test_one_topic_may_change_its_definition(tmp_path: Path) -> None:
    """Each declaration is a channel with its own schema."""
    other = TopicDeclaration("/r/a", type_name=NUMBER, definition="uint64 data\nuint8 more\n")
    write_log(tmp_path / "wal", [[Record(A, T0, number(1)), Record(other, T0, number(2))]])
    export(tmp_path)
    (path,) = (tmp_path / "bag").glob("*.mcap")
    with path.open("rb") as file:
        found = [
            (schema.data if schema else b"", message.data)
            for schema, _, message in make_reader(file).iter_messages()
        ]
    assert found == [
        (b"uint64 data\n", number(1)),
        (b"uint64 data\nuint8 more\n", number(2)),
    ]


def test_nothing_is_written_over_and_nothing_half_made_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing folder is refused; an export that fails leaves no folder."""
    ten_frames(tmp_path)
    (tmp_path / "bag").mkdir()
    with pytest.raises(FatalError, match="exists already"):
        export(tmp_path)
    (tmp_path / "bag").rmdir()

    def fail(_: ExportResult) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space"):
        export(tmp_path, progress=fail)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["wal"]


def test_memory_does_not_grow_with_the_window(tmp_path: Path) -> None:
    """48 MiB pass through less than a third of that."""
    payload = os.urandom(1 << 20)
    for n in range(0, 48, 4):
        frame = [Record(A, T0 + n + i, payload) for i in range(4)]
        write_log(tmp_path / "wal", [frame], commit_bytes=8 << 20)
    tracemalloc.start()
    try:
        export(tmp_path, compression="none")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


TOPICS = [A, B, number_topic("/c", namespace="/r", original_name="/r/c")]
RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(TOPICS),
        st.integers(0, (1 << 63) - 1),
        st.binary(max_size=60),
        st.one_of(st.just(0), st.integers(-(1 << 63), (1 << 63) - 1)),
        st.integers(0, (1 << 64) - 1),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30, deadline=None)
@given(
    frames=st.lists(RECORDS, min_size=1, max_size=5), compression=st.sampled_from(["zstd", "none"])
)
def test_any_records_arrive_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, frames: list[list[Record]], compression: str
) -> None:
    """Any bytes, any times from 1970 on, any order."""
    tmp_path = tmp_path_factory.mktemp("export")
    write_log(tmp_path / "wal", frames)
    export(tmp_path, compression=compression)
    expected = [r for frame in frames for r in frame]
    assert see_with_mcap(tmp_path / "bag") == [
        Seen(
            r.topic.name,
            r.topic.type_name,
            r.time_ns,
            r.source_ns if r.source_ns > 0 else r.time_ns,
            r.payload,
        )
        for r in expected
    ]
