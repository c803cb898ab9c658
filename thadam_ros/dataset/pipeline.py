# SPDX-License-Identifier: Apache-2.0
"""Record groups into rows: decode, ids, dedup, explode, extract, time, steps (spec 3.2, end).

A pipeline is pure apart from its own state: no clock, no random, no I/O. The same records give the
same rows however they are cut into groups.
"""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa

from thadam_ros.config.schema import LimitsConfig
from thadam_ros.dataset.assemble import (
    assemble,
    count_flags,
    topic_labels,
)
from thadam_ros.dataset.binding import Binding, bind
from thadam_ros.dataset.convert import convert
from thadam_ros.dataset.dedup import Dedup, mask_of
from thadam_ros.dataset.event_id import ID_BYTES, Digests, key_ids, position_ids
from thadam_ros.dataset.explode import explode
from thadam_ros.dataset.keys import Keys, canonical_keys
from thadam_ros.dataset.plan import DatasetPlan, PlannedField
from thadam_ros.dataset.reader import Reader, spread_values, usable
from thadam_ros.dataset.rejects import build_rejects, of_records, of_rows
from thadam_ros.dataset.timing import apply_time, source_time
from thadam_ros.dataset.types import ColumnType
from thadam_ros.decode.columns import DecodedColumns
from thadam_ros.errors import FormatError, RecordError
from thadam_ros.model.event import Outcome, PipelineResult
from thadam_ros.model.message import RecordGroup, TopicDeclaration
from thadam_ros.model.quality import QualityFlag
from thadam_ros.transforms.rows import Mask, Rows, Values
from thadam_ros.transforms.step import Step, stable_hash

STATE_FORMAT = 1
#: Definitions kept compiled; a topic seldom has more than one.
BINDINGS_MAX = 64
_DEDUP = "dataset.dedup"


class DatasetPipeline:
    """Runs one plan; owned by one thread.

    Args:
        plan: A plan without problems.
        timestamp_unit: ``us`` or ``ns``.
    """

    def __init__(self, plan: DatasetPlan, *, timestamp_unit: str, limits: LimitsConfig) -> None:
        if not plan.supported:
            raise ValueError(plan.reason)
        self._plan = plan
        self._unit = timestamp_unit
        self._limits = limits
        self.schema = plan.arrow_schema(timestamp_unit)
        self._bindings: dict[tuple[str, str, str], Binding | RecordError] = {}
        self._dedup = Dedup(plan.dedup, limits.max_dedup_keys) if plan.dedup else None
        self._steps: list[tuple[str, str, Step]] = [
            (step.name, step.state_hash, step.build()) for step in plan.steps
        ]
        self._saved: bytes | None = None
        #: Steps whose state a restore found but could not use (their configuration changed).
        self.discarded: tuple[str, ...] = ()

    def process(self, group: RecordGroup) -> PipelineResult:
        """Turn records into rows and rejects.

        When this raises, the pipeline's state is as it was before.

        Args:
            group: Records of one type, in WAL order.
        """
        try:
            result = self._process(group)
        except BaseException:
            for part in self._stateful():
                part.rollback()
            raise
        for part in self._stateful():
            part.commit()
        self._saved = None
        return result

    def snapshot(self) -> bytes:
        """Return all state that can change a later row; equal states give equal bytes."""
        if self._saved is not None:
            return self._saved
        steps = {}
        for name, state_hash, step in self._steps:
            if state_hash:
                steps[name] = {"hash": state_hash, "state": step.snapshot()}
        if self._dedup:
            steps[_DEDUP] = {"hash": self._dedup_hash(), "state": self._dedup.snapshot()}
        document = {"format": STATE_FORMAT, "steps": steps}
        self._saved = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return self._saved

    def restore(self, state: bytes) -> None:
        """Continue from a snapshot; a step that is configured differently now starts fresh.

        Raises:
            FormatError: If the bytes are no snapshot or of another version.
        """
        try:
            document = orjson.loads(state)
            version, saved = document["format"], document["steps"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
            raise FormatError("not the state of a dataset pipeline") from exc
        if version != STATE_FORMAT:
            raise FormatError(
                f"dataset state has format {version}, this software reads {STATE_FORMAT}"
            )
        parts: list[tuple[str, str, Step | Dedup]] = [s for s in self._steps if s[1]]
        if self._dedup:
            parts.append((_DEDUP, self._dedup_hash(), self._dedup))
        self._saved = None
        kept = set()
        for name, state_hash, part in parts:
            entry = saved.get(name)
            same = entry is not None and entry.get("hash") == state_hash
            if same:
                kept.add(name)
            try:
                part.restore(entry["state"] if same else None)
            except (TypeError, ValueError, KeyError) as exc:
                raise FormatError(f"the state of {name} is malformed") from exc
        self.discarded = tuple(sorted(set(saved) - kept))

    # --- one group ------------------------------------------------------------------------

    def _process(self, group: RecordGroup) -> PipelineResult:
        n = len(group)
        outcome = np.full(n, int(Outcome.FILTERED), np.uint8)
        if n == 0:
            return PipelineResult(self._empty(), (), outcome)
        binding = self._binding(group.declarations[0])
        if isinstance(binding, RecordError):
            error = (binding.code, binding.reason)
            found = of_records(dict.fromkeys(range(n), error))
            outcome[:] = Outcome.QUARANTINED
            rejects = build_rejects(group, found, self._plan.config.name, self._plan.row_hash)
            return PipelineResult(self._empty(), rejects, outcome)
        decoded, errors = self._decode(group, binding)
        usable = decoded.ok.copy()
        usable[list(errors)] = False
        keys, repeated, dropped = self._identify(group, decoded, usable, errors)
        outcome[dropped] = Outcome.DEDUPLICATED
        reader, rows = self._rows(group, binding, decoded, usable, errors)
        rows.flag(rows.of_records(decoded.surplus), QualityFlag.DECODE_ERROR, _SURPLUS)
        if repeated is not None:
            rows.flag(rows.of_records(repeated), QualityFlag.DUPLICATE, _DUPLICATE)
        self._extract(rows, reader)
        for _, _, step in self._steps:
            step.apply(rows)
        found = of_records(errors) + of_rows(rows)
        outcome[[reject.record for reject in found]] = Outcome.QUARANTINED
        delivered = rows.alive if rows.record is None else rows.record[rows.alive]
        outcome[delivered] = Outcome.DELIVERED
        batch = assemble(rows, self._plan, self.schema, self._ids(rows, keys), self._unit)
        rejects = build_rejects(group, found, self._plan.config.name, self._plan.row_hash)
        return PipelineResult(batch, rejects, outcome, count_flags(rows.flags[rows.alive]))

    def _decode(
        self, group: RecordGroup, binding: Binding
    ) -> tuple[DecodedColumns, dict[int, tuple[str, str]]]:
        ends = group.ends
        sizes = ends - group.starts
        large = sizes > self._limits.max_payload_bytes
        if large.any():
            ends = np.where(large, group.starts, ends)
        decoded = binding.decoder.decode(group.payload, group.starts, ends)
        errors = dict(decoded.errors)
        for record in np.flatnonzero(large).tolist():
            limit = self._limits.max_payload_bytes
            errors[record] = ("schema.payload_limit", f"{sizes[record]} bytes, limit {limit}")
        return decoded, errors

    def _identify(
        self,
        group: RecordGroup,
        decoded: DecodedColumns,
        usable: Mask,
        errors: dict[int, tuple[str, str]],
    ) -> tuple[Keys | None, Mask | None, Mask]:
        """Return the canonical keys, the flagged and the dropped duplicates; narrows ``usable``."""
        nobody = np.zeros(len(group), np.bool_)
        if not self._plan.key:
            return None, None, nobody
        keys = canonical_keys(self._plan.key, group, decoded.columns)
        for record in np.flatnonzero(keys.missing & usable).tolist():
            errors[record] = ("schema.key_missing", "a part of event_id.key is missing")
        usable &= ~keys.missing
        if self._dedup is None:
            return keys, None, nobody
        index = np.flatnonzero(usable)
        digests = key_ids(keys.of(index)).tobytes()
        seen = np.stack(
            [
                a[index].astype(np.int64)
                for a in (group.ingest_time_ns, group.wal_epoch, group.wal_pos, group.record_index)
            ],
            axis=1,
        )
        texts = [digests[i : i + ID_BYTES] for i in range(0, len(digests), ID_BYTES)]
        duplicates, refused = self._dedup.apply(texts, index, seen)
        for record in refused.tolist():
            errors[record] = ("schema.dedup_keys", "the dedup window is full")
        usable[refused] = False
        repeated = mask_of(duplicates, len(group))
        if self._plan.dedup and self._plan.dedup.on_duplicate == "flag":
            return keys, repeated, nobody
        usable[duplicates] = False
        return keys, None, repeated

    def _rows(
        self,
        group: RecordGroup,
        binding: Binding,
        decoded: DecodedColumns,
        usable: Mask,
        errors: dict[int, tuple[str, str]],
    ) -> tuple[Reader, Rows]:
        plan = self._plan.explode
        if plan is None:
            rows = Rows(group, usable)
            reader = Reader(binding, decoded, rows, {})
        else:
            exploded = explode(plan, decoded.columns, usable, self._limits.max_explode)
            for record in np.flatnonzero(exploded.unequal).tolist():
                errors[record] = ("schema.explode_length", "parallel arrays differ in length")
            for record in np.flatnonzero(exploded.too_many).tolist():
                limit = self._limits.max_explode
                errors[record] = ("schema.explode_limit", f"more than {limit} elements")
            alive = np.ones(len(exploded.record), np.bool_)
            rows = Rows(group, alive, exploded.record, exploded.sample)
            rows.set("sample_idx", Values(exploded.sample, None))
            reader = Reader(binding, decoded, rows, exploded.elements)
        # Copied: rows may wait for their cut long after the log's buffers should be gone.
        ingest = np.array(rows.of_records(group.ingest_time_ns), np.int64)
        rows.set("_ingest_time", Values(ingest, None))
        rows.set("_clock_synced", Values(rows.of_records(group.clock_synced), None))
        return reader, rows

    def _extract(self, rows: Rows, reader: Reader) -> None:
        plan = self._plan
        for field in plan.fields:
            if field.template is not None:
                self._constant(rows, field)
            else:
                reader.column(field)
        for pointer, source in plan.fetched.items():
            leaf = reader.leaf(source)
            fetched = PlannedField(pointer, _LONG, 0, source=source)
            converted = convert(fetched, leaf, reader.message(source))
            rows.record_values[pointer] = usable(converted)
        source_times = None
        if plan.time is not None:
            source = plan.time.source
            if source.array is None:
                per_record = source_time(plan.time, reader.message(source))
                source_times = spread_values(per_record, rows)
            else:
                source_times = source_time(plan.time, reader.elements(source))
        apply_time(rows, plan.time, source_times)

    def _constant(self, rows: Rows, field: PlannedField) -> None:
        assert field.template is not None
        texts = [field.template.render(topic) for topic in rows.group.declarations]
        rows.set(field.name, topic_labels(rows, texts))
        if None in texts:
            absent = np.array([text is None for text in texts])
            reason = f"INVALID: the topic has no segment for {field.name}"
            rows.flag(absent[rows.of_records(rows.group.topic)], QualityFlag.INVALID, reason)

    def _ids(self, rows: Rows, keys: Keys | None) -> Digests:
        group = rows.group
        if keys is None:
            return position_ids(
                rows.of_records(group.wal_epoch),
                rows.of_records(group.wal_pos),
                rows.of_records(group.record_index),
                rows.sample,
            )
        records = np.arange(len(rows)) if rows.record is None else rows.record
        return key_ids(keys.of(records), rows.sample)

    # --- pieces -----------------------------------------------------------------------------

    def _binding(self, declaration: TopicDeclaration) -> Binding | RecordError:
        key = (declaration.type_name, declaration.encoding, declaration.definition)
        found = self._bindings.get(key)
        if found is None:
            try:
                found = bind(self._plan, declaration)
            except RecordError as exc:
                found = exc
            if len(self._bindings) >= BINDINGS_MAX:
                self._bindings.pop(next(iter(self._bindings)))
            self._bindings[key] = found
        return found

    def _empty(self) -> pa.RecordBatch:
        arrays = [pa.array([], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _stateful(self) -> list[Step | Dedup]:
        parts: list[Step | Dedup] = [step for _, _, step in self._steps]
        return [*parts, self._dedup] if self._dedup else parts

    def _dedup_hash(self) -> str:
        dedup = self._plan.dedup
        assert dedup is not None
        key = [[p.name, p.source.pointer if p.source else repr(p.template)] for p in self._plan.key]
        return stable_hash("dedup", dedup.window_ns, dedup.on_overflow, key)


_SURPLUS = "DECODE_ERROR: bytes follow the message"
_DUPLICATE = "DUPLICATE: the key was seen before"
_LONG = ColumnType("long")
