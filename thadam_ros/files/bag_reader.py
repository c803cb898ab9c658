# SPDX-License-Identifier: Apache-2.0
"""The messages of a rosbag2 bag as they stand there: payload bytes, times, declarations.

MCAP files are read record by record in file order, which is the order of recording, and with their
publish time; rosbags, which reads sqlite3 and whatever rosbag2 compressed itself, sorts by time and
has no publish time.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

import yaml
import zstandard
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Channel, McapRecord, Message, Schema
from mcap.stream_reader import StreamReader
from rosbags.interfaces import ConnectionExtRosbag2, MessageDefinitionFormat
from rosbags.rosbag2 import Reader, ReaderError

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.schema import type_hash
from thadam_ros.errors import FatalError, RecordError
from thadam_ros.model.message import TopicDeclaration

METADATA: Final = "metadata.yaml"
#: Channel metadata that exports add, so that an import gives back what was declared.
NAMESPACE_KEY: Final = "thadam_ros.namespace"
ORIGINAL_NAME_KEY: Final = "thadam_ros.original_name"
HASH_KEY: Final = "topic_type_hash"
#: A length field that rotted must not ask for all memory.
_RECORD_BYTES_MAX: Final = 1 << 30
#: What rosbag2 writes when publishers disagree or none said.
_NO_HASH: Final = re.compile(r"(RIHS01_0{64}|)")


def _sqlite_errors() -> tuple[type[Exception], ...]:
    """Return what the library under rosbags raises; which one depends on rosbags' version."""
    errors: list[type[Exception]] = [sqlite3.Error]
    with contextlib.suppress(ImportError):
        import apsw

        errors.append(apsw.Error)
    return tuple(errors)


_ROSBAGS_ERRORS: Final[tuple[type[Exception], ...]] = (
    ReaderError,
    OSError,
    ValueError,
    *_sqlite_errors(),
)
_MCAP_ERRORS: Final = (
    McapError,
    OSError,
    ValueError,
    MemoryError,
    struct.error,
    zstandard.ZstdError,
)


class BagError(FatalError):
    """A bag cannot be read, or not to its end."""


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One message of a bag as it stands there.

    Attributes:
        time_ns: When it was recorded (log time).
        source_timestamp_ns: When it was published, 0 when the bag does not say.
        sequence: Publisher sequence number + 1, 0 when unknown.
        publisher: Publisher gid, empty when unknown.
    """

    declaration: TopicDeclaration
    time_ns: int
    payload: bytes
    source_timestamp_ns: int = 0
    sequence: int = 0
    publisher: bytes = b""


def ros2_type_name(name: str) -> str:
    """Return ``pkg/msg/Name`` of a name that may lack the middle part."""
    parts = name.split("/")
    return f"{parts[0]}/msg/{parts[1]}" if len(parts) == 2 else name


def bag_files(path: Path) -> list[Path]:
    """Return what a reader is to open: the files of a folder without metadata, in order."""
    if path.is_dir() and not (path / METADATA).exists():
        for suffix in ("mcap", "db3"):
            files = sorted(path.glob(f"*.{suffix}"), key=_natural)
            if files:
                return files
    return [path]


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Return a key that puts ``bag_2`` before ``bag_10``, as a recorder that splits names them."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


class BagReader:
    """Messages of one bag, folder or single file, streaming.

    Attributes:
        skipped: Topic -> messages that were passed over because they are not CDR.
    """

    def __init__(
        self, path: Path, *, namespace: str | None = None, catalog: TypeCatalog | None = None
    ) -> None:
        """Prepare to read ``path``.

        Args:
            namespace: What declarations say; None for what the bag knows, else ``/``.
            catalog: Where definitions are looked up that the bag does not hold.

        Raises:
            BagError: It does not exist, is no rosbag2 bag or cannot be read.
        """
        self.path = path
        self.skipped: dict[str, int] = {}
        self._namespace = namespace
        self._catalog = catalog or TypeCatalog()
        if not path.exists():
            raise BagError(f"{path} does not exist; name a bag's folder or file")
        if path.suffix == ".bag":
            raise BagError(
                f"{path} is a ROS 1 bag, whose messages are not CDR; convert it first: "
                "rosbags-convert --src A.bag --dst B"
            )
        self._mcap_files = _mcap_files(path)

    def message_count(self) -> int | None:
        """Return how many messages the bag says to have, None when it does not say.

        Raises:
            BagError: It cannot be read.
        """
        if self._mcap_files:
            counts = [_counted(file) for file in self._mcap_files]
            known = [count for count in counts if count is not None]
            return sum(known) if len(known) == len(counts) else None
        count = 0
        for file in bag_files(self.path):
            with self._reading(), Reader(file) as reader:
                count += reader.message_count
        return count

    def messages(self) -> Iterator[BagMessage]:
        """Yield every CDR message; files of a bag one after another.

        Raises:
            BagError: It cannot be read, or not to its end; what came before is intact.
        """
        for file in self._mcap_files:
            yield from self._mcap_messages(file)
        if not self._mcap_files:
            for file in bag_files(self.path):
                yield from self._rosbags_messages(file)

    def _mcap_messages(self, path: Path) -> Iterator[BagMessage]:
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        declarations: dict[int, TopicDeclaration] = {}
        for record in _mcap_records(path):
            if isinstance(record, Schema):
                schemas[record.id] = record
            elif isinstance(record, Channel):
                channels[record.id] = record
            elif isinstance(record, Message):
                channel = channels.get(record.channel_id)
                if channel is None:
                    raise BagError(f"{path}: no record declares channel {record.channel_id}")
                if channel.message_encoding != "cdr":
                    self._skip(channel.topic)
                    continue
                declaration = declarations.get(channel.id)
                if declaration is None:
                    schema = schemas.get(channel.schema_id)
                    declaration = self._declare_channel(channel, schema)
                    declarations[channel.id] = declaration
                # Recorders that do not know when it was published repeat the log time.
                published = record.publish_time if record.publish_time != record.log_time else 0
                yield BagMessage(declaration, record.log_time, record.data, published)

    def _declare_channel(self, channel: Channel, schema: Schema | None) -> TopicDeclaration:
        text = ""
        if schema is not None and schema.encoding in ("ros2msg", "ros2idl", "omgidl"):
            text = schema.data.decode("utf-8", "replace")
        return self._declaration(
            channel.topic,
            "" if schema is None else schema.name,
            text,
            channel.metadata.get(HASH_KEY, ""),
            channel.metadata,
        )

    def _rosbags_messages(self, path: Path) -> Iterator[BagMessage]:
        """Yield the messages of a folder or file.

        Not with AnyReader, which refuses bags whose definitions do not hash as they say.
        """
        with contextlib.ExitStack() as stack:
            with self._reading():
                reader = stack.enter_context(Reader(path))
                declarations: dict[int, TopicDeclaration] = {}
                foreign: set[int] = set()
                for connection in reader.connections:
                    ext = connection.ext
                    if isinstance(ext, ConnectionExtRosbag2) and ext.serialization_format != "cdr":
                        foreign.add(connection.id)
                    stored = connection.msgdef
                    known = stored.format is not MessageDefinitionFormat.NONE
                    declarations[connection.id] = self._declaration(
                        connection.topic,
                        connection.msgtype,
                        stored.data if known else "",
                        connection.digest or "",
                    )
                messages = reader.messages()
            while True:
                with self._reading():
                    found = next(messages, None)
                if found is None:
                    return
                connection, time_ns, payload = found
                if connection.id in foreign:
                    self._skip(connection.topic)
                else:
                    yield BagMessage(declarations[connection.id], time_ns, bytes(payload))

    def _declaration(
        self,
        topic: str,
        type_name: str,
        text: str,
        hash_text: str,
        extra: Mapping[str, str] | None = None,
    ) -> TopicDeclaration:
        extra = extra or {}
        name = ros2_type_name(type_name)
        definition = text if text.strip() else self._catalog.definition(name) or ""
        origin = "graph"
        if _NO_HASH.fullmatch(hash_text):
            hash_text, origin = _computed_hash(definition, name), "computed"
        return TopicDeclaration(
            name=topic,
            original_name=extra.get(ORIGINAL_NAME_KEY, ""),
            namespace=self._namespace or extra.get(NAMESPACE_KEY) or "/",
            type_name=name,
            definition=definition,
            type_hash=hash_text,
            hash_origin=origin if hash_text else "",
        )

    def _skip(self, topic: str) -> None:
        self.skipped[topic] = self.skipped.get(topic, 0) + 1

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except _ROSBAGS_ERRORS as exc:
            raise BagError(f"{self.path} cannot be read as a bag: {_reason(exc)}") from exc


def _reason(exc: Exception) -> str:
    """Return what a library said; end-of-file errors come without a word."""
    return f"{exc}" or f"it ends in the middle of a record ({type(exc).__name__})"


def _computed_hash(definition: str, type_name: str) -> str:
    try:
        return type_hash(parse_definition(definition, type_name))
    except RecordError:
        # Not every definition found in the wild parses; chains reject it with the reason.
        return ""


def _mcap_files(path: Path) -> list[Path]:
    """Return the MCAP files of a bag in order; [] when rosbags has to read it.

    Raises:
        BagError: The metadata cannot be read, or a file that it names is missing.
    """
    files = bag_files(path)
    if files[0].suffix == ".mcap":
        return files
    metadata_path = path / METADATA
    if not metadata_path.exists():
        return []
    try:
        document = yaml.safe_load(metadata_path.read_text(encoding="utf-8"))
        metadata: Any = document["rosbag2_bagfile_information"]
        if metadata["storage_identifier"] != "mcap":
            return []
        if str(metadata.get("compression_mode") or "none").lower() not in ("none", "storage"):
            return []
        found = [path / PurePath(name).name for name in metadata["relative_file_paths"]]
    except (yaml.YAMLError, OSError, KeyError, TypeError, AttributeError, ValueError) as exc:
        raise BagError(f"{metadata_path} is no rosbag2 metadata: {exc!r}") from exc
    for file in found:
        if not file.exists():
            raise BagError(f"{file} is missing; {metadata_path} names it")
    return found


def _mcap_records(path: Path) -> Iterator[McapRecord]:
    """Yield the records of a file, those inside chunks included.

    Raises:
        BagError: It is damaged or cut short; what came before is intact.
    """
    try:
        # The consumer's errors do not pass through here: it is not inside of this frame.
        with path.open("rb") as file:
            yield from StreamReader(
                file, validate_crcs=True, record_size_limit=_RECORD_BYTES_MAX
            ).records
    except _MCAP_ERRORS as exc:
        raise BagError(f"{path} cannot be read on: {_reason(exc)}") from exc


def _counted(path: Path) -> int | None:
    """Return the message count of an MCAP file's summary; a file cut short has none."""
    try:
        with path.open("rb") as file:
            summary = make_reader(file).get_summary()
    except _MCAP_ERRORS:
        return None
    if summary is None or summary.statistics is None:
        return None
    return int(summary.statistics.message_count)
