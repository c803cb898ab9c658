# SPDX-License-Identifier: Apache-2.0
"""Topics and message definitions of a bag (rosbag2 sqlite3 or MCAP, ROS 1), read with rosbags."""

from __future__ import annotations

from pathlib import Path

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.interfaces import MessageDefinitionFormat
from rosbags.typesys import Stores, get_typestore

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.errors import FatalError
from thadam_ros.files.bag_reader import bag_files, ros2_type_name
from thadam_ros.model.message import TopicDeclaration


def read_topics(path: Path) -> list[TopicDeclaration]:
    """Return the topics of a bag with their definitions, by name.

    Definitions stored in the bag come first; then those known on this machine.

    Raises:
        FatalError: It is not a bag, or cannot be read.
    """
    catalog = TypeCatalog()
    found: dict[tuple[str, str], TopicDeclaration] = {}
    try:
        with AnyReader(bag_files(path), default_typestore=get_typestore(Stores.LATEST)) as reader:
            for connection in reader.connections:
                name = ros2_type_name(connection.msgtype)
                stored = connection.msgdef
                is_text = stored.format is not MessageDefinitionFormat.NONE and stored.data.strip()
                text = stored.data if is_text else catalog.definition(name) or ""
                found[connection.topic, name] = TopicDeclaration(
                    name=connection.topic, type_name=name, definition=text
                )
    except (AnyReaderError, OSError, ValueError) as exc:
        raise FatalError(f"{path} cannot be read as a bag: {exc}") from exc
    return [found[key] for key in sorted(found)]


def bag_catalog(path: Path) -> TypeCatalog:
    """Return a catalog in which the bag's own definitions win.

    Raises:
        FatalError: It is not a bag, or cannot be read.
    """
    topics = read_topics(path)
    return TypeCatalog(definitions={t.type_name: t.definition for t in topics if t.definition})
