# SPDX-License-Identifier: Apache-2.0
"""The writer's frozen statistics; diagnostics, metrics, status and the CLI read these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thadam_ros.model.position import Position


@dataclass(frozen=True, slots=True)
class WalStatistics:
    """A snapshot of the WAL writer. Counters count since the writer was opened.

    Attributes:
        alive: The writer thread runs; False after an unexpected exception and after close.
        failed: Nothing more is made durable until the log is opened again.
        storage_full: The last commit was refused by disk or quota; tried again by itself.
        first_error: First error that was not a full disk, or empty. Kept until the next open.
        last_error: Newest error of any kind, or empty.
        durable: Durable position.
        frames: Data frames made durable.
        records: Records made durable.
        bytes: Bytes written and synced, headers and declarations included.
        pending_batches: Batches accepted and not yet durable.
        pending_bytes: Their bytes, counted against the ceiling.
        pending_bytes_max: The ceiling.
        refused_batches: Batches that append refused (ceiling reached, failed or closed).
        refused_records: Records in them.
        lost_records: Accepted records that never became durable: the writer failed, or the disk
            was still full at close.
        publishers_refused: Publishers that got reference 0 because the table is full.
        fsyncs: fdatasync calls that returned.
        commits: Commits made durable.
        commit_faults: Writes or syncs that failed for another reason than a full disk.
        storage_refusals: Commits refused by a full disk or quota, retries included.
        suspect_segments: Segments closed after a failed fsync.
        callback_errors: Exceptions that on_durable raised.
        last_commit_ns: Duration of the last successful commit, monotonic ns.
        longest_commit_ns: Longest of them.
        segments: Segment files in the directory.
        segment_bytes: Bytes of the newest segment.
        torn_ranges: Torn tails moved aside by the recovery at open.
        torn_bytes: Their bytes.
        damaged_ranges: Damaged ranges the recovery found in the last segment.
        damaged_bytes: Their bytes.
        recovered_frames: Intact frames in the segment the recovery looked at.
        damage_not_copied: Damaged ranges without a copy in a .damaged file: the disk was full.
        new_epoch: The recovery began a new epoch: a cursor lay beyond the end of the log.
        wal_bytes: Bytes of all segment files.
        budget_bytes, min_free_bytes: The limits in force.
        filesystem_free_bytes: What is free, as of the last commit or look.
        held_up_by: The limit for which append refuses now: ``budget`` or ``min_free``; empty
            while it accepts.
        refused_by_cause: Refused records by cause: ``budget``, ``min_free``, ``storage_full``
            (the ceiling is reached because the disk is full), ``pending`` (the ceiling),
            ``failed``, ``closed``.
        deleted_segments, deleted_bytes: What retention deleted.
    """

    alive: bool
    failed: bool
    storage_full: bool
    first_error: str
    last_error: str
    durable: Position
    frames: int
    records: int
    bytes: int
    pending_batches: int
    pending_bytes: int
    pending_bytes_max: int
    refused_batches: int
    refused_records: int
    lost_records: int
    publishers_refused: int
    fsyncs: int
    commits: int
    commit_faults: int
    storage_refusals: int
    suspect_segments: int
    callback_errors: int
    last_commit_ns: int
    longest_commit_ns: int
    segments: int
    segment_bytes: int
    torn_ranges: int
    torn_bytes: int
    damaged_ranges: int
    damaged_bytes: int
    recovered_frames: int
    damage_not_copied: int
    new_epoch: bool
    wal_bytes: int
    budget_bytes: int
    min_free_bytes: int
    filesystem_free_bytes: int
    held_up_by: str
    refused_by_cause: Mapping[str, int]
    deleted_segments: int
    deleted_bytes: int
