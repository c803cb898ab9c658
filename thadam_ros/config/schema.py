# SPDX-License-Identifier: Apache-2.0
"""The configuration as frozen dataclasses (spec 3.7); made only by the loader.

Units stand last in names. ``None`` means "not given, decided later from the machine" where a
docstring says so. Maps keep the order of their canonical form, which is by name. Each field's
``Setting`` is the one declaration of its document key, kind, range and meaning.
"""

# ruff: noqa: N817 - A and S keep one field readable on a few lines
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated as A

from thadam_ros.config.kinds import (
    Boolean,
    ByteRate,
    Choice,
    Duration,
    Frequency,
    Integer,
    ListOf,
    Number,
    Size,
    Text,
)
from thadam_ros.config.options import FLAG, SINK_OPTIONS, TRANSFORM_OPTIONS
from thadam_ros.config.patterns import (
    GLOB,
    NAME,
    ROS_TYPE,
    TOPIC,
    UNIT,
    AbsolutePath,
    ColumnType,
    Expression,
    IdentityValue,
    Pointer,
    Secret,
    Url,
)
from thadam_ros.config.settings import Inline, MapOf, OptionsBy, Record
from thadam_ros.config.settings import Setting as S

SINK_TYPES = ("parquet", "clickhouse", "kafka", "nats", "mqtt")
_BROKERS = SINK_TYPES[1:]
_NAMES = ListOf(NAME)
_NAMES_OR_ALL = ListOf(Text(r"\*|[a-z][a-z0-9_]{0,62}", "a name, or * for all"), True)


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """``edge:`` (data_dir, constant identity levels, lock file, clock state, readiness)."""

    data_dir: A[str, S(AbsolutePath("a folder"), "Folder of everything that is kept on disk.")]
    identity: A[
        Mapping[str, str],
        S(MapOf(Text(what="a constant"), NAME, "identity level"), "Constant columns.", row=True),
    ] = field(default_factory=dict)
    lock_file: A[
        str | None,
        S(
            AbsolutePath("a file"),
            "Where field ids, expansions and type hashes are pinned.",
            default_text="<config_file>.lock, else <data_dir>/config/datasets.lock",
        ),
    ] = None
    clock: A[
        str,
        S(
            Choice(("adjtimex", "always_synced"), r"file:/.*", "file:<path>"),
            "How the host's clock state is known.",
        ),
    ] = "adjtimex"  # adjtimex | always_synced | file:<path>
    ready_requires: A[
        tuple[str, ...],
        S(ListOf(Choice(("capture", "sinks")), True), "What must work before the edge is ready."),
    ] = ("capture", "sinks")


@dataclass(frozen=True, slots=True)
class WalConfig:
    """``wal:``; None budgets take the defaults of spec 2 from the filesystem's size."""

    budget_bytes: A[
        int | None,
        S(
            Size(1 << 20, example="20GiB"),
            "Most that the WAL may take on disk.",
            "budget",
            default_text="the smaller of 20GiB and 20 % of the filesystem",
        ),
    ] = None
    min_free_bytes: A[
        int | None,
        S(
            Size(0, example="5GiB"),
            "Free space that capture leaves on the filesystem.",
            "min_free",
            default_text="the larger of 2GiB and 5 % of the filesystem",
        ),
    ] = None
    replay_window_bytes: A[
        int | None,
        S(
            Size(0, example="5GiB"),
            "How much is kept for replay after every chain has passed.",
            "replay_window",
            default_text="25 % of the budget",
        ),
    ] = None
    segment_bytes: A[
        int,
        S(Size(64 << 10, 4 << 30, "64MiB"), "Size at which a new segment file begins."),
    ] = 64 << 20
    commit: A[
        str, S(Choice(("group", "each")), "One fsync for a group of frames, or one per frame.")
    ] = "group"  # group | each
    commit_interval_ns: A[
        int,
        S(
            Duration(1_000_000, 60_000_000_000),
            "Longest time between two group commits.",
            "commit_interval",
        ),
    ] = 200_000_000
    commit_bytes: A[
        int, S(Size(4 << 10, 1 << 30, "4MiB"), "Bytes after which a group commits at once.")
    ] = 4 << 20
    compression: A[str, S(Choice(("none", "zstd")), "Codec of the payload bytes.")] = "none"
    when_full: A[
        str,
        S(
            Choice(("stop_capture", "drop_oldest")),
            "What yields at the budget: new messages, or the oldest segment.",
        ),
    ] = "stop_capture"  # stop_capture | drop_oldest


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """``sources.<name>.topics.<topic>``; None means "as discovered"."""

    reliability: A[
        str | None, S(Choice(("reliable", "best_effort")), "QoS reliability to ask for.")
    ] = None  # reliable | best_effort
    durability: A[
        str | None, S(Choice(("volatile", "transient_local")), "QoS durability to ask for.")
    ] = None  # volatile | transient_local
    depth: A[int | None, S(Integer(1, 1_000_000), "Queue depth.")] = None
    max_rate_hz: A[
        float | None, S(Frequency(), "Messages above this rate are refused, counted.", "max_rate")
    ] = None
    max_payload_bytes: A[
        int | None,
        S(Size(example="1MiB"), "Larger messages are refused, counted.", "max_payload"),
    ] = None


@dataclass(frozen=True, slots=True)
class Ros2SourceConfig:
    """Settings of ``ros2`` sources."""

    capture: A[
        str, S(Choice(("matched", "all")), "What a dataset matches plus also, or everything.")
    ] = "matched"  # matched | all
    also: A[tuple[str, ...], S(ListOf(TOPIC), "Topics captured besides the matched ones.")] = ()
    exclude: A[tuple[str, ...], S(ListOf(TOPIC), "Topics never captured.")] = ()
    topics: A[
        Mapping[str, TopicOptions],
        S(MapOf(Record(TopicOptions), TOPIC, "topic"), "QoS and limits per topic."),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MqttSourceConfig:
    """Settings of ``mqtt`` sources."""

    url: A[str, S(Url(), "Broker, mqtt:// or mqtts://.")]
    client_id: A[str, S(Text(what="a client id"), "Names the persistent session.")]
    user: A[str | None, S(Text(what="a user name"), "User to sign in as.")] = None
    password_env: A[
        str | None, S(Secret("the password"), "Environment variable that holds the password.")
    ] = None
    password_file: A[
        str | None, S(AbsolutePath("a file"), "File that holds the password, one line.")
    ] = None
    ca_file: A[
        str | None, S(AbsolutePath("a PEM file"), "Certificate authority that signs the broker.")
    ] = None
    qos: A[int, S(Integer(0, 2), "Subscription quality of service.")] = 1
    also: A[tuple[str, ...], S(ListOf(TOPIC), "Topics captured besides the matched ones.")] = ()
    rebirth: A[bool, S(Boolean(), "Ask a Sparkplug node for a rebirth, rate-limited.")] = False


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """``sources.<name>``; the mqtt part is None for ros2 sources and the other way round."""

    name: str
    type: A[
        str, S(Choice(("ros2", "mqtt")), "Where messages come from.", discriminator=True)
    ]  # ros2 | mqtt
    ros2: A[Ros2SourceConfig | None, S(Inline(Ros2SourceConfig), only=("ros2",))] = None
    mqtt: A[MqttSourceConfig | None, S(Inline(MqttSourceConfig), only=("mqtt",))] = None


@dataclass(frozen=True, slots=True)
class SparkplugMatch:
    """``match.sparkplug``."""

    group: A[str, S(Text("[^/+#]+", "a Sparkplug group id"), "Group id.", row=True)]
    node: A[str, S(Text("[^/+#]+", "a Sparkplug edge node id"), "Edge node id.", row=True)]
    device: A[str | None, S(Text("[^/+#]+", "a Sparkplug device id"), "Device id.", row=True)] = (
        None
    )


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """``match``: which messages a dataset takes."""

    source: A[str, S(NAME, "Name of the source.", row=True)]
    topics: A[
        tuple[str, ...],
        S(ListOf(TOPIC), "Topics: ROS names with * and **, MQTT topics with + and #.", row=True),
    ] = ()
    sparkplug: A[
        SparkplugMatch | None, S(Record(SparkplugMatch), "Sparkplug address.", row=True)
    ] = None


@dataclass(frozen=True, slots=True)
class TimeConfig:
    """``time:``; ``pointer`` is spelled ``from`` in documents."""

    pointer: A[str, S(Pointer(element=True), "Where the device's time is.", "from", row=True)]
    domain: A[
        str,
        S(
            Choice(("utc", "tai", "monotonic", "sim", "unknown")),
            "What clock the device's time counts; only utc becomes the event time.",
            row=True,
        ),
    ] = "unknown"  # utc tai monotonic sim unknown
    unit: A[
        str | None,
        S(Choice(("s", "ms", "us", "ns")), "Unit of a number; not for a Time structure.", row=True),
    ] = None  # s ms us ns, for a number; None for a Time structure
    max_skew_ns: A[
        int,
        S(
            Duration(example="5s"),
            "Larger distance from the ingest time is flagged CLOCK_SKEW.",
            "max_skew",
            row=True,
        ),
    ] = 5_000_000_000
    correct_offset_ns: A[
        int | None,
        S(
            Duration(-(1 << 62), 1 << 62, "-37s"),
            "Added to the source time to make UTC; sets TIME_CORRECTED.",
            "correct",
            row=True,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """One declared column; ``pointer`` is spelled ``from`` (``/x`` message, ``./x`` element)."""

    name: str
    pointer: A[str | None, S(Pointer(element=True), "Where the value is.", "from", row=True)] = None
    type: A[
        str | None,
        S(ColumnType(), "Column type; CDR fields take the message's own.", row=True),
    ] = None
    unit: A[str | None, S(UNIT, "Unit of the value in the message.", row=True)] = None
    convert_to: A[str | None, S(UNIT, "Unit of the column.", row=True)] = None
    required: A[bool, S(Boolean(), "A missing or null value is a reject.", row=True)] = False
    id: A[
        int | None,
        S(Integer(1, 2_000_000_000), "Parquet field id; else pinned in the lock file.", row=True),
    ] = None
    metric: A[str | None, S(Text(what="a metric name"), "Sparkplug metric.", row=True)] = None


@dataclass(frozen=True, slots=True)
class ExplodeConfig:
    """Either ``pointer`` (array of structures) or ``zip`` (parallel arrays)."""

    pointer: A[str | None, S(Pointer(), "An array of structures.", "from", row=True)] = None
    zip: A[tuple[str, ...], S(ListOf(Pointer()), "Parallel arrays of equal length.", row=True)] = ()
    empty_as_null: A[
        bool, S(Boolean(), "An empty array beside longer ones gives nulls.", row=True)
    ] = False


@dataclass(frozen=True, slots=True)
class DedupConfig:
    """``dedup``; needs ``event_id.key``."""

    window_ns: A[
        int, S(Duration(example="10min"), "How long a key is remembered.", "window", row=True)
    ]
    on_duplicate: A[str, S(Choice(("drop", "flag")), "What happens to a duplicate.", row=True)] = (
        "drop"  # drop | flag
    )
    on_overflow: A[str, S(Choice(("evict", "reject")), "At limits.max_dedup_keys.", row=True)] = (
        "evict"  # evict | reject
    )


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """``datasets.<name>`` (spec 3.2). ``identity`` excludes the edge's constant levels."""

    name: str
    match: A[MatchConfig, S(Record(MatchConfig), "Which messages it takes.", row=True)]
    decode: A[
        str,
        S(
            Choice(("cdr", "json", "sparkplug_b")),
            "How payloads are read; CDR by default.",
            row=True,
        ),
    ] = "cdr"  # cdr | json | sparkplug_b
    type: A[str | None, S(ROS_TYPE, "Message type, for CDR.", row=True)] = None
    version: A[int, S(Integer(1, 1_000_000), "Raised for incompatible changes.", row=True)] = 1
    all_fields: A[
        bool, S(Boolean(), "Make a column of every field of the definition.", row=True)
    ] = False
    exclude: A[
        tuple[str, ...], S(ListOf(GLOB), "Pointers all_fields leaves out, globs.", row=True)
    ] = ()
    fields: A[
        Mapping[str, FieldConfig],
        S(MapOf(Record(FieldConfig, "from"), NAME, "field"), "Columns.", row=True),
    ] = field(default_factory=dict)
    explode: A[
        ExplodeConfig | None,
        S(Record(ExplodeConfig, "from"), "One row per element of an array.", row=True),
    ] = None
    identity: A[
        Mapping[str, str],
        S(MapOf(IdentityValue(), NAME, "identity level"), "Columns that say who.", row=True),
    ] = field(default_factory=dict)
    event_id_key: A[
        tuple[str, ...],
        S(
            ListOf(
                Text(r"[a-z][a-z0-9_]{0,62}|(/([^/~]|~[01])*)+", "an identity level or a pointer"),
            ),
            "Identity levels or pointers that make the event id.",
            "event_id.key",
            row=True,
        ),
    ] = ()
    dedup: A[
        DedupConfig | None, S(Record(DedupConfig), "Message-level deduplication.", row=True)
    ] = None
    time: A[TimeConfig | None, S(Record(TimeConfig), "The device's own time.", row=True)] = None
    flag_unless: A[
        Mapping[str, str],
        S(
            MapOf(Expression(), FLAG, "flag"),
            "Flag -> expression; set where it is false.",
            row=True,
        ),
    ] = field(default_factory=dict)
    reject_unless: A[
        Mapping[str, str],
        S(
            MapOf(Expression(), NAME, "reject code"),
            "Code -> expression; a row where it is false becomes a reject quality.<code>.",
            row=True,
        ),
    ] = field(default_factory=dict)
    gap: A[
        str | None,
        S(
            Text(r"publisher_sequence|(/([^/~]|~[01])*)+", "publisher_sequence or a pointer"),
            "Sequence numbers watched for SEQUENCE_GAP.",
            row=True,
        ),
    ] = None  # publisher_sequence | a pointer
    stale_ns: A[
        int | None,
        S(Duration(example="2s"), "A longer pause flags the next row STALE.", "stale", row=True),
    ] = None
    duplicates: A[
        str,
        S(Choice(("refuse", "last")), "What a repeated key in a JSON object means.", row=True),
    ] = "refuse"  # refuse | last


@dataclass(frozen=True, slots=True)
class TransformConfig:
    """One step of ``transforms:``; ``options`` are the kind's own settings, already checked."""

    name: str
    kind: A[
        str,
        S(Choice(tuple(TRANSFORM_OPTIONS)), "What the step does.", row=True, discriminator=True),
    ]
    dataset: A[str | None, S(NAME, "Only this dataset.", row=True)] = None
    sinks: A[tuple[str, ...], S(_NAMES, "Only these sinks.", row=True)] = ()
    options: A[Mapping[str, object], S(OptionsBy(TRANSFORM_OPTIONS), row=True)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class RotationConfig:
    """``rotation`` (parquet) or ``batch``: when what is buffered is published."""

    max_bytes: A[int, S(Size(1 << 10), "Size.")] = 128 << 20
    max_rows: A[int, S(Integer(1, 1_000_000_000), "Rows.")] = 1_000_000
    max_age_ns: A[
        int, S(Duration(10_000_000, example="15min"), "Age of the oldest row.", "max_age")
    ] = 900_000_000_000


def _batch() -> RotationConfig:
    return RotationConfig(16 << 20, 50_000, 5_000_000_000)


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """``delivery`` of parquet sinks: how sealed files leave the machine."""

    budget_bytes: A[
        int, S(Size(1 << 20, example="10GiB"), "Sealed files waiting for the store.", "budget")
    ] = 10 << 30
    rate_limit_bytes_per_s: A[
        int | None, S(ByteRate(), "Upload rate.", "rate_limit", default_text="unlimited")
    ] = None
    order: A[
        str, S(Choice(("live_first", "oldest_first")), "Which files go first after an outage.")
    ] = "live_first"  # live_first | oldest_first


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """``sinks.<name>``; ``options`` are settings only this driver type has (user, table, ...).

    ``rotation`` is spelled ``batch`` for every type but parquet.
    """

    name: str
    type: A[
        str, S(Choice(SINK_TYPES), "Which store.", discriminator=True)
    ]  # parquet clickhouse kafka nats mqtt
    url: A[str, S(Url(), "Where the store is; a local folder for parquet.")]
    datasets: A[tuple[str, ...], S(_NAMES_OR_ALL, "Which datasets it takes.")] = ("*",)
    primary: A[
        bool, S(Boolean(), "Its rejects make the headline count; else the first by name.")
    ] = False
    start: A[str, S(Choice(("earliest", "latest")), "Where a new sink begins in the WAL.")] = (
        "earliest"  # earliest | latest
    )
    retry_failed_every_ns: A[
        int,
        S(
            Duration(0, example="5min"),
            "How often a Failed sink is tried again; 0s is never.",
            "retry_failed_every",
        ),
    ] = 300_000_000_000
    buffer_bytes: A[int, S(Size(64 << 10, 1 << 40), "Rows waiting to be published.")] = 256 << 20
    cut_bytes: A[int, S(Size(64 << 10, 1 << 40), "Bytes after which a cut is due.")] = 256 << 20
    io_timeout_ns: A[
        int,
        S(
            Duration(100_000_000, example="10s"),
            "Longest time without a byte moving.",
            "io_timeout",
        ),
    ] = 10_000_000_000
    rotation: A[
        RotationConfig,
        S(
            Record(RotationConfig),
            "When rows are published.",
            key_for={"parquet": "rotation", **dict.fromkeys(_BROKERS, "batch")},
            default_for=dict.fromkeys(_BROKERS, _batch),
        ),
    ] = field(default_factory=RotationConfig)
    file_prefix: A[
        str,
        S(
            Text(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "letters, digits, _ . and -, at most 64"),
            "First part of object names.",
            only=("parquet",),
        ),
    ] = "part"
    timestamp_unit: A[
        str, S(Choice(("us", "ns")), "Resolution of timestamp columns.", only=("parquet",))
    ] = "us"  # us | ns
    delivery: A[
        DeliveryConfig, S(Record(DeliveryConfig), "How files leave.", only=("parquet",))
    ] = field(default_factory=DeliveryConfig)
    options: A[Mapping[str, object], S(OptionsBy(SINK_OPTIONS))] = field(default_factory=dict)
    poison_retries: A[
        int, S(Integer(0, 100), "Tries of a frame whose decoding raises, before it is split.")
    ] = 2
    max_attempts_before_bisect: A[
        int, S(Integer(1, 1_000), "Failed tries of a batch before it is split.")
    ] = 5


@dataclass(frozen=True, slots=True)
class QuarantineConfig:
    """``quarantine:``."""

    budget_bytes: A[
        int, S(Size(1 << 20, example="2GiB"), "Rejects kept on disk, all sinks.", "budget")
    ] = 2 << 30
    on_full: A[
        str, S(Choice(("drop_oldest", "hold")), "Evict the oldest segment, or fail the chain.")
    ] = "drop_oldest"  # drop_oldest | hold
    rotation: A[RotationConfig, S(Record(RotationConfig), "When a segment is sealed.")] = field(
        default_factory=lambda: RotationConfig(16 << 20, 1_000_000, 3_600_000_000_000)
    )
    deliver_to: A[str | None, S(NAME, "A parquet sink that sealed segments go to.")] = None
    format: A[str, S(Choice(("parquet",)), "Format of segments.")] = "parquet"


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    """``dead_letter`` of a file pipeline; at least one limit."""

    dir: A[str, S(AbsolutePath("a folder"), "Where sidecars go; outside the watched folder.")]
    max_invalid_fraction: A[
        float | None, S(Number(0.0, 1.0), "Share of bad rows that still commits.")
    ] = None
    max_invalid_rows: A[int | None, S(Integer(0), "Number of bad rows that still commits.")] = None


@dataclass(frozen=True, slots=True)
class FilePipelineConfig:
    """``files.<name>`` (spec 6)."""

    name: str
    watch: A[str, S(AbsolutePath("a folder"), "Folder where files are dropped.")]
    source: A[str, S(NAME, "Source the file stands for, so that datasets match.")]
    sink: A[str, S(NAME, "The one sink it loads into (parquet or clickhouse).")]
    datasets: A[tuple[str, ...], S(_NAMES_OR_ALL, "Which datasets it fills.")]
    namespace: A[
        str,
        S(
            Text(
                r"/([A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*)?", "a namespace such as /r1"
            ),
            "Namespace for relative topic names.",
        ),
    ] = "/"
    dead_letter: A[
        DeadLetterConfig | None, S(Record(DeadLetterConfig), "Bad rows go to a sidecar.")
    ] = None
    allow_empty: A[
        bool, S(Boolean(), "A file of bad rows only commits when inside the limits.")
    ] = False
    settle_ns: A[
        int, S(Duration(0, example="2s"), "A file must rest this long first.", "settle")
    ] = 2_000_000_000
    retry_cap: A[int, S(Integer(1, 1_000), "Failed attempts before FAILED is terminal.")] = 3
    stale_timeout_ns: A[
        int,
        S(Duration(1_000_000_000, example="30min"), "Age of an abandoned claim.", "stale_timeout"),
    ] = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """``limits:`` (spec 3.6)."""

    max_shapes: A[int, S(Integer(1, 1_000_000), "Byte layouts per type.", row=True)] = 1_024
    max_dedup_keys: A[int, S(Integer(1, 100_000_000), "Keys remembered per dataset.", row=True)] = (
        100_000
    )
    json_depth: A[int, S(Integer(1, 1_000), "Nesting of a JSON message.", row=True)] = 64
    predicate_cost: A[
        int, S(Integer(1, 1_000_000), "Cost of one expression, at validation.", row=True)
    ] = 1_000
    max_payload_bytes: A[
        int, S(Size(1, 1 << 32, "64MiB"), "Largest message decoded.", "max_payload", row=True)
    ] = 64 << 20
    max_explode: A[int, S(Integer(1, 100_000_000), "Rows of one message.", row=True)] = 100_000


@dataclass(frozen=True, slots=True)
class Config:
    """A whole, valid configuration.

    Attributes:
        schema: Version of the document format, 1.
        config_hash: 64 hex digits over the canonical form (defaults filled, keys sorted).
        row_hashes: Dataset name -> 64 hex digits over what can change its rows.
        transform_hashes: Transform name -> 64 hex digits over what can change its result.
    """

    edge: A[EdgeConfig, S(Record(EdgeConfig), "This machine.")]
    wal: A[WalConfig, S(Record(WalConfig), "The write-ahead log.", assumed=WalConfig)]
    sources: A[
        Mapping[str, SourceConfig],
        S(MapOf(Record(SourceConfig), NAME, "source", "source_names"), "Where messages come from."),
    ]
    datasets: A[
        Mapping[str, DatasetConfig],
        S(MapOf(Record(DatasetConfig), NAME, "dataset", "dataset_names"), "Output tables."),
    ]
    sinks: A[
        Mapping[str, SinkConfig],
        S(MapOf(Record(SinkConfig), NAME, "sink", "sink_names"), "Where rows go."),
    ]
    transforms: A[
        tuple[TransformConfig, ...],
        S(
            MapOf(Record(TransformConfig), NAME, "transform", "transform_names", ordered=True),
            "Steps after the datasets' own rules, in this order.",
        ),
    ] = ()
    quarantine: A[QuarantineConfig, S(Record(QuarantineConfig), "The store of rejects.")] = field(
        default_factory=QuarantineConfig
    )
    files: A[
        Mapping[str, FilePipelineConfig],
        S(MapOf(Record(FilePipelineConfig), NAME, "file pipeline", "file_names"), "Dropped files."),
    ] = field(default_factory=dict)
    limits: A[LimitsConfig, S(Record(LimitsConfig), "Bounds of work per event.")] = field(
        default_factory=LimitsConfig
    )
    schema: A[int, S(Integer(1, 1), "Version of this document format.")] = 1
    config_hash: str = ""
    row_hashes: Mapping[str, str] = field(default_factory=dict)
    transform_hashes: Mapping[str, str] = field(default_factory=dict)
