# SPDX-License-Identifier: Apache-2.0
"""Frames made by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thadam_ros.model.message import Frame, TopicDeclaration


def make_frame(
    position: int,
    records: Sequence[tuple[TopicDeclaration, bytes]],
    *,
    source_id: str = "robot",
    epoch: int = 7,
    ordinal: int = 0,
    synced: bool = True,
    publishers: Sequence[bytes] = (),
    first_time_ns: int = 1_700_000_000_000_000_000,
) -> Frame:
    """Return a frame of the given records, one millisecond apart."""
    declarations: dict[int, TopicDeclaration] = {}
    refs: dict[TopicDeclaration, int] = {}
    for topic, _ in records:
        if topic not in refs:
            refs[topic] = len(refs) + 1
            declarations[refs[topic]] = topic
    payloads = [payload for _, payload in records]
    gids = {index + 1: gid for index, gid in enumerate(dict.fromkeys(publishers))}
    reverse = {gid: ref for ref, gid in gids.items()}
    count = len(records)
    return Frame(
        ordinal=ordinal,
        epoch=epoch,
        position=position,
        source_id=source_id,
        clock_synced=synced,
        ingest_time_ns=first_time_ns,
        boottime_ns=0,
        boot_id=bytes(16),
        topic_refs=np.array([refs[topic] for topic, _ in records], np.uint32),
        ingest_times_ns=first_time_ns + np.arange(count, dtype=np.int64) * 1_000_000,
        offsets=np.cumsum([0, *(len(p) for p in payloads)]).astype(np.int64),
        source_timestamps_ns=np.zeros(count, np.int64),
        sequences=np.arange(1, count + 1, dtype=np.uint64),
        publisher_refs=np.array(
            [reverse[gid] for gid in publishers] if publishers else [0] * count, np.uint32
        ),
        payload=np.frombuffer(b"".join(payloads), np.uint8),
        topics=declarations,
        publishers=gids,
    )
