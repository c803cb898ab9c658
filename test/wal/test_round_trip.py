# SPDX-License-Identifier: Apache-2.0
"""Property: whatever is appended comes back, in order, bit for bit."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import list_valid_frames
from thadam_ros.wal.writer import WalWriter

from .logs import read_all

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
RECORD = st.tuples(
    st.integers(1, 40),
    I64,
    st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"a" * 3000, bytes(range(256)) * 9])),
    I64,
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 3),
    st.one_of(
        st.none(), st.dictionaries(st.text(max_size=5), st.text(max_size=8), min_size=1, max_size=3)
    ),
)
BATCH = st.tuples(st.sampled_from(["a", "b"]), st.lists(RECORD, min_size=1, max_size=8))


def _batch(source: str, records: list[tuple]) -> SourceBatch:  # type: ignore[type-arg]
    columns = list(zip(*records, strict=True))
    return SourceBatch(
        source,
        list(columns[0]),
        list(columns[1]),
        list(columns[2]),
        list(columns[3]),
        list(columns[4]),
        list(columns[5]),
        {i: a for i, a in enumerate(columns[6]) if a is not None},
    )


@settings(max_examples=60, deadline=None)
@given(
    commits=st.lists(st.lists(BATCH, min_size=1, max_size=4), min_size=1, max_size=4),
    compression=st.sampled_from(["none", "zstd"]),
    commit=st.sampled_from(["group", "each"]),
    segment_bytes=st.sampled_from([1, 3_000, 1 << 20]),
    commit_bytes=st.sampled_from([200, 5_000, 1 << 20]),
)
def test_what_is_appended_comes_back(
    commits: list[list[tuple[str, list[tuple]]]],  # type: ignore[type-arg]
    compression: str,
    commit: str,
    segment_bytes: int,
    commit_bytes: int,
) -> None:
    """Reader and oracle return each source's records in order with every value."""
    root = tempfile.mkdtemp()
    try:
        writer = WalWriter.open(
            root,
            WalConfig(
                compression=compression,
                commit=commit,
                segment_bytes=segment_bytes,
                commit_bytes=commit_bytes,
                commit_interval_ns=3_600_000_000_000,
            ),
            fs=OsFileSystem(),
            clock=SystemClock(),
            clock_synced=lambda: True,
        )
        refs = [writer.declare_topic(TopicDeclaration(f"/t{i}")) for i in range(1, 41)]
        assert refs == list(range(1, 41))
        gids = [bytes([i]) * 16 for i in range(1, 4)]
        assert [writer.declare_publisher(gid) for gid in gids] == [1, 2, 3]
        expected: dict[str, list[tuple]] = {"a": [], "b": []}  # type: ignore[type-arg]
        for batches in commits:
            for source, records in batches:
                assert writer.append(_batch(source, records))
                expected[source] += [
                    (f"/t{r[0]}", *r[1:5], gids[r[5] - 1] if r[5] else b"", r[6] or {})
                    for r in records
                ]
            assert writer.flush(60)
        writer.close()
        seen: dict[str, list[tuple]] = {"a": [], "b": []}  # type: ignore[type-arg]
        outcome = read_all(OsFileSystem(), root)
        for frame in outcome.frames:
            for i in range(len(frame)):
                seen[frame.source_id].append(
                    (
                        frame.topics[int(frame.topic_refs[i])].name,
                        int(frame.ingest_times_ns[i]),
                        frame.payload[frame.offsets[i] : frame.offsets[i + 1]].tobytes(),
                        int(frame.source_timestamps_ns[i]),
                        int(frame.sequences[i]),
                        frame.publishers.get(int(frame.publisher_refs[i]), b""),
                        dict(frame.attributes.get(i, {})),
                    )
                )
        assert seen == expected
        assert not outcome.ranges
        assert not outcome.gaps
        oracle = list_valid_frames(root)
        assert [frame.place for frame in oracle] == outcome.places
        assert [r.payload for f in oracle for r in f.records if f.source == "a"] == [
            record[2] for record in expected["a"]
        ]
    finally:
        shutil.rmtree(root)
