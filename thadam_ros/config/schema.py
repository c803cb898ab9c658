# SPDX-License-Identifier: Apache-2.0
"""The configuration as frozen dataclasses (spec 3.7); made only by the loader.

Units stand last in names. ``None`` means "not given, decided later from the machine" where a
docstring says so. Maps keep the order of their canonical form, which is by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """``edge:`` (data_dir, constant identity levels, lock file, clock state, readiness)."""

    data_dir: str
    identity: Mapping[str, str] = field(default_factory=dict)
    lock_file: str | None = None
    clock: str = "adjtimex"  # adjtimex | always_synced | file:<path>
    ready_requires: tuple[str, ...] = ("capture", "sinks")


@dataclass(frozen=True, slots=True)
class WalConfig:
    """``wal:``; None budgets take the defaults of spec 2 from the filesystem's size."""

    budget_bytes: int | None = None
    min_free_bytes: int | None = None
    replay_window_bytes: int | None = None
    segment_bytes: int = 64 << 20
    commit: str = "group"  # group | each
    commit_interval_ns: int = 200_000_000
    commit_bytes: int = 4 << 20
    compression: str = "none"  # none | zstd
    when_full: str = "stop_capture"  # stop_capture | drop_oldest


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """``sources.<name>.topics.<topic>``; None means "as discovered"."""

    reliability: str | None = None  # reliable | best_effort
    durability: str | None = None  # volatile | transient_local
    depth: int | None = None
    max_rate_hz: float | None = None
    max_payload_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """``sources.<name>``; the mqtt part is None for ros2 sources and the other way round."""

    name: str
    type: str  # ros2 | mqtt
    ros2: Ros2SourceConfig | None = None
    mqtt: MqttSourceConfig | None = None


@dataclass(frozen=True, slots=True)
class Ros2SourceConfig:
    capture: str = "matched"  # matched | all
    also: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    topics: Mapping[str, TopicOptions] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MqttSourceConfig:
    url: str
    client_id: str
    user: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    qos: int = 1


@dataclass(frozen=True, slots=True)
class SparkplugMatch:
    group: str
    node: str
    device: str | None = None


@dataclass(frozen=True, slots=True)
class MatchConfig:
    source: str
    topics: tuple[str, ...] = ()
    sparkplug: SparkplugMatch | None = None


@dataclass(frozen=True, slots=True)
class TimeConfig:
    """``time:``; ``pointer`` is spelled ``from`` in documents."""

    pointer: str
    domain: str = "unknown"  # utc tai monotonic sim unknown
    unit: str | None = None  # s ms us ns, for a number; None for a Time structure
    max_skew_ns: int = 5_000_000_000
    correct_offset_ns: int | None = None


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """One declared column; ``pointer`` is spelled ``from`` (``/x`` message, ``./x`` element)."""

    name: str
    pointer: str | None = None
    type: str | None = None
    unit: str | None = None
    convert_to: str | None = None
    required: bool = False
    id: int | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class ExplodeConfig:
    """Either ``pointer`` (array of structures) or ``zip`` (parallel arrays)."""

    pointer: str | None = None
    zip: tuple[str, ...] = ()
    empty_as_null: bool = False


@dataclass(frozen=True, slots=True)
class DedupConfig:
    window_ns: int
    on_duplicate: str = "drop"  # drop | flag
    on_overflow: str = "evict"  # evict | reject


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """``datasets.<name>`` (spec 3.2). ``identity`` excludes the edge's constant levels."""

    name: str
    match: MatchConfig
    decode: str = "cdr"  # cdr | json | sparkplug_b
    type: str | None = None
    version: int = 1
    all_fields: bool = False
    exclude: tuple[str, ...] = ()
    fields: Mapping[str, FieldConfig] = field(default_factory=dict)
    explode: ExplodeConfig | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    event_id_key: tuple[str, ...] = ()
    dedup: DedupConfig | None = None
    time: TimeConfig | None = None
    flag_unless: Mapping[str, str] = field(default_factory=dict)
    reject_unless: Mapping[str, str] = field(default_factory=dict)
    gap: str | None = None  # publisher_sequence | a pointer
    stale_ns: int | None = None


@dataclass(frozen=True, slots=True)
class TransformConfig:
    """One step of ``transforms:``; ``options`` are the kind's own settings, already checked."""

    name: str
    kind: str
    dataset: str | None = None
    sinks: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RotationConfig:
    max_bytes: int = 128 << 20
    max_rows: int = 1_000_000
    max_age_ns: int = 900_000_000_000


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    budget_bytes: int = 10 << 30
    rate_limit_bytes_per_s: int | None = None
    order: str = "live_first"  # live_first | oldest_first


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """``sinks.<name>``; ``options`` are settings only this driver type has (user, table, ...).

    ``rotation`` is spelled ``batch`` for every type but parquet.
    """

    name: str
    type: str  # parquet clickhouse kafka nats mqtt
    url: str
    datasets: tuple[str, ...] = ("*",)
    primary: bool = False
    start: str = "earliest"  # earliest | latest
    retry_failed_every_ns: int = 300_000_000_000
    buffer_bytes: int = 256 << 20
    cut_bytes: int = 256 << 20
    io_timeout_ns: int = 10_000_000_000
    rotation: RotationConfig = field(default_factory=RotationConfig)
    file_prefix: str = "part"
    timestamp_unit: str = "us"  # us | ns
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuarantineConfig:
    budget_bytes: int = 2 << 30
    on_full: str = "drop_oldest"  # drop_oldest | hold
    rotation: RotationConfig = field(
        default_factory=lambda: RotationConfig(16 << 20, 1_000_000, 3_600_000_000_000)
    )
    deliver_to: str | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    dir: str
    max_invalid_fraction: float | None = None
    max_invalid_rows: int | None = None


@dataclass(frozen=True, slots=True)
class FilePipelineConfig:
    name: str
    watch: str
    source: str
    sink: str
    datasets: tuple[str, ...]
    namespace: str = "/"
    dead_letter: DeadLetterConfig | None = None
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """``limits:`` (spec 3.6)."""

    max_shapes: int = 1_024
    max_dedup_keys: int = 100_000
    json_depth: int = 64
    predicate_cost: int = 1_000
    max_payload_bytes: int = 64 << 20
    max_explode: int = 100_000


@dataclass(frozen=True, slots=True)
class Config:
    """A whole, valid configuration.

    Attributes:
        schema: Version of the document format, 1.
        config_hash: 64 hex digits over the canonical form (defaults filled, keys sorted).
        row_hashes: Dataset name -> 64 hex digits over what can change its rows.
    """

    edge: EdgeConfig
    wal: WalConfig
    sources: Mapping[str, SourceConfig]
    datasets: Mapping[str, DatasetConfig]
    sinks: Mapping[str, SinkConfig]
    transforms: tuple[TransformConfig, ...] = ()
    quarantine: QuarantineConfig = field(default_factory=QuarantineConfig)
    files: Mapping[str, FilePipelineConfig] = field(default_factory=dict)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    schema: int = 1
    config_hash: str = ""
    row_hashes: Mapping[str, str] = field(default_factory=dict)
