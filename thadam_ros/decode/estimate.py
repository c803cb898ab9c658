# SPDX-License-Identifier: Apache-2.0
"""How long ``rmw_fastrtps`` believes a message to be.

``serialize_message`` of rclpy and rclcpp returns a buffer of estimated size. The estimate pads an
empty sequence of 8-byte elements (Fast CDR does not) and counts one wide character too many per
wide string, so bags written by scripts hold payloads that end in a few bytes of uninitialized
memory. Those are no surplus: nothing is wrong with such a message. Payloads that travelled over a
topic have their true length.
"""

from __future__ import annotations

import struct

from thadam_ros.decode import wire
from thadam_ros.decode.schema import (
    FieldType,
    ListType,
    MessageSchema,
    PrimitiveType,
    StringType,
    StructRef,
)


def may_be_overestimated(schema: MessageSchema) -> bool:
    """Tell whether the estimate can exceed the true length at all."""
    for definition in schema.structs.values():
        for field in definition.fields:
            kind = field.type
            inner = kind.element if isinstance(kind, ListType) else kind
            if isinstance(inner, StringType) and inner.wide:
                return True
            sequence = isinstance(kind, ListType) and kind.length is None
            if sequence and isinstance(inner, PrimitiveType) and inner.size == 8:
                return True
    return False


def is_estimate(schema: MessageSchema, payload: bytes, little: bool) -> bool:
    """Tell whether a payload, longer than its message, is as long as the estimate.

    Args:
        schema: The definition.
        payload: A payload whose structure is sound.
        little: Its endianness.
    """
    estimator = _Estimator(schema, payload[wire.HEADER_BYTES :], little)
    estimator.measure(StructRef(schema.type_name))
    beyond = len(payload) - wire.HEADER_BYTES - estimator.estimate
    return beyond == 0 or (0 < beyond <= wire.PADDING_BYTES_MAX and len(payload) % 4 == 0)


class _Estimator:
    """Walks one body with two cursors: where the message is, and where it is believed to be."""

    def __init__(self, schema: MessageSchema, body: bytes, little: bool) -> None:
        self._structs = schema.structs
        self._body = body
        self._word = struct.Struct("<I" if little else ">I").unpack_from
        self._pos = 0
        self.estimate = 0

    def measure(self, kind: FieldType) -> None:
        """Move both cursors behind a value."""
        if isinstance(kind, PrimitiveType):
            self._numbers(kind.size, 1)
        elif isinstance(kind, StringType):
            length = self._length()
            self._numbers(4 if kind.wide else 1, length)
            self.estimate += 4 if kind.wide else 0
        elif isinstance(kind, StructRef):
            fields = self._structs[kind.name].fields
            if not fields:
                self._numbers(1, 1)
            for field in fields:
                self.measure(field.type)
        else:
            self._list(kind)

    def _list(self, kind: ListType) -> None:
        count = self._length() if kind.length is None else kind.length
        if isinstance(kind.element, PrimitiveType):
            self._numbers(kind.element.size, count)
        else:
            for _ in range(count):
                self.measure(kind.element)

    def _numbers(self, size: int, count: int) -> None:
        self.estimate += -self.estimate % size + size * count
        if count:
            self._pos += -self._pos % size + size * count

    def _length(self) -> int:
        self._numbers(4, 1)
        length: int = self._word(self._body, self._pos - 4)[0]
        return length
