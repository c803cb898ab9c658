# SPDX-License-Identifier: Apache-2.0
"""Closed lists: reject domains, reject codes, state reason codes.

Reject codes are ``<domain>.<name>``. The only open family is ``quality.<name>``, whose names
are declared by ``reject_unless`` in the configuration.
"""

from __future__ import annotations

from typing import Final

REJECT_DOMAINS: Final = ("decode", "schema", "transform", "quality", "sink", "poison")

#: code -> what it means. Extend here first; docs/decoding.md and the tests are checked against it.
REJECT_CODES: Final[dict[str, str]] = {
    "decode.type_unknown": "the topic's type has no definition in the WAL",
    "decode.type_mismatch": "the topic's type is not the one the dataset declares",
    "decode.definition_invalid": "the declared message definition cannot be parsed",
    "decode.encapsulation": "the CDR encapsulation is not XCDR1 plain CDR",
    "decode.truncated": "the payload ends before the message does",
    "decode.string": "a string is not UTF-8, lacks its terminator or has an impossible length",
    "decode.length": "a sequence is longer than its bound or than the payload can hold",
    "decode.boolean": "a boolean is neither 0 nor 1",
    "decode.endianness": "the header's endianness contradicts the body's lengths",
    "decode.encoding": "the payload's encoding is not the one the dataset declares",
    "schema.field_missing": "a required field is missing or null",
    "schema.pointer_unknown": "a field's pointer does not exist in this message definition",
    "schema.key_missing": "an event id key is missing or null",
    "schema.dedup_keys": "the dedup window holds max_dedup_keys keys (on_overflow: reject)",
    "schema.explode_length": "parallel arrays have different lengths",
    "schema.explode_limit": "a message explodes into more than max_explode rows",
    "schema.integer_range": "an integer does not fit its column",
    "schema.time": "a time does not fit the column's range",
    "schema.payload_limit": "the payload is larger than max_payload",
    "transform.failed": "a transform could not be computed for this row",
    "sink.value": "the store cannot hold a value of this row",
    "poison.raised": "decoding this record alone raised an unexpected exception",
}

#: Reason codes of component states (spec 1.6).
STATE_REASONS: Final[dict[str, str]] = {
    "ok": "works as configured",
    "starting": "not yet ready",
    "stopped": "stopped on request",
    "config": "the configuration is refused",
    "lock_held": "another process holds the lock",
    "format_version": "a file on disk has another format version",
    "storage_full": "disk, quota or budget exhausted",
    "storage_error": "the filesystem refuses to work",
    "wal_damage": "the WAL has damaged ranges",
    "wal_gap": "a WAL segment is missing",
    "wal_full": "the WAL reached its budget",
    "fsync_failed": "fsync failed and the replacement segment failed too",
    "type_unknown": "a topic's type has no definition",
    "qos_incompatible": "a publisher offers an incompatible QoS",
    "type_mismatch": "publishers of a topic disagree about its type",
    "sink_unreachable": "the store does not answer",
    "sink_refused": "the store refuses credentials or schema",
    "quarantine_damage": "staged rejects are damaged on disk",
    "quarantine_unwritable": "rejects cannot be made durable",
    "bug": "an unexpected exception; the component is rebuilt",
    "not_drained": "stopped before everything was delivered; the rest stays in the WAL",
}
