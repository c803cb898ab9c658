# SPDX-License-Identifier: Apache-2.0
"""From a type name in the graph to what capture needs: class, definition, hash (spec 7.2).

rclpy subscribes only with an importable class. The definition text comes from the installed
package or the built-in store; when its hash is not the one that the publisher announces, the
publisher's node is asked (``get_type_description``), since decoding its bytes with another
definition would give wrong values.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.type_support import check_is_valid_msg_type

from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.schema import type_hash
from thadam_ros.errors import RecordError
from thadam_ros.node.capabilities import Capabilities

#: How long a publisher's node may take to describe a type; then capture goes on without.
DESCRIPTION_TIMEOUT_S = 3.0

_SEPARATOR = "=" * 80


@dataclass(frozen=True, slots=True)
class ResolvedType:
    """A type that can be captured.

    Attributes:
        definition: Text with dependencies appended; empty when nobody knows the right one.
        hash_origin: ``graph``, ``computed`` or empty (spec 2).
    """

    type_name: str
    message_class: type
    definition: str
    type_hash: str
    hash_origin: str


class Unresolved(Enum):
    """Why a type cannot be captured now."""

    UNKNOWN = "its package is not installed here"
    PENDING = "the publisher was asked for the definition"


class TypeResolver:
    """Resolves types of one node's graph; used by one thread at a time."""

    def __init__(
        self,
        node: Node,
        definition_of: Callable[[str], str | None],
        capabilities: Capabilities,
    ) -> None:
        """Prepare.

        Args:
            definition_of: Installed definition text of a type, None when there is none.
        """
        self._node = node
        self._definition_of = definition_of
        self._ask = capabilities.type_description
        self._group = ReentrantCallbackGroup()
        self._requests: dict[tuple[str, str], _Request] = {}

    def message_class(self, type_name: str) -> type | None:
        """Return the Python class of a type with its type support loaded, None if impossible."""
        package, _, name = type_name.partition("/msg/")
        if not name or "/" in name:
            return None
        try:
            found = getattr(importlib.import_module(f"{package}.msg"), name)
            check_is_valid_msg_type(found)
        except Exception:  # noqa: BLE001 - any broken package makes the type unknown, retried
            importlib.invalidate_caches()
            return None
        result: type = found
        return result

    def resolve(
        self, type_name: str, graph_hash: str, publisher_node: tuple[str, str]
    ) -> ResolvedType | Unresolved:
        """Return everything about a type, or why it has to wait.

        Args:
            graph_hash: Hash that the publisher announces; empty when the graph has none.
            publisher_node: Name and namespace of the publisher's node.
        """
        message_class = self.message_class(type_name)
        if message_class is None:
            return Unresolved.UNKNOWN
        described = self.describe(type_name, graph_hash, publisher_node)
        if described is None:
            return Unresolved.PENDING
        definition, hash_text = described
        origin = "graph" if graph_hash else "computed" if hash_text else ""
        return ResolvedType(type_name, message_class, definition, hash_text, origin)

    def describe(
        self, type_name: str, graph_hash: str, publisher_node: tuple[str, str]
    ) -> tuple[str, str] | None:
        """Return a type's definition and hash, None while its publisher is being asked.

        The type's package need not be installed.
        """
        definition = self._definition_of(type_name) or ""
        computed = hash_of(definition, type_name)
        if not graph_hash:
            return definition, computed
        if computed != graph_hash:
            described = self._description(type_name, graph_hash, publisher_node)
            if described is None:
                return None
            definition = described
        return definition, graph_hash

    def _description(
        self, type_name: str, graph_hash: str, publisher_node: tuple[str, str]
    ) -> str | None:
        """Return the publisher's own definition, empty when it gives none, None while waiting."""
        name, namespace = publisher_node
        if not self._ask or not name or name.startswith("_"):
            return ""
        key = (type_name, graph_hash)
        request = self._requests.get(key)
        if request is None:
            service = f"{namespace.rstrip('/')}/{name}/get_type_description"
            request = self._requests[key] = _Request(self._node, service, self._group)
        text = request.poll(type_name, graph_hash)
        if text is None:
            return None
        request.close()
        # A definition that does not hash to what was announced would decode to wrong values.
        return text if hash_of(text, type_name) == graph_hash else ""

    def forget(self, type_name: str, graph_hash: str) -> None:
        """Ask again the next time."""
        request = self._requests.pop((type_name, graph_hash), None)
        if request is not None:
            request.close()

    def close(self) -> None:
        """Drop all requests."""
        for request in self._requests.values():
            request.close()
        self._requests.clear()


class _Request:
    """One question to one node, answered between two looks."""

    def __init__(self, node: Node, service: str, group: ReentrantCallbackGroup) -> None:
        from type_description_interfaces.srv import GetTypeDescription

        self._node = node
        self._service_type = GetTypeDescription
        self._client: Any = node.create_client(GetTypeDescription, service, callback_group=group)
        self._future: Any = None
        self._deadline = time.monotonic() + DESCRIPTION_TIMEOUT_S
        self._answer: str | None = None

    def poll(self, type_name: str, graph_hash: str) -> str | None:
        if self._answer is not None:
            return self._answer
        if time.monotonic() > self._deadline:
            self._answer = ""
        elif self._future is None:
            if self._client.service_is_ready():
                request = self._service_type.Request()
                request.type_name = type_name
                request.type_hash = graph_hash
                request.include_type_sources = True
                self._future = self._client.call_async(request)
        elif self._future.done():
            response = self._future.result()
            self._answer = ""
            if response is not None and response.successful:
                self._answer = definition_from_sources(type_name, response.type_sources)
        return self._answer

    def close(self) -> None:
        if self._client is not None:
            self._node.destroy_client(self._client)
            self._client = None


def definition_from_sources(type_name: str, sources: Any) -> str:
    """Join the sources of a type description to one text, the main type first.

    Returns:
        Empty when a source is missing or is no ``.msg``.
    """
    texts = {source.type_name: source for source in sources}
    main = texts.pop(type_name, None)
    if main is None or any(s.encoding != "msg" for s in (main, *texts.values())):
        return ""
    parts = [main.raw_file_contents]
    for name, source in texts.items():
        parts.append(f"{_SEPARATOR}\nMSG: {name.replace('/msg/', '/')}\n{source.raw_file_contents}")
    return "\n".join(parts)


def hash_of(definition: str, type_name: str) -> str:
    """Return the RIHS01 hash of a definition, empty when there is none or it cannot be parsed."""
    if not definition:
        return ""
    try:
        return type_hash(parse_definition(definition, type_name))
    except RecordError:
        return ""


def graph_hash(endpoint: Any, capabilities: Capabilities) -> str:
    """Return the hash that a publisher announces in the graph, empty when it announces none."""
    if not capabilities.type_hash:
        return ""
    text = str(getattr(endpoint, "topic_type_hash", ""))
    return text if text.startswith("RIHS01_") else ""
