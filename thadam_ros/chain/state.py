# SPDX-License-Identifier: Apache-2.0
"""The content of a ``state-<cut_no>`` file: everything that can change a row (spec 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from thadam_ros.chain.counts import ChainCounts
from thadam_ros.errors import FormatError

STATE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ChainState:
    """A snapshot at one frame boundary.

    Attributes:
        pipelines: Dataset -> serialized pipeline state (JSON bytes).
        counts: Counters at the boundary.
    """

    pipelines: Mapping[str, bytes] = field(default_factory=dict)
    counts: ChainCounts = field(default_factory=ChainCounts)

    def encode(self) -> bytes:
        """Serialize; equal states give equal bytes."""
        return orjson.dumps(
            {
                "format": STATE_FORMAT,
                "counts": self.counts.to_document(),
                "pipelines": {name: orjson.Fragment(raw) for name, raw in self.pipelines.items()},
            },
            option=orjson.OPT_SORT_KEYS,
        )

    @classmethod
    def decode(cls, raw: bytes) -> ChainState:
        """Parse :meth:`encode`.

        Raises:
            FormatError: If the bytes are no state or of another version.
        """
        try:
            document = orjson.loads(raw)
            version = document["format"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
            raise FormatError("not a chain state") from exc
        if version != STATE_FORMAT:
            raise FormatError(f"chain state format {version}, this software reads {STATE_FORMAT}")
        try:
            return cls(
                pipelines={k: orjson.dumps(v) for k, v in document["pipelines"].items()},
                counts=ChainCounts.from_document(document["counts"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise FormatError(f"chain state is malformed: {exc}") from exc
