# SPDX-License-Identifier: Apache-2.0
"""A rosbag2 bag with MCAP storage: a folder of ``metadata.yaml`` and one chunked, indexed file.

Metadata version 8, for version 9 spells QoS in words that readers before Jazzy do not know. The
folder gets its name when everything in it is written: half a bag is never mistaken for one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

import yaml
from mcap.writer import CompressionType, Writer

from thadam_ros import __version__
from thadam_ros.decode.catalog import SEPARATOR
from thadam_ros.errors import FatalError
from thadam_ros.files.bag_reader import (
    HASH_KEY,
    METADATA,
    NAMESPACE_KEY,
    ORIGINAL_NAME_KEY,
)
from thadam_ros.model.message import TopicDeclaration

METADATA_VERSION: Final = 8
COMPRESSIONS: Final[Mapping[str, CompressionType]] = {
    "zstd": CompressionType.ZSTD,
    "none": CompressionType.NONE,
}
PARTIAL_SUFFIX: Final = ".partial"
#: MCAP counts schemas and channels in 16 bits.
CHANNELS_MAX: Final = 0xFFFF
_CHUNK_BYTES: Final = 1 << 20
_SEQUENCE_MASK: Final = 0xFFFFFFFF
#: Topics that are latched wherever they appear: a player has to offer them so.
_LATCHED: Final = ("tf_static", "robot_description")


@dataclass(slots=True)
class _Topic:
    """One line of the metadata."""

    declaration: TopicDeclaration
    qos: str
    messages: int = 0


@dataclass(slots=True)
class _Times:
    first_ns: int = 0
    last_ns: int = 0
    messages: int = 0

    def add(self, time_ns: int) -> None:
        self.first_ns = min(self.first_ns, time_ns) if self.messages else time_ns
        self.last_ns = max(self.last_ns, time_ns)
        self.messages += 1


@dataclass(slots=True)
class _State:
    schemas: dict[tuple[str, str], int] = field(default_factory=dict)
    channels: dict[TopicDeclaration, int] = field(default_factory=dict)
    topics: dict[tuple[str, str], _Topic] = field(default_factory=dict)
    times: _Times = field(default_factory=_Times)


class BagWriter:
    """Writes one bag; a context manager that removes what it wrote when it is left by an error."""

    def __init__(self, folder: Path, *, compression: str = "zstd") -> None:
        """Begin a bag at ``folder``, which must not exist.

        Args:
            compression: A key of :data:`COMPRESSIONS`, for the chunks of the file.

        Raises:
            FatalError: There is something already.
            OSError: From the filesystem.
        """
        self.folder = folder
        if folder.exists():
            raise FatalError(f"{folder} exists already; name a folder that does not")
        self._partial = folder.with_name(folder.name + PARTIAL_SUFFIX)
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._partial.mkdir()
        except FileExistsError:
            raise FatalError(
                f"{self._partial} is what an export that did not end left behind, or one that is "
                "running; remove it first"
            ) from None
        self._name = f"{folder.name}_0.mcap"
        self._file = (self._partial / self._name).open("xb")
        self._writer = Writer(
            self._file, chunk_size=_CHUNK_BYTES, compression=COMPRESSIONS[compression]
        )
        self._writer.start(profile="ros2", library=f"thadam_ros {__version__}")
        self._state = _State()

    def __enter__(self) -> BagWriter:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            self.abort()

    def write(
        self,
        declaration: TopicDeclaration,
        payload: bytes,
        *,
        log_time_ns: int,
        publish_time_ns: int,
        sequence: int = 0,
    ) -> None:
        """Add a CDR message.

        Args:
            log_time_ns, publish_time_ns: 0 .. 2**64 - 1.
            sequence: Publisher sequence number + 1, 0 when unknown; MCAP keeps 32 bits of it.

        Raises:
            FatalError: More channels than the format can count.
            OSError: From the filesystem.
        """
        channel = self._state.channels.get(declaration)
        if channel is None:
            channel = self._register(declaration)
        self._writer.add_message(
            channel, log_time_ns, payload, publish_time_ns, sequence & _SEQUENCE_MASK
        )
        self._state.topics[declaration.name, declaration.type_name].messages += 1
        self._state.times.add(log_time_ns)

    def _register(self, declaration: TopicDeclaration) -> int:
        state = self._state
        if len(state.channels) >= CHANNELS_MAX:
            raise FatalError(f"a bag holds at most {CHANNELS_MAX} channels; choose fewer topics")
        qos = state.topics.setdefault(
            (declaration.name, declaration.type_name),
            _Topic(declaration, _offered_qos(declaration.name)),
        ).qos
        key = declaration.type_name, declaration.definition
        schema = state.schemas.get(key)
        if schema is None:
            schema = state.schemas[key] = self._writer.register_schema(
                declaration.type_name,
                _schema_encoding(declaration.definition),
                declaration.definition.encode(),
            )
        kept = {
            HASH_KEY: _told_hash(declaration),
            NAMESPACE_KEY: declaration.namespace,
            ORIGINAL_NAME_KEY: declaration.original_name,
        }
        channel: int = self._writer.register_channel(
            declaration.name,
            declaration.encoding,
            schema,
            {"offered_qos_profiles": qos, **{k: v for k, v in kept.items() if v}},
        )
        state.channels[declaration] = channel
        return channel

    def close(self, custom: Mapping[str, str]) -> None:
        """Write indexes and metadata, sync, and give the folder its name.

        Args:
            custom: What ``custom_data`` of the metadata is to say.

        Raises:
            OSError: From the filesystem.
        """
        information = self._information(custom)
        self._writer.add_metadata(
            "rosbag2", {"serialized_metadata": yaml.safe_dump(information, sort_keys=False)}
        )
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        document = {"rosbag2_bagfile_information": information}
        with (self._partial / METADATA).open("x", encoding="utf-8") as file:
            yaml.safe_dump(document, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._partial)
        self._partial.rename(self.folder)
        _sync_folder(self.folder.parent)

    def abort(self) -> None:
        """Remove what was written; may be called again."""
        self._file.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def _information(self, custom: Mapping[str, str]) -> dict[str, object]:
        times = self._state.times
        start = {"nanoseconds_since_epoch": times.first_ns}
        duration = {"nanoseconds": times.last_ns - times.first_ns if times.messages else 0}
        return {
            "version": METADATA_VERSION,
            "storage_identifier": "mcap",
            "duration": duration,
            "starting_time": start,
            "message_count": times.messages,
            "topics_with_message_count": [
                {
                    "topic_metadata": {
                        "name": topic.declaration.name,
                        "type": topic.declaration.type_name,
                        "serialization_format": "cdr",
                        "offered_qos_profiles": topic.qos,
                        "type_description_hash": _told_hash(topic.declaration),
                    },
                    "message_count": topic.messages,
                }
                for topic in self._state.topics.values()
            ],
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [self._name],
            "files": [
                {
                    "path": self._name,
                    "starting_time": start.copy(),
                    "duration": duration.copy(),
                    "message_count": times.messages,
                }
            ],
            "custom_data": {"exported_by": f"thadam_ros {__version__}", **custom},
            "ros_distro": "unknown",
        }


def _told_hash(declaration: TopicDeclaration) -> str:
    """Return the hash that a publisher told, not one computed from the text.

    A bag's hash is what the graph said; and readers that compute their own refuse a whole bag for
    one that differs, as rosbags does for ``std_msgs/msg/Char``.
    """
    return declaration.type_hash if declaration.hash_origin == "graph" else ""


def _schema_encoding(definition: str) -> str:
    """Return MCAP's name of what the text is; without a text a schema is only a name."""
    if not definition:
        return ""
    return "ros2idl" if definition.startswith(f"{SEPARATOR}\nIDL: ") else "ros2msg"


def _offered_qos(topic: str) -> str:
    """Return the YAML of one offered profile, in the numbers of metadata before version 9.

    The WAL does not keep what publishers offered. Reliable and volatile, keep last 10, satisfies
    every subscription but those to latched topics, which are offered transient local.
    """
    zero = {"sec": 0, "nsec": 0}
    latched = topic.rpartition("/")[2] in _LATCHED
    profile = {
        "history": 1,
        "depth": 10,
        "reliability": 1,
        "durability": 1 if latched else 2,
        "deadline": zero.copy(),
        "lifespan": zero.copy(),
        "liveliness": 1,
        "liveliness_lease_duration": zero.copy(),
        "avoid_ros_namespace_conventions": False,
    }
    text: str = yaml.safe_dump([profile], sort_keys=False)
    return text


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
