# SPDX-License-Identifier: Apache-2.0
"""Import: a bag becomes a log, in an epoch of its own, and an export comes back as it was."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from thadam_ros.config.schema import WalConfig
from thadam_ros.errors import FatalError, LockHeldError, StorageFullError
from thadam_ros.files.bag_reader import BagError, BagReader
from thadam_ros.files.wal_export import Window, export_window
from thadam_ros.files.wal_import import ImportResult, import_bag
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.bags import ros2_type_name, shared_bags
from thadam_ros.testing.wal import FaultyFileSystem, list_valid_frames
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.writer import WalWriter

from .logs import (
    NUMBER,
    T0,
    Record,
    number,
    number_topic,
    read_log,
    see_with_mcap,
    see_with_rosbags,
    write_log,
)

BAGS = shared_bags()
HASH = "RIHS01_" + "ab" * 32
A, B = number_topic("/r/a"), number_topic("/r/sub/b")


def bring_in(
    bag: Path, directory: Path, *, namespace: str | None = None, **options: Any
) -> ImportResult:
    options = {"source_id": "robot", "config": WalConfig(), "fs": OsFileSystem(), **options}
    return import_bag(str(directory), BagReader(bag, namespace=namespace), **options)


def write_bag(
    folder: Path, messages: Sequence[tuple[str, int, bytes]], plugin: StoragePlugin
) -> None:
    """Make a bag with rosbags' own writer."""
    with Writer(folder, version=9, storage_plugin=plugin) as writer:
        connections = {}
        for topic, time_ns, payload in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(
                    topic, NUMBER, msgdef="uint64 data\n", rihs01=HASH
                )
            writer.write(connections[topic], time_ns, payload)


@pytest.mark.parametrize("plugin", [StoragePlugin.SQLITE3, StoragePlugin.MCAP])
@pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE])
def test_what_rosbag2_compressed_is_imported(
    tmp_path: Path, plugin: StoragePlugin, mode: CompressionMode
) -> None:
    """Whole files or single messages, as metadata.yaml says."""
    writer = Writer(tmp_path / "bag", version=8, storage_plugin=plugin)
    writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection("/a", NUMBER, msgdef="uint64 data\n", rihs01=HASH)
        for n in range(20):
            writer.write(connection, T0 + n, number(n))
    assert bring_in(tmp_path / "bag", tmp_path / "wal").messages == 20
    assert [r.payload for r in read_log(tmp_path / "wal")] == [number(n) for n in range(20)]


def exported(tmp_path: Path, frames: Sequence[Sequence[Record]]) -> Path:
    write_log(tmp_path / "wal", frames)
    export_window(str(tmp_path / "wal"), tmp_path / "bag", Window(), fs=OsFileSystem())
    return tmp_path / "bag"


@pytest.mark.parametrize("plugin", [StoragePlugin.SQLITE3, StoragePlugin.MCAP])
@pytest.mark.parametrize("form", ["folder", "file"])
def test_a_bag_becomes_a_log(tmp_path: Path, plugin: StoragePlugin, form: str) -> None:
    """Folder or single file, sqlite3 or MCAP: topics, definitions, hashes, times, bytes."""
    messages = [("/a", T0 + n, number(n)) for n in range(5)] + [("/b", T0 + 9, number(7))]
    write_bag(tmp_path / "bag", messages, plugin)
    (file,) = (p for p in (tmp_path / "bag").iterdir() if p.suffix != ".yaml")
    result = bring_in(file if form == "file" else tmp_path / "bag", tmp_path / "wal")
    found = read_log(tmp_path / "wal")
    assert [(r.topic.name, r.time_ns, r.payload) for r in found] == messages
    assert {(r.topic.type_name, r.topic.definition, r.topic.namespace) for r in found} == {
        (NUMBER, "uint64 data\n", "/")
    }
    # In an MCAP file of rosbags' writer no channel has a hash, in sqlite3 the topics have.
    told = plugin is StoragePlugin.SQLITE3
    assert {(r.topic.type_hash == HASH, r.topic.hash_origin) for r in found} == {
        (told, "graph" if told else "computed")
    }
    assert (result.messages, result.topics) == (6, {"/a": 5, "/b": 1})
    (frame,) = list_valid_frames(str(tmp_path / "wal"))
    assert (result.first, result.last) == (Position(0, 0), Position(0, 0))
    assert (frame.epoch, frame.source, frame.clock_synced) == (result.epoch, "robot", False)


def test_lag_and_age_speak_of_the_recording(tmp_path: Path) -> None:
    """The frame's ingest time is its first message's log time; the boot is nobody's."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))]])
    bring_in(bag, tmp_path / "new", clock_synced=True)
    reader = WalReader(str(tmp_path / "new"), fs=OsFileSystem())
    (frame,) = reader.read(1, 1)
    reader.close()
    assert (frame.ingest_time_ns, frame.boottime_ns, frame.boot_id) == (T0, 0, bytes(16))
    assert frame.clock_synced


def test_unknown_definitions_come_from_the_catalog(tmp_path: Path) -> None:
    """An old sqlite3 bag stores none; the log has to stand alone."""
    write_bag(tmp_path / "bag", [("/a", T0, number(1))], StoragePlugin.SQLITE3)
    import sqlite3

    (file,) = (tmp_path / "bag").glob("*.db3")
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM message_definitions")
    connection.close()
    bring_in(tmp_path / "bag", tmp_path / "wal")
    (record,) = read_log(tmp_path / "wal")
    assert "uint64 data" in record.topic.definition


def test_a_log_with_frames_is_refused_and_untouched(tmp_path: Path) -> None:
    """Two recordings must not meet in one log unasked."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))]])
    before = {p.name: p.read_bytes() for p in (tmp_path / "wal").iterdir()}
    with pytest.raises(FatalError, match="has frames already"):
        bring_in(bag, tmp_path / "wal")
    assert {p.name: p.read_bytes() for p in (tmp_path / "wal").iterdir()} == before


def test_a_bag_larger_than_the_budget_is_imported_whole(tmp_path: Path) -> None:
    """The budget binds capture; so does min_free, which no disk could satisfy here."""
    records = [[Record(A, T0 + n, number(n)) for n in range(500)]]
    bag = exported(tmp_path, records)
    config = WalConfig(budget_bytes=1000, min_free_bytes=1 << 60, commit_bytes=4096)
    assert bring_in(bag, tmp_path / "new", config=config).messages == 500
    assert len(read_log(tmp_path / "new")) == 500


def test_append_goes_on_behind_in_an_epoch_of_its_own(tmp_path: Path) -> None:
    """Readers meet both, one after the other."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))], [Record(B, T0 + 1, number(2))]])
    result = bring_in(bag, tmp_path / "wal", append=True)
    assert (result.first, result.last) == (Position(1, 0), Position(1, 0))
    assert [r.payload for r in read_log(tmp_path / "wal")] == [number(n) for n in (1, 2, 1, 2)]
    epochs = [frame.epoch for frame in list_valid_frames(str(tmp_path / "wal"))]
    assert epochs[0] == epochs[1]
    assert epochs[2] == result.epoch != epochs[0]
    again = bring_in(bag, tmp_path / "wal", append=True)
    assert again.first == Position(2, 0)


def test_a_cursor_of_an_earlier_log_is_never_ahead(tmp_path: Path) -> None:
    """A new log in an old data_dir begins where no chain has been."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))]])
    result = bring_in(bag, tmp_path / "new", cursors=[Position(3, 70)])
    assert result.first == Position(4, 0)


def test_a_writer_that_has_the_log_is_named(tmp_path: Path) -> None:
    """One writer a log, imports included."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))]])
    writer = WalWriter.open(
        str(tmp_path / "new"),
        WalConfig(),
        fs=OsFileSystem(),
        clock=_clock(),
        clock_synced=lambda: True,
    )
    with pytest.raises(LockHeldError, match=rf"WAL writer \(pid {os.getpid()}\)"):
        bring_in(bag, tmp_path / "new")
    writer.close()


def _clock() -> Any:
    from thadam_ros.model.clock import SystemClock

    return SystemClock()


def test_a_bag_that_ends_early_is_imported_up_to_there(tmp_path: Path) -> None:
    """A recorder that was killed leaves no footer: what it wrote is imported, the rest is said."""
    frames = [[Record(A, T0 + n, number(n) + bytes(2_000)) for n in range(3_000)]]
    bag = exported(tmp_path, frames)
    (file,) = bag.glob("*.mcap")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    result = bring_in(file, tmp_path / "new")
    assert f"{file} cannot be read" in result.problem
    found = read_log(tmp_path / "new")
    assert 0 < len(found) < 3_000
    assert result.messages == len(found)
    assert [r.payload for r in found] == [r.payload for r in frames[0][: len(found)]]


@pytest.mark.parametrize("name", ["x.mcap", "x.db3", "x.bag", "x", "missing"])
def test_what_is_no_bag_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """One sentence with the file's name, and no log."""
    if name == "x":
        (tmp_path / name).mkdir()
    elif name != "missing":
        (tmp_path / name).write_bytes(b"neither bag nor fish" * 100)
    with pytest.raises(BagError, match=name):
        bring_in(tmp_path / name, tmp_path / "wal")
    assert not (tmp_path / "wal").exists()


def test_metadata_that_names_a_missing_file_is_said(tmp_path: Path) -> None:
    """Half a split bag is not imported as if it were whole."""
    bag = exported(tmp_path, [[Record(A, T0, number(1))]])
    (file,) = bag.glob("*.mcap")
    file.unlink()
    with pytest.raises(BagError, match="is missing"):
        bring_in(bag, tmp_path / "new")


def test_split_files_without_metadata_are_read_in_recording_order(tmp_path: Path) -> None:
    """A recorder's _2 comes before its _10."""
    (tmp_path / "split").mkdir()
    for n in (10, 2, 1):
        bag = exported(tmp_path / f"part{n}", [[Record(A, T0 + n, number(n))]])
        (file,) = bag.glob("*.mcap")
        file.rename(tmp_path / "split" / f"split_{n}.mcap")
    bring_in(tmp_path / "split", tmp_path / "new")
    assert [r.payload for r in read_log(tmp_path / "new")] == [number(n) for n in (1, 2, 10)]


def test_a_full_disk_is_an_error_and_what_was_imported_stays(tmp_path: Path) -> None:
    """The sentence says how far it came."""
    frames = [[Record(A, T0 + n, number(n) + bytes(1_000)) for n in range(40)]]
    bag = exported(tmp_path, frames)
    fs = FaultyFileSystem()

    def fill(result: ImportResult) -> None:
        fs.fail("pwrite_all", 5, times=-1, path=".wal")

    with pytest.raises((StorageFullError, FatalError), match=r"the log ends at 0:0"):
        bring_in(bag, tmp_path / "new", fs=fs, config=WalConfig(commit_bytes=8_192), progress=fill)
    found = read_log(tmp_path / "new")
    assert [r.payload for r in found] == [r.payload for r in frames[0][: len(found)]]
    assert 0 < len(found) < 40


def test_memory_does_not_grow_with_the_bag(tmp_path: Path) -> None:
    """48 MiB pass through less than two thirds of that, five commits' worth."""
    payload = os.urandom(1 << 20)
    for n in range(0, 48, 4):
        write_log(
            tmp_path / "wal",
            [[Record(A, T0 + n + i, payload) for i in range(4)]],
            commit_bytes=8 << 20,
        )
    export_window(str(tmp_path / "wal"), tmp_path / "bag", Window(), fs=OsFileSystem())
    tracemalloc.start()
    try:
        bring_in(tmp_path / "bag", tmp_path / "new")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from(
            [A, B, number_topic("/c", namespace="/r", original_name="/r/c", type_hash="")]
        ),
        st.integers(0, (1 << 63) - 1),
        st.binary(max_size=60),
        st.one_of(st.just(0), st.integers(1, (1 << 63) - 1)),
        st.just(0),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(frames=st.lists(RECORDS, min_size=1, max_size=5))
def test_any_export_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, frames: list[list[Record]]
) -> None:
    """Order, names, namespaces, definitions, both times, bytes; hashes are computed."""
    tmp_path = tmp_path_factory.mktemp("import")
    bring_in(exported(tmp_path, frames), tmp_path / "new")
    found = read_log(tmp_path / "new")
    assert [(r.time_ns, r.payload) for r in found] == [
        (r.time_ns, r.payload) for frame in frames for r in frame
    ]
    for left, right in zip((r for frame in frames for r in frame), found, strict=True):
        assert right.source_ns in (left.source_ns, 0 if left.source_ns == left.time_ns else -1)
        for field in ("name", "original_name", "namespace", "type_name", "definition"):
            assert getattr(left.topic, field) == getattr(right.topic, field)


def test_a_publishers_hash_survives_and_a_namespace_may_be_set(tmp_path: Path) -> None:
    """A graph hash stays one; --namespace wins over what the bag remembers."""
    told = number_topic("/r/a", namespace="/r", type_hash="RIHS01_" + "5" * 64, hash_origin="graph")
    bag = exported(tmp_path, [[Record(told, T0, number(1))]])
    bring_in(bag, tmp_path / "new")
    assert read_log(tmp_path / "new")[0].topic == told
    bring_in(bag, tmp_path / "other", namespace="/x")
    assert read_log(tmp_path / "other")[0].topic.namespace == "/x"


@pytest.mark.skipif(not BAGS, reason="the shared bags are not at hand (THADAM_SHARED_DATA)")
@pytest.mark.parametrize(
    "bag", BAGS, ids=lambda path: path.parent.name if path.is_file() else path.name
)
def test_a_real_bag_passes_through_byte_for_byte(bag: Path, tmp_path: Path) -> None:
    """bag -> log -> bag: rosbags sees the same messages in both, mcap the same as rosbags."""
    result = bring_in(bag, tmp_path / "wal")
    export = export_window(str(tmp_path / "wal"), tmp_path / "bag", Window(), fs=OsFileSystem())
    assert export.is_whole
    original = sorted(
        (topic, ros2_type_name(type_name), time_ns, payload)
        for topic, type_name, time_ns, payload in see_with_rosbags(
            bag, get_typestore(Stores.LATEST)
        )
    )
    assert len(original) == result.messages == export.messages
    assert sorted(see_with_rosbags(tmp_path / "bag")) == original
    assert (
        sorted(
            (s.topic, s.type_name, s.log_time_ns, s.payload)
            for s in see_with_mcap(tmp_path / "bag")
        )
        == original
    )
