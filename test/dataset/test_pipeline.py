# SPDX-License-Identifier: Apache-2.0
"""Record groups into rows and rejects, end to end inside a dataset."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
import xxhash

from thadam_ros.config.schema import (
    DedupConfig,
    ExplodeConfig,
    FieldConfig,
    LimitsConfig,
    TimeConfig,
    TransformConfig,
)
from thadam_ros.dataset.pipeline import DatasetPipeline
from thadam_ros.dataset.plan import plan_dataset
from thadam_ros.errors import FormatError
from thadam_ros.model.event import REJECT_RAW_BYTES_MAX, Outcome
from thadam_ros.model.quality import QualityFlag
from thadam_ros.testing.groups import START_NS

from .support import (
    CATALOG,
    KITCHEN,
    LIMITS,
    cdr,
    dataset,
    group_of,
    imu,
    item,
    joints,
    kitchen,
    pipeline_of,
    plan_of,
    rows_of,
    time,
    topic,
)

IMU = "sensor_msgs/msg/Imu"
UTC = TimeConfig("/header/stamp", "utc")


def imu_dataset(**changes):
    """Six numbers of an Imu with UTC time."""
    values = {"all_fields": True, "exclude": ("/*_covariance", "/header/*"), "time": UTC}
    return dataset(IMU, **{**values, **changes})


def imus(n, **fields):
    """Imu messages that arrive exactly when they are stamped."""
    return [imu(START_NS + i * 10_000_000, **fields) for i in range(n)]


def test_every_column_of_all_fields_holds_the_messages_value_without_loss():
    """Every primitive at its edge, lists, bytes, times and nested fields come out as sent."""
    pipeline = pipeline_of(dataset(KITCHEN, all_fields=True))
    message = kitchen()
    row = rows_of(pipeline.process(group_of([message])).rows)[0]
    assert row["raw_byte"] == 200
    for name in ("flag", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32"):
        assert row[name] == getattr(message, name), name
    assert (row["f64"], row["text"], row["names"]) == (2.25, "grüße", ["a", ""])
    assert row["triple"] == [1.0, 2.0, 3.0]
    assert row["floats"] == [0.5]
    assert row["blob"] == b"\x00\xff"
    assert row["bigs"] == [1]
    assert row["took"] == 1_000_000_500
    assert row["stamp"] == START_NS
    assert row["single_at"] == START_NS
    assert (row["single_name"], row["single_value"], row["single_codes"]) == ("s", 9.0, [1, 2])
    assert "items" not in row


def test_a_batch_has_exactly_the_planned_schema_with_field_ids():
    """Column types, order and ids are the plan's, also for an empty group."""
    config = dataset(KITCHEN, all_fields=True, time=TimeConfig("/stamp", "utc"))
    plan = plan_of(config, identity={"robot": "r1"})
    for unit in ("us", "ns"):
        pipeline = DatasetPipeline(plan, timestamp_unit=unit, limits=LIMITS)
        for messages in ([kitchen(), kitchen()], []):
            batch = pipeline.process(group_of(messages, type_name=KITCHEN)).rows
            assert batch.schema.equals(plan.arrow_schema(unit), check_metadata=True)
            batch.validate(full=True)


def test_microseconds_are_floored_and_source_time_keeps_nanoseconds():
    """The default unit loses what lies below a microsecond, _source_time does not."""
    pipeline = pipeline_of(imu_dataset(), timestamp_unit="us")
    group = group_of([imu(START_NS + 1_999)], ingest_times_ns=[START_NS + 2_999])
    row = rows_of(pipeline.process(group).rows)[0]
    assert row["_source_time"] == START_NS + 1_999
    assert row["_event_time"] == START_NS // 1_000 + 1
    assert row["_ingest_time"] == START_NS // 1_000 + 2


def test_the_envelope_leads_back_to_the_capture_record():
    """Epoch, position and id of a row name its record; the id is xxh3_128 over both and index."""
    pipeline = pipeline_of(imu_dataset())
    group = group_of(imus(3), epoch=2**62, positions=[5, 5, 6])
    rows = rows_of(pipeline.process(group).rows)
    assert [row["_wal_pos"] for row in rows] == [5, 5, 6]
    assert {row["_wal_epoch"] for row in rows} == {2**62}
    expected = [
        xxhash.xxh3_128_digest(struct.pack(">qqi", 2**62, *place))
        for place in ((5, 0), (5, 1), (6, 0))
    ]
    assert [row["_event_id"] for row in rows] == expected


def test_exploded_rows_append_the_sample_index_to_the_id():
    """Element 1 of a record has the id over 24 bytes."""
    config = dataset(
        "sensor_msgs/msg/JointState",
        explode=ExplodeConfig(zip=("/name", "/position")),
        fields={"joint": FieldConfig("joint", "./name")},
    )
    group = group_of([joints(["a", "b"], [1.0, 2.0])], epoch=9, positions=[4])
    rows = rows_of(pipeline_of(config).process(group).rows)
    assert [row["sample_idx"] for row in rows] == [0, 1]
    assert rows[1]["_event_id"] == xxhash.xxh3_128_digest(struct.pack(">qqii", 9, 4, 0, 1))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"definition": ""}, "decode.type_unknown"),
        ({"type_name": ""}, "decode.type_unknown"),
        ({"definition": "float64 [ x"}, "decode.definition_invalid"),
        ({"type_name": "sensor_msgs/msg/Temperature"}, "decode.type_mismatch"),
        ({"encoding": "json"}, "decode.encoding"),
        ({"definition": "float64 other\n"}, "schema.pointer_unknown"),
    ],
)
def test_a_topic_that_cannot_be_decoded_rejects_each_of_its_messages(changes, code):
    """Nothing disappears: every record of such a topic is a reject with its bytes."""
    group = group_of(
        [b"\x00\x01\x00\x00abc"] * 2, declarations=topic(IMU, **changes), type_name=IMU
    )
    result = pipeline_of(imu_dataset()).process(group)
    assert result.rows.num_rows == 0
    assert [(r.error_code, r.record_index, r.raw) for r in result.rejects] == [
        (code, 0, b"\x00\x01\x00\x00abc"),
        (code, 1, b"\x00\x01\x00\x00abc"),
    ]
    assert set(result.outcome) == {Outcome.QUARANTINED}


def test_a_definition_that_changed_a_columns_type_rejects_and_a_narrower_one_does_not():
    """int32 where int64 was planned still fits the column; a string does not."""
    config = dataset(KITCHEN, fields={"x": FieldConfig("x", "/i64")})
    narrow = topic(KITCHEN, definition="int32 i64\n")
    body = b"\x00\x01\x00\x00" + struct.pack("<i", -5)
    pipeline = pipeline_of(config)
    result = pipeline.process(group_of([body], declarations=narrow, type_name=KITCHEN))
    assert result.rows["x"].to_pylist() == [-5]
    text = topic(KITCHEN, definition="string i64\n")
    result = pipeline.process(group_of([body], declarations=text, type_name=KITCHEN))
    assert result.rejects[0].error_code == "decode.type_mismatch"


def test_a_damaged_message_costs_only_itself():
    """Neighbours of a truncated message are delivered; its reject carries everything known."""
    good = [cdr(m) for m in imus(3)]
    group = group_of([good[0], good[1][:40], good[2]], type_name=IMU, positions=[8, 8, 8])
    result = pipeline_of(imu_dataset(), row_hash="abc").process(group)
    assert result.rows["_wal_pos"].to_pylist() == [8, 8]
    assert list(result.outcome) == [Outcome.DELIVERED, Outcome.QUARANTINED, Outcome.DELIVERED]
    (reject,) = result.rejects
    assert reject.error_domain == "decode"
    assert reject.error_code == "decode.truncated"
    assert (reject.wal_pos, reject.record_index, reject.sample_idx) == (8, 1, -1)
    assert reject.raw == good[1][:40]
    assert not reject.raw_truncated
    assert reject.dataset == "table"
    assert reject.row_hash == "abc"
    assert reject.topic == "/r1/topic"
    assert reject.type_name == IMU
    assert reject.ingest_time_ns == START_NS + 10_000_000


@pytest.mark.parametrize(
    ("size", "truncated"),
    [(REJECT_RAW_BYTES_MAX, False), (REJECT_RAW_BYTES_MAX + 1, True)],
)
def test_a_reject_keeps_the_first_64_kib(size, truncated):
    """Exactly 65 536 bytes are whole; one more is cut and says so."""
    result = pipeline_of(imu_dataset()).process(group_of([b"\xff" * size], type_name=IMU))
    (reject,) = result.rejects
    assert len(reject.raw) == REJECT_RAW_BYTES_MAX
    assert reject.raw_truncated is truncated


def test_a_payload_beyond_the_limit_is_a_reject_and_its_neighbour_is_not():
    """max_payload bounds work per message."""
    limits = LimitsConfig(max_payload_bytes=len(cdr(imu(START_NS))))
    messages = [imu(START_NS), imu(START_NS, frame_id="longer than before")]
    result = pipeline_of(imu_dataset(), limits=limits).process(group_of(messages))
    assert [r.error_code for r in result.rejects] == ["schema.payload_limit"]
    assert list(result.outcome) == [Outcome.DELIVERED, Outcome.QUARANTINED]


def test_surplus_bytes_keep_the_row_and_set_decode_error():
    """DECODE_ERROR: the row is bad, its values are there."""
    group = group_of([cdr(imu(START_NS)) + b"surplus!", imu(START_NS + 10_000_000)], type_name=IMU)
    result = pipeline_of(imu_dataset()).process(group)
    rows = rows_of(result.rows)
    assert rows[0]["_quality_flags"] == QualityFlag.DECODE_ERROR
    assert rows[0]["_quality_status"] == 2
    assert rows[0]["_quality_reason"].startswith("DECODE_ERROR")
    assert rows[0]["linear_acceleration_z"] == 9.8
    assert (rows[1]["_quality_flags"], rows[1]["_quality_reason"]) == (0, None)
    assert result.flagged == {"DECODE_ERROR": 1}


def test_rules_flag_and_the_first_failed_rule_is_the_reason():
    """flag_unless: status, bits and reason per row; NaN stays a value and is invalid."""
    rules = {
        "INVALID": "finite(linear_acceleration_x)",
        "OUT_OF_RANGE": "linear_acceleration_z < 50",
    }
    messages = [
        imu(START_NS),
        imu(START_NS + 10_000_000, ax=float("nan")),
        imu(START_NS + 20_000_000, az=60.0),
        imu(START_NS + 30_000_000, ax=float("inf"), az=60.0),
    ]
    result = pipeline_of(imu_dataset(flag_unless=rules)).process(group_of(messages))
    rows = rows_of(result.rows)
    both = QualityFlag.INVALID | QualityFlag.OUT_OF_RANGE
    flags = [0, QualityFlag.INVALID, QualityFlag.OUT_OF_RANGE, both]
    assert [row["_quality_flags"] for row in rows] == flags
    assert [row["_quality_status"] for row in rows] == [0, 2, 1, 2]
    assert np.isnan(rows[1]["linear_acceleration_x"])
    assert rows[1]["_quality_reason"] == "INVALID: finite(linear_acceleration_x)"
    assert rows[2]["_quality_reason"] == "OUT_OF_RANGE: linear_acceleration_z < 50"
    assert rows[3]["_quality_reason"].startswith("OUT_OF_RANGE")
    assert result.flagged == {"OUT_OF_RANGE": 2, "INVALID": 2}


def test_a_reject_rule_quarantines_under_its_own_code():
    """reject_unless: domain quality, the rule's name in the code, others go on."""
    config = imu_dataset(reject_unless={"too_fast": "linear_acceleration_z <= 50"})
    messages = [imu(START_NS, az=60.0), imu(START_NS + 10_000_000)]
    result = pipeline_of(config).process(group_of(messages))
    (reject,) = result.rejects
    assert (reject.error_domain, reject.error_code) == ("quality", "quality.too_fast")
    assert reject.raw == cdr(messages[0])
    assert list(result.outcome) == [Outcome.QUARANTINED, Outcome.DELIVERED]


def test_a_number_beyond_its_column_is_a_reject_not_a_wrap():
    """uint64 above 2^63-1, alone or inside a list, and a long that does not fit a declared int."""
    config = dataset(
        KITCHEN,
        fields={
            "u64": FieldConfig("u64", "/u64"),
            "bigs": FieldConfig("bigs", "/bigs"),
            "small": FieldConfig("small", "/i64", type="int"),
        },
    )
    fine = {"i64": -(2**31), "u64": 2**63 - 1}
    messages = [
        kitchen(**fine),
        kitchen(**{**fine, "u64": 2**63}),
        kitchen(**fine, bigs=np.array([1, 2**63], np.uint64)),
        kitchen(**{**fine, "i64": 2**31}),
    ]
    result = pipeline_of(config).process(group_of(messages))
    assert result.rows["u64"].to_pylist() == [2**63 - 1]
    assert result.rows["small"].to_pylist() == [-(2**31)]
    assert [(r.record_index, r.error_code) for r in result.rejects] == [
        (i, "schema.integer_range") for i in (1, 2, 3)
    ]


def test_units_are_converted_and_named_in_the_column():
    """convert_to runs over numbers and lists; the schema carries the stored unit."""
    config = dataset(
        KITCHEN,
        fields={
            "deg": FieldConfig("deg", "/f64", unit="rad", convert_to="deg"),
            "celsius": FieldConfig("celsius", "/i16", unit="degF", convert_to="degC"),
            "mm": FieldConfig("mm", "/triple", unit="m", convert_to="mm"),
        },
    )
    batch = pipeline_of(config).process(group_of([kitchen(f64=np.pi, i16=212)])).rows
    row = rows_of(batch)[0]
    assert row["deg"] == pytest.approx(180.0)
    assert row["celsius"] == pytest.approx(100.0)
    assert row["mm"] == [1000.0, 2000.0, 3000.0]
    assert batch.schema.field("celsius").metadata[b"unit"] == b"degC"


def test_numbers_become_timestamps_with_a_unit():
    """A declared timestamp from a number; what 64 bits of ns cannot hold is a reject."""
    config = dataset(
        KITCHEN,
        fields={
            "at": FieldConfig("at", "/f64", type="timestamp", unit="s"),
            "then": FieldConfig("then", "/i64", type="timestamp", unit="ms"),
        },
    )
    fine = {"f64": 1.5, "i64": 1_500}
    messages = [
        kitchen(**fine),
        kitchen(**{**fine, "f64": float("nan")}),
        kitchen(**{**fine, "f64": 1e300}),
        kitchen(**{**fine, "i64": 2**62}),
    ]
    result = pipeline_of(config).process(group_of(messages))
    row = rows_of(result.rows)[0]
    assert row["at"] == row["then"] == 1_500_000_000
    assert [r.error_code for r in result.rejects] == ["schema.time"] * 3


def test_a_time_column_with_impossible_nanoseconds_is_null_and_invalid():
    """nanosec >= 1e9 names no instant; the row stays."""
    bad = time(START_NS)
    bad.nanosec = 1_000_000_000
    config = dataset(KITCHEN, fields={"stamp": FieldConfig("stamp", "/stamp")})
    result = pipeline_of(config).process(group_of([kitchen(stamp=bad), kitchen()]))
    rows = rows_of(result.rows)
    assert rows[0]["stamp"] is None
    assert rows[0]["_quality_flags"] == QualityFlag.INVALID
    assert rows[1]["_quality_flags"] == 0


def test_identity_levels_come_from_constants_templates_and_pointers():
    """Label columns: edge first, then the dataset's, null where a topic is too short."""
    config = dataset(
        KITCHEN,
        fields={"f64": FieldConfig("f64", "/f64")},
        identity={
            "line": "cell-{topic.1}",
            "last": "{topic.-1}",
            "ns": "{namespace}",
            "serial": "/text",
            "number": "/u8",
        },
    )
    declarations = [topic(KITCHEN, "/a/b/c"), topic(KITCHEN, "/solo")]
    group = group_of(
        [kitchen(text="x"), kitchen(text="y"), kitchen(text="x")],
        declarations=declarations,
        topics=[0, 1, 0],
    )
    result = pipeline_of(config, identity={"site": "lab"}).process(group)
    rows = rows_of(result.rows)
    assert [row["site"] for row in rows] == ["lab"] * 3
    assert [row["line"] for row in rows] == ["cell-b", None, "cell-b"]
    assert [row["last"] for row in rows] == ["c", "solo", "c"]
    assert {row["ns"] for row in rows} == {"r1"}
    assert [row["serial"] for row in rows] == ["x", "y", "x"]
    assert {row["number"] for row in rows} == {"255"}
    assert [row["_quality_flags"] for row in rows] == [0, QualityFlag.INVALID, 0]


def test_parallel_arrays_explode_with_empty_ones_as_null():
    """One row per joint; an empty velocity is null, another length is a reject of the message."""
    config = dataset(
        "sensor_msgs/msg/JointState",
        explode=ExplodeConfig(zip=("/name", "/position", "/velocity"), empty_as_null=True),
        fields={
            "joint": FieldConfig("joint", "./name", required=True),
            "position": FieldConfig("position", "./position"),
            "velocity": FieldConfig("velocity", "./velocity"),
            "stamp": FieldConfig("stamp", "/header/stamp"),
        },
    )
    messages = [
        joints(["a", "b"], [1.0, 2.0]),
        joints(["a", "b", "c"], [1.0, 2.0]),
        joints([], []),
        joints(["c"], [3.0], [0.5]),
    ]
    result = pipeline_of(config).process(group_of(messages))
    rows = rows_of(result.rows)
    found = [(r["joint"], r["position"], r["velocity"], r["sample_idx"]) for r in rows]
    assert found == [("a", 1.0, None, 0), ("b", 2.0, None, 1), ("c", 3.0, 0.5, 0)]
    assert {row["stamp"] for row in rows} == {START_NS}
    assert [(r.record_index, r.error_code) for r in result.rejects] == [
        (1, "schema.explode_length")
    ]
    expected = [Outcome.DELIVERED, Outcome.QUARANTINED, Outcome.FILTERED, Outcome.DELIVERED]
    assert list(result.outcome) == expected


def test_a_required_element_that_is_null_rejects_only_its_row():
    """The reject names the element; the other rows of the message are delivered."""
    config = dataset(
        "sensor_msgs/msg/JointState",
        explode=ExplodeConfig(zip=("/name", "/velocity"), empty_as_null=True),
        fields={"velocity": FieldConfig("velocity", "./velocity", required=True)},
    )
    messages = [joints(["a", "b"], []), joints(["a"], [], [1.0])]
    result = pipeline_of(config).process(group_of(messages))
    assert [(r.record_index, r.sample_idx, r.error_code) for r in result.rejects] == [
        (0, 0, "schema.field_missing"),
        (0, 1, "schema.field_missing"),
    ]
    assert result.rows["velocity"].to_pylist() == [1.0]


def test_an_array_of_structures_explodes_with_nested_fields():
    """Element fields, element times and message fields stand side by side."""
    config = dataset(
        KITCHEN,
        explode=ExplodeConfig(pointer="/items"),
        time=TimeConfig("./at", "utc"),
        fields={
            "name": FieldConfig("name", "./name"),
            "codes": FieldConfig("codes", "./codes"),
            "text": FieldConfig("text", "/text"),
        },
    )
    items = [item("a", codes=(1, 2)), item("b", at_ns=START_NS + 5)]
    messages = [
        kitchen(text="x", items=items),
        kitchen(items=[]),
        kitchen(text="z", items=items[:1]),
    ]
    result = pipeline_of(config).process(group_of(messages, ingest_times_ns=[START_NS] * 3))
    rows = rows_of(result.rows)
    assert [(r["name"], r["codes"], r["text"]) for r in rows] == [
        ("a", [1, 2], "x"),
        ("b", [], "x"),
        ("a", [1, 2], "z"),
    ]
    assert [row["_source_time"] for row in rows] == [START_NS, START_NS + 5, START_NS]


def test_all_fields_with_explode_covers_message_and_element():
    """Element columns carry the array's name, other arrays of structures are left out."""
    config = dataset(
        KITCHEN,
        all_fields=True,
        exclude=("/single/**", "/stamp"),
        explode=ExplodeConfig(pointer="/items"),
    )
    row = rows_of(pipeline_of(config).process(group_of([kitchen()])).rows)[1]
    assert (row["items_name"], row["items_value"], row["items_codes"]) == ("b", 2.0, [])
    assert row["f64"] == 2.25
    assert "single_name" not in row


def test_an_explosion_beyond_the_limit_is_one_reject():
    """max_explode bounds rows per message."""
    config = dataset(
        "sensor_msgs/msg/JointState",
        explode=ExplodeConfig(zip=("/name",)),
        fields={"joint": FieldConfig("joint", "./name")},
    )
    messages = [joints(["a"] * 4, []), joints(["a"] * 3, [])]
    pipeline = pipeline_of(config, limits=LimitsConfig(max_explode=3))
    result = pipeline.process(group_of(messages))
    assert [r.error_code for r in result.rejects] == ["schema.explode_limit"]
    assert result.rows.num_rows == 3


def keyed(**changes):
    """A dataset with a content key over text and number."""
    values = {"event_id_key": ("/text", "/u64"), "fields": {"f64": FieldConfig("f64", "/f64")}}
    return dataset(KITCHEN, **{**values, **changes})


def test_a_declared_key_makes_equal_ids_for_equal_content():
    """Redelivery under another position gives the same id; other content another one."""
    messages = [kitchen(text="a"), kitchen(text="b"), kitchen(text="a")]
    rows = rows_of(pipeline_of(keyed()).process(group_of(messages)).rows)
    assert rows[0]["_event_id"] == rows[2]["_event_id"] != rows[1]["_event_id"]
    key = b"s" + struct.pack(">I", 1) + b"a" + b"i" + struct.pack(">Iq", 8, 5)
    assert rows[0]["_event_id"] == xxhash.xxh3_128_digest(key)


def test_duplicates_inside_the_window_are_dropped_and_counted():
    """The first of a key stays; the outcome of the others says deduplicated."""
    config = keyed(dedup=DedupConfig(window_ns=1_000))
    messages = [kitchen(text="a"), kitchen(text="a"), kitchen(text="b"), kitchen(text="a")]
    times = [START_NS, START_NS + 1_000, START_NS + 1_000, START_NS + 1_001]
    result = pipeline_of(config).process(group_of(messages, ingest_times_ns=times))
    assert result.rows.num_rows == 3
    expected = [Outcome.DELIVERED, Outcome.DEDUPLICATED, Outcome.DELIVERED, Outcome.DELIVERED]
    assert list(result.outcome) == expected


def test_flagged_duplicates_stay_and_share_the_id():
    """on_duplicate: flag is the producer of DUPLICATE."""
    config = keyed(dedup=DedupConfig(window_ns=10**12, on_duplicate="flag"))
    result = pipeline_of(config).process(group_of([kitchen(), kitchen()]))
    rows = rows_of(result.rows)
    assert [row["_quality_flags"] for row in rows] == [0, QualityFlag.DUPLICATE]
    assert rows[0]["_event_id"] == rows[1]["_event_id"]


def test_a_duplicate_with_many_elements_costs_one_key():
    """Deduplication looks at messages, before explode."""
    config = keyed(
        explode=ExplodeConfig(pointer="/items"),
        fields={"name": FieldConfig("name", "./name")},
        dedup=DedupConfig(window_ns=10**12),
    )
    pipeline = pipeline_of(config, limits=LimitsConfig(max_dedup_keys=1))
    result = pipeline.process(group_of([kitchen(), kitchen()]))
    assert result.rows.num_rows == 2
    assert list(result.outcome) == [Outcome.DELIVERED, Outcome.DEDUPLICATED]


def test_a_key_part_that_is_missing_is_a_reject():
    """A topic without the named segment has no key."""
    config = keyed(event_id_key=("cell", "/u64"), identity={"cell": "{topic.2}"})
    result = pipeline_of(config).process(group_of([kitchen()]))
    assert [r.error_code for r in result.rejects] == ["schema.key_missing"]


def test_a_full_window_that_may_not_evict_rejects_new_keys():
    """on_overflow: reject keeps the window and quarantines what finds no room."""
    config = keyed(dedup=DedupConfig(window_ns=10**12, on_overflow="reject"))
    pipeline = pipeline_of(config, limits=LimitsConfig(max_dedup_keys=2))
    messages = [kitchen(text=text) for text in "abcab"]
    result = pipeline.process(group_of(messages))
    assert [(r.record_index, r.error_code) for r in result.rejects] == [(2, "schema.dedup_keys")]
    assert result.rows.num_rows == 2


def test_filters_run_after_the_datasets_own_rules_and_count_as_filtered():
    """A filtered message is neither delivered nor quarantined."""
    config = imu_dataset(flag_unless={"OUT_OF_RANGE": "linear_acceleration_z < 50"})
    keep = TransformConfig("only_bad", "filter", "table", options={"keep": "_quality_flags != 0"})
    messages = [imu(START_NS), imu(START_NS + 10_000_000, az=60.0)]
    result = pipeline_of(config, transforms=[keep]).process(group_of(messages))
    assert list(result.outcome) == [Outcome.FILTERED, Outcome.DELIVERED]
    assert result.rejects == ()


def test_set_computes_from_the_values_before_and_refuses_what_does_not_fit():
    """transform.failed is a reject of that row only."""
    config = dataset(
        KITCHEN, fields={"u8": FieldConfig("u8", "/u8"), "f64": FieldConfig("f64", "/f64")}
    )
    swap = {"values": {"u8": "f64 * 2", "f64": "u8 + 0.5"}}
    step = TransformConfig("swap", "set", options=swap)
    messages = [kitchen(u8=3, f64=2.0), kitchen(u8=3, f64=2.25), kitchen(f64=float("nan"))]
    result = pipeline_of(config, transforms=[step]).process(group_of(messages))
    assert rows_of(result.rows)[0]["u8"] == 4
    assert rows_of(result.rows)[0]["f64"] == 3.5
    assert [(r.record_index, r.error_code) for r in result.rejects] == [
        (1, "transform.failed"),
        (2, "transform.failed"),
    ]


def test_a_group_that_raises_leaves_the_state_as_it_was(monkeypatch):
    """Poison handling may try again without restoring a snapshot."""
    config = keyed(dedup=DedupConfig(window_ns=10**12), gap="publisher_sequence")
    pipeline = pipeline_of(config)
    sequences = {"sequences": [1, 2], "publisher_indices": [0, 0], "publishers": [b"p"]}
    group = group_of([kitchen(text="a"), kitchen(text="b")], **sequences)
    before = pipeline.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr("thadam_ros.dataset.pipeline.assemble", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pipeline.process(group)
    assert pipeline.snapshot() == before
    assert pipeline.process(group).rows.num_rows == 2
    assert pipeline.snapshot() != before


def test_a_changed_step_starts_fresh_and_others_keep_their_state():
    """Only state whose own meaning changed is discarded, and it is named."""
    transforms = [
        TransformConfig("late", "order", options={"by": "_source_time"}),
        TransformConfig("old", "stale", options={"after": 2_000_000_000}),
    ]
    first = pipeline_of(imu_dataset(), transforms=transforms)
    first.process(group_of(imus(2)))
    changed = [transforms[0], replace(transforms[1], options={"after": 1})]
    second = pipeline_of(imu_dataset(), transforms=changed)
    second.restore(first.snapshot())
    assert second.discarded == ("old",)
    result = second.process(group_of([imu(START_NS)]))
    assert result.flagged == {"OUT_OF_ORDER": 1}


@pytest.mark.parametrize("state", [b"", b"[]", b'{"format": 2, "steps": {}}', b'{"format": 1}'])
def test_bytes_that_are_no_state_are_refused(state):
    """A wrong version or garbage is a FormatError, not a fresh start."""
    with pytest.raises(FormatError):
        pipeline_of(imu_dataset()).restore(state)


def test_an_empty_message_type_gives_rows_of_envelope_only():
    """std_msgs/Empty has no fields and still counts."""
    config = dataset("std_msgs/msg/Empty", all_fields=True)
    group = group_of([b"\x00\x01\x00\x00\x00"], type_name="std_msgs/msg/Empty")
    result = pipeline_of(config).process(group)
    assert result.rows.num_rows == 1
    assert result.rejects == ()


def test_big_endian_messages_give_the_same_rows():
    """Byte order is the publisher's business."""
    pipeline = pipeline_of(dataset(KITCHEN, all_fields=True))
    both = [cdr(kitchen(), little_endian=little) for little in (True, False)]
    rows = rows_of(pipeline.process(group_of(both, type_name=KITCHEN)).rows)
    values = [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
    assert values[0] == values[1]


def test_a_dataset_of_a_later_version_cannot_be_run():
    """A JSON dataset is planned, not run; the reason says why."""
    config = dataset(None, decode="json", fields={"t": FieldConfig("t", "/t", type="double")})
    plan, problems = plan_dataset(config, {}, CATALOG, None, LIMITS)
    assert problems == []
    assert not plan.supported
    with pytest.raises(ValueError, match="not built yet"):
        DatasetPipeline(plan, timestamp_unit="us", limits=LIMITS)


def test_a_group_without_one_readable_message_gives_no_row_when_exploding():
    """Nothing to explode is no error; every message is a reject."""
    config = dataset(
        KITCHEN,
        explode=ExplodeConfig(pointer="/items"),
        time=TimeConfig("./at", "utc"),
        identity={"who": "/text"},
        fields={"name": FieldConfig("name", "./name", required=True)},
        gap="/u64",
        stale_ns=1,
    )
    result = pipeline_of(config).process(group_of([b"\x00\x01", b""], type_name=KITCHEN))
    assert result.rows.num_rows == 0
    assert result.rows.schema.names[-1] == "name"
    assert [r.record_index for r in result.rejects] == [0, 1]


def test_every_message_has_exactly_one_outcome_and_rejects_name_their_rows():
    """A message that yields any row is delivered, though some of its rows are rejects."""
    config = dataset(
        KITCHEN,
        explode=ExplodeConfig(pointer="/items"),
        fields={"value": FieldConfig("value", "./value")},
        reject_unless={"small": "value < 5"},
    )
    messages = [
        kitchen(items=[item(value=1.0), item(value=9.0)]),
        kitchen(items=[item(value=9.0), item(value=8.0)]),
    ]
    result = pipeline_of(config).process(group_of(messages))
    assert list(result.outcome) == [Outcome.DELIVERED, Outcome.QUARANTINED]
    assert [(r.record_index, r.sample_idx) for r in result.rejects] == [(0, 1), (1, 0), (1, 1)]
    assert result.rows["sample_idx"].to_pylist() == [0]


def test_sequence_gaps_see_messages_that_were_rejected():
    """A message that arrived damaged is no gap; one that never came is."""
    config = imu_dataset(gap="publisher_sequence")
    good = [cdr(m) for m in imus(4)]
    group = group_of(
        [good[0], b"\x00\x01", good[2], good[3]],
        type_name=IMU,
        sequences=[1, 2, 3, 7],
        publisher_indices=[0] * 4,
        publishers=[b"p"],
    )
    result = pipeline_of(config).process(group)
    assert result.rows["_quality_flags"].to_pylist() == [0, 0, QualityFlag.SEQUENCE_GAP]
    assert result.flagged == {"SEQUENCE_GAP": 1}


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_rows_own_their_memory(unit):
    """Rows that wait for a cut must not keep, or change with, buffers of the log."""
    group = group_of([kitchen(), kitchen()], epoch=3, positions=[4, 5])
    pipeline = pipeline_of(dataset(KITCHEN, all_fields=True), timestamp_unit=unit)
    rows = pipeline.process(group).rows
    before = rows_of(rows)
    scratch = np.frombuffer(bytearray(group.payload.tobytes()), np.uint8)
    group = replace(group, payload=scratch)
    rows = pipeline.process(group).rows
    scratch[:] = 255
    for array in (group.ingest_time_ns, group.wal_epoch, group.wal_pos, group.clock_synced):
        array[:] = 0
    assert rows_of(rows) == before
