# SPDX-License-Identifier: Apache-2.0
"""Canonical event id keys of messages (spec 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from thadam_ros.dataset.convert import time_structure
from thadam_ros.dataset.event_id import canonical_parts
from thadam_ros.dataset.message import Leaf, Shape
from thadam_ros.dataset.plan import KeyPart
from thadam_ros.model.message import RecordGroup
from thadam_ros.transforms.rows import Values

_TAGS = {
    "boolean": b"b",
    "int": b"i",
    "long": b"i",
    "float": b"f",
    "double": b"f",
    "string": b"s",
    "binary": b"x",
}


def canonical_keys(
    parts: Sequence[KeyPart],
    group: RecordGroup,
    columns: Mapping[str, pa.Array],
) -> list[bytes | None]:
    """Return each record's key: its parts' canonical bytes one after the other.

    None where a part is missing or null; a topic without the segment a level names counts as that.
    """
    texts = [_part(part, group, columns) for part in parts]
    return [
        None if any(piece is None for piece in pieces) else b"".join(p for p in pieces if p)
        for pieces in zip(*texts, strict=True)
    ]


def _part(part: KeyPart, group: RecordGroup, columns: Mapping[str, pa.Array]) -> list[bytes | None]:
    if part.source is None:
        assert part.template is not None
        rendered = [part.template.render(declaration) for declaration in group.declarations]
        per_topic = canonical_parts(b"s", pa.array(rendered, pa.string()))
        return [per_topic[index] for index in group.topic.tolist()]
    leaf = part.source.leaf
    if leaf.shape in (Shape.TIME, Shape.DURATION):
        return canonical_parts(b"t", _instants(leaf, columns))
    natural = leaf.natural
    assert natural is not None
    return canonical_parts(_TAGS[natural.name], columns[leaf.pointer])


def _instants(leaf: Leaf, columns: Mapping[str, pa.Array]) -> pa.Array:
    converted = time_structure([columns[pointer] for pointer in leaf.parts])
    assert isinstance(converted.column, Values)
    valid = converted.column.valid
    data = converted.column.data.astype(np.int64, copy=False)
    return pa.array(data, mask=None if valid is None else ~valid)
