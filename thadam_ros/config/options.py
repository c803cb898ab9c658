# SPDX-License-Identifier: Apache-2.0
"""Settings that only one sink type or one transform kind has.

The dataclasses here are schemas only: a loaded configuration carries the values in ``options``
mappings, keyed as documents spell them, typed, with defaults filled (``None`` = not given).
"""

# ruff: noqa: N817 - A and S keep one field readable on a few lines
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated as A
from typing import Final

from thadam_ros.config.kinds import Boolean, Choice, Duration, Integer, ListOf, Number, Text
from thadam_ros.config.patterns import (
    NAME,
    AbsolutePath,
    Constant,
    Expression,
    Secret,
    Template,
)
from thadam_ros.config.settings import MapOf
from thadam_ros.config.settings import Setting as S

_COLUMN = Text("_?[a-z][a-z0-9_]{0,62}", "a column name")
_COLUMNS = ListOf(_COLUMN, required_items=True)
_ON_FAIL = Choice(("flag", "reject"))
_CA_FILE = S(AbsolutePath("a PEM file"), "Certificate authority that signs the server.")
_USER = S(Text(what="a user name"), "User to sign in as.")
_PASSWORD_ENV = S(Secret("the password"), "Environment variable that holds the password.")
_PASSWORD_FILE = S(AbsolutePath("a file"), "File that holds the password, one line.")


@dataclass(frozen=True)
class ParquetOptions:
    """Object storage settings of ``parquet`` sinks; local folders need none."""

    region: A[str | None, S(Text(what="a region"), "Region of the bucket.")] = None
    endpoint: A[str | None, S(Text(what="a URL"), "S3-compatible server other than AWS.")] = None
    access_key_id_env: A[
        str | None, S(Secret("the key id"), "Environment variable with the access key id.")
    ] = None
    access_key_id_file: A[str | None, S(AbsolutePath("a file"), "File with the access key id.")] = (
        None
    )
    secret_access_key_env: A[
        str | None, S(Secret("the secret key"), "Environment variable with the secret key.")
    ] = None
    secret_access_key_file: A[
        str | None, S(AbsolutePath("a file"), "File with the secret key.")
    ] = None
    session_token_env: A[
        str | None, S(Secret("the session token"), "Environment variable with a session token.")
    ] = None
    ca_file: A[str | None, _CA_FILE] = None


@dataclass(frozen=True)
class ClickHouseOptions:
    """Settings of ``clickhouse`` sinks."""

    database: A[str, S(Text("[A-Za-z_][A-Za-z0-9_]*", "a database name"), "Database.")] = "default"
    table: A[str, S(Template(("dataset", "version")), "Table per dataset.")] = "{dataset}"
    user: A[str | None, _USER] = None
    password_env: A[str | None, _PASSWORD_ENV] = None
    password_file: A[str | None, _PASSWORD_FILE] = None
    ca_file: A[str | None, _CA_FILE] = None


@dataclass(frozen=True)
class KafkaOptions:
    """Settings of ``kafka`` sinks."""

    topic: A[str, S(Template(("dataset", "version")), "Topic per dataset.")] = "{dataset}"
    key: A[tuple[str, ...], S(ListOf(NAME), "Identity levels that make the message key.")] = ()
    idempotence: A[
        str, S(Choice(("required", "off")), "Whether the idempotent producer is required.")
    ] = "required"
    mechanism: A[
        str,
        S(Choice(("none", "plain", "scram-sha-256", "scram-sha-512")), "SASL mechanism."),
    ] = "none"
    user: A[str | None, _USER] = None
    password_env: A[str | None, _PASSWORD_ENV] = None
    password_file: A[str | None, _PASSWORD_FILE] = None
    ca_file: A[str | None, _CA_FILE] = None


@dataclass(frozen=True)
class NatsOptions:
    """Settings of ``nats`` sinks."""

    subject: A[str, S(Template(("dataset", "version")), "Subject per dataset.")] = "{dataset}"
    user: A[str | None, _USER] = None
    password_env: A[str | None, _PASSWORD_ENV] = None
    password_file: A[str | None, _PASSWORD_FILE] = None
    token_env: A[
        str | None, S(Secret("the token"), "Environment variable that holds the token.")
    ] = None
    token_file: A[str | None, S(AbsolutePath("a file"), "File that holds the token.")] = None
    credentials_file: A[str | None, S(AbsolutePath("a .creds file"), "NATS credentials.")] = None
    ca_file: A[str | None, _CA_FILE] = None


@dataclass(frozen=True)
class MqttSinkOptions:
    """Settings of ``mqtt`` sinks."""

    client_id: A[str | None, S(Text(what="a client id"), "MQTT client id.")] = None
    topic: A[str, S(Template(("dataset", "version")), "Topic per dataset.")] = "{dataset}"
    qos: A[int, S(Integer(0, 1), "MQTT quality of service.")] = 1
    user: A[str | None, _USER] = None
    password_env: A[str | None, _PASSWORD_ENV] = None
    password_file: A[str | None, _PASSWORD_FILE] = None
    ca_file: A[str | None, _CA_FILE] = None


SINK_OPTIONS: Final = {
    "parquet": ParquetOptions,
    "clickhouse": ClickHouseOptions,
    "kafka": KafkaOptions,
    "nats": NatsOptions,
    "mqtt": MqttSinkOptions,
}

_FLAG_NAMES = (
    "OUT_OF_RANGE",
    "CLOCK_SKEW",
    "MISSING_TIME",
    "OUT_OF_ORDER",
    "DUPLICATE",
    "STALE",
    "SEQUENCE_GAP",
    "DECODE_ERROR",
    "INVALID",
)
#: Kind of a flag a rule may set (spec 3.3); TIME_CORRECTED belongs to time correction alone.
FLAG: Final = Choice(_FLAG_NAMES)
_FLAG = S(FLAG, "Flag set where the rule fails.", row=True)
_FAIL = S(_ON_FAIL, "Whether a failing row is flagged or rejected.", row=True)
_CODE = S(
    NAME, "Reject code quality.<code> when on_fail is reject; default the step's name.", row=True
)


@dataclass(frozen=True)
class ValidateOptions:
    """``validate``: each check that is given applies to every column named."""

    columns: A[tuple[str, ...], S(_COLUMNS, "Columns to check.", row=True)]
    range: A[
        tuple[float, ...],
        S(ListOf(Number(infinite=True), unique=False), "Lowest and highest valid value.", row=True),
    ] = ()
    required: A[bool, S(Boolean(), "Null fails.", row=True)] = False
    finite: A[bool, S(Boolean(), "NaN and infinities fail.", row=True)] = False
    enum: A[tuple[object, ...], S(ListOf(Constant()), "The only valid values.", row=True)] = ()
    length: A[
        tuple[int, ...],
        S(ListOf(Integer(), unique=False), "Least and greatest length of text or list.", row=True),
    ] = ()
    flag: A[str | None, _FLAG] = None
    on_fail: A[str, _FAIL] = "flag"
    code: A[str | None, _CODE] = None


@dataclass(frozen=True)
class PoseOptions:
    """``pose``: quaternion norm and frame id."""

    quaternion: A[
        tuple[str, ...], S(_COLUMNS, "The columns of x, y, z, w; absent ones are 0.", row=True)
    ]
    tolerance: A[float, S(Number(0.0, 1.0), "Allowed deviation of the norm from 1.", row=True)] = (
        0.01
    )
    frame_id: A[str | None, S(_COLUMN, "Column with the frame id.", row=True)] = None
    frames: A[
        tuple[str, ...], S(ListOf(Text()), "Valid frame ids; empty allows all.", row=True)
    ] = ()
    on_fail: A[str, _FAIL] = "flag"
    code: A[str | None, _CODE] = None


@dataclass(frozen=True)
class JointStateOptions:
    """``joint_state``: lengths agree, names are unique."""

    names: A[str, S(_COLUMN, "List column with the joints' names.", row=True)]
    values: A[tuple[str, ...], S(_COLUMNS, "List columns of the same length, or empty.", row=True)]
    on_fail: A[str, _FAIL] = "flag"
    code: A[str | None, _CODE] = None


@dataclass(frozen=True)
class FilterOptions:
    """``filter``: drops rows where the expression is false."""

    keep: A[str, S(Expression(), "Rows where this is false are dropped and counted.", row=True)]


@dataclass(frozen=True)
class SetOptions:
    """``set``: computes columns."""

    values: A[
        Mapping[str, str],
        S(MapOf(Expression(), NAME, "column"), "Column -> expression.", row=True),
    ]


@dataclass(frozen=True)
class SampleOptions:
    """``sample``: every N-th row, or one per ingest interval and key."""

    every: A[int | None, S(Integer(1), "Keep one row of N.", row=True)] = None
    interval: A[int | None, S(Duration(example="1s"), "Keep one row per interval.", row=True)] = (
        None
    )
    key: A[tuple[str, ...], S(ListOf(_COLUMN), "Columns counted apart.", row=True)] = ()


@dataclass(frozen=True)
class DedupOptions:
    """``dedup``: rows whose key was seen inside the window."""

    key: A[tuple[str, ...], S(_COLUMNS, "Columns that make the key.", row=True)]
    window: A[int, S(Duration(example="10min"), "How long a key is remembered.", row=True)]
    on_duplicate: A[str, S(Choice(("drop", "flag")), "What happens to a duplicate.", row=True)] = (
        "drop"
    )
    on_overflow: A[str, S(Choice(("evict", "reject")), "At limits.max_dedup_keys.", row=True)] = (
        "evict"
    )


@dataclass(frozen=True)
class EnrichOptions:
    """``enrich``: columns looked up in a small table."""

    file: A[str, S(AbsolutePath("a CSV, JSON or Parquet file"), "The lookup table.", row=True)]
    key: A[
        Mapping[str, str],
        S(
            MapOf(Text(what="a column of the file"), _COLUMN, "column"),
            "Column -> file column.",
            row=True,
        ),
    ]
    columns: A[
        Mapping[str, str],
        S(
            MapOf(Text(what="a column of the file"), NAME, "column"),
            "New column -> file column.",
            row=True,
        ),
    ]
    on_missing: A[
        str, S(Choice(("null", "flag", "reject")), "When the key is not in the table.", row=True)
    ] = "null"


@dataclass(frozen=True)
class GapOptions:
    """``gap``: SEQUENCE_GAP where numbers are missing."""

    by: A[
        str,
        S(
            Text(r"publisher_sequence|[a-z][a-z0-9_]{0,62}|/.+", "publisher_sequence or a column"),
            "Where the sequence number is.",
            row=True,
        ),
    ] = "publisher_sequence"
    key: A[tuple[str, ...], S(ListOf(_COLUMN), "Columns counted apart.", row=True)] = ()


@dataclass(frozen=True)
class StaleOptions:
    """``stale``: STALE on the first row after a pause."""

    after: A[int, S(Duration(example="2s"), "Longest expected pause.", row=True)]
    key: A[tuple[str, ...], S(ListOf(_COLUMN), "Columns counted apart.", row=True)] = ()


@dataclass(frozen=True)
class OrderOptions:
    """``order``: OUT_OF_ORDER where a time runs backwards."""

    by: A[str, S(_COLUMN, "Time column.", row=True)] = "_source_time"
    key: A[tuple[str, ...], S(ListOf(_COLUMN), "Columns watched apart.", row=True)] = ()


@dataclass(frozen=True)
class ObjectRefOptions:
    """``object_ref``: bytes become an object beside the table (parquet sinks only)."""

    column: A[str, S(_COLUMN, "Binary column that is replaced by its reference.", row=True)]
    min_bytes: A[int, S(Integer(0), "Smaller values stay in the table.", row=True)] = 0


TRANSFORM_OPTIONS: Final = {
    "validate": ValidateOptions,
    "pose": PoseOptions,
    "joint_state": JointStateOptions,
    "filter": FilterOptions,
    "set": SetOptions,
    "sample": SampleOptions,
    "dedup": DedupOptions,
    "enrich": EnrichOptions,
    "gap": GapOptions,
    "stale": StaleOptions,
    "order": OrderOptions,
    "object_ref": ObjectRefOptions,
}
