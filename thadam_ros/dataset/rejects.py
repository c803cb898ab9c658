# SPDX-License-Identifier: Apache-2.0
"""Rejects of a record group, with the raw bytes that quarantine keeps (spec 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from thadam_ros.model.event import REJECT_RAW_BYTES_MAX, Reject
from thadam_ros.model.message import RecordGroup
from thadam_ros.transforms.rows import Rows

WHOLE_MESSAGE = -1


class Found(NamedTuple):
    """One reject before its record is looked up; sorts by record, then sample."""

    record: int
    sample: int
    domain: str
    code: str
    reason: str


def of_records(errors: Mapping[int, tuple[str, str]]) -> list[Found]:
    """Return rejects of whole messages from ``record -> (code, reason)``."""
    return [
        Found(record, WHOLE_MESSAGE, code.split(".", 1)[0], code, reason)
        for record, (code, reason) in errors.items()
    ]


def of_rows(rows: Rows) -> list[Found]:
    """Return the rejects that steps found."""
    found = []
    for reject in rows.rejects:
        for position, row in enumerate(reject.index.tolist()):
            record = row if rows.record is None else int(rows.record[row])
            sample = WHOLE_MESSAGE if rows.sample is None else int(rows.sample[row])
            reason = reject.reason(position)
            found.append(Found(record, sample, reject.domain, reject.code, reason))
    return found


def build_rejects(
    group: RecordGroup, found: Iterable[Found], dataset: str, row_hash: str
) -> tuple[Reject, ...]:
    """Return rejects in WAL order."""
    built = []
    for record, sample, domain, code, reason in sorted(found):
        start, end = int(group.starts[record]), int(group.ends[record])
        kept = min(end, start + REJECT_RAW_BYTES_MAX)
        topic = group.declarations[int(group.topic[record])]
        built.append(
            Reject(
                wal_epoch=int(group.wal_epoch[record]),
                wal_pos=int(group.wal_pos[record]),
                ingest_time_ns=int(group.ingest_time_ns[record]),
                source_id=group.source_id,
                topic=topic.name,
                error_domain=domain,
                error_code=code,
                reason=reason,
                raw=group.payload[start:kept].tobytes(),
                raw_truncated=end > kept,
                dataset=dataset,
                record_index=int(group.record_index[record]),
                sample_idx=sample,
                encoding=topic.encoding,
                type_name=topic.type_name,
                type_hash=topic.type_hash,
                clock_synced=bool(group.clock_synced[record]),
                row_hash=row_hash,
            )
        )
    return tuple(built)
