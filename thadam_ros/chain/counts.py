# SPDX-License-Identifier: Apache-2.0
"""What a chain counted since its WAL began; part of the state, so exact across kills (spec 7.7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from thadam_ros.model.event import Outcome, PipelineResult

_OUTCOMES = tuple(outcome.name.lower() for outcome in Outcome)


@dataclass(slots=True)
class ChainCounts:
    """Counters of one chain.

    Attributes:
        messages: Topic -> outcome name -> messages; a message counts once, by its lowest outcome
            over all datasets.
        rows: Dataset -> rows handed over.
        flagged: ``<dataset>.<FLAG>`` -> rows that carry the flag.
        rejects: ``<code>`` -> rejects.
        frames: Frames processed.
    """

    messages: dict[str, Counter[str]] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    frames: int = 0

    def add_outcomes(
        self, topics: list[str], topic: npt.NDArray[np.int32], outcome: npt.NDArray[np.uint8]
    ) -> None:
        """Count the outcome of every record; ``topic`` indexes ``topics``."""
        width = len(_OUTCOMES)
        table = np.bincount(topic.astype(np.int64) * width + outcome, minlength=len(topics) * width)
        for flat in np.flatnonzero(table).tolist():
            counter = self.messages.setdefault(topics[flat // width], Counter())
            counter[_OUTCOMES[flat % width]] += int(table[flat])

    def add_result(self, dataset: str, result: PipelineResult) -> None:
        """Count the rows, flags and rejects of one dataset."""
        self.rows[dataset] += result.rows.num_rows
        for flag, count in result.flagged.items():
            if count:
                self.flagged[f"{dataset}.{flag}"] += count
        for reject in result.rejects:
            self.rejects[reject.error_code] += 1

    def total(self, outcome: Outcome) -> int:
        """Return the number of messages with this outcome over all topics."""
        name = outcome.name.lower()
        return sum(counter[name] for counter in self.messages.values())

    def copy(self) -> ChainCounts:
        """Return counts that no longer change."""
        return ChainCounts.from_document(self.to_document())

    def to_document(self) -> dict[str, object]:
        """Return a JSON document; :meth:`from_document` takes it back."""
        return {
            "messages": {topic: dict(counter) for topic, counter in self.messages.items()},
            "rows": dict(self.rows),
            "flagged": dict(self.flagged),
            "rejects": dict(self.rejects),
            "frames": self.frames,
        }

    @classmethod
    def from_document(cls, document: dict[str, object]) -> ChainCounts:
        """Rebuild counts from :meth:`to_document`."""

        def counter(value: object) -> Counter[str]:
            if not isinstance(value, dict):
                raise TypeError(f"expected a map of counts, got {type(value).__name__}")
            return Counter({str(key): int(number) for key, number in value.items()})

        messages = document["messages"]
        if not isinstance(messages, dict):
            raise TypeError("messages is not a map")
        return cls(
            messages={str(topic): counter(value) for topic, value in messages.items()},
            rows=counter(document["rows"]),
            flagged=counter(document["flagged"]),
            rejects=counter(document["rejects"]),
            frames=int(str(document["frames"])),
        )
