# SPDX-License-Identifier: Apache-2.0
"""What was published, written down by the publishing process itself (spec 8.1).

One JSON document a line: ``{"publisher": 0, "stream": ..., "topic": ..., "gid": ...}`` once for
each publisher, ``{"start": ...}`` when the first subscriptions were matched,
``{"p": 0, "n": 1, "t": ..., "m": ..., "b": ..., "x": ...}`` for each message after its ``publish``
returned, ``{"end": ...}`` when everything was said. Each line is written with one system call, so
it survives the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import xxhash


@dataclass(frozen=True, slots=True)
class Publisher:
    """One publisher.

    Attributes:
        gid: Hex, empty when the graph does not tell it.
        topic: Fully resolved name.
    """

    index: int
    stream: str
    topic: str
    type_name: str
    gid: str
    reliable: bool
    latched: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """One published message.

    Attributes:
        number: From 1, per publisher; what the middleware calls publication sequence number.
        sent_ns: Wall clock just before ``publish``.
        stamp_ns: Stamp in its header, 0 when it has none.
        digest: xxh3_64 of the serialized bytes.
    """

    publisher: int
    number: int
    sent_ns: int
    stamp_ns: int
    size: int
    digest: int


@dataclass(slots=True)
class Ledger:
    """A whole ledger.

    Attributes:
        sent: Per publisher, in the order of publishing.
        start_ns: Wall clock when the matched part began, 0 before.
        end_ns: Wall clock after the last message, 0 before.
    """

    publishers: list[Publisher] = field(default_factory=list)
    sent: list[list[Sent]] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0

    @property
    def topics(self) -> list[str]:
        """Topics in the order of their first publisher."""
        return list(dict.fromkeys(publisher.topic for publisher in self.publishers))

    def published(self, topic: str) -> int:
        """Return how many messages were published on ``topic``."""
        return sum(len(self.sent[p.index]) for p in self.publishers if p.topic == topic)

    def total(self) -> int:
        """Return how many messages were published."""
        return sum(len(sent) for sent in self.sent)


def digest(payload: bytes | memoryview) -> int:
    """Return the digest the ledger keeps of a payload."""
    return int(xxhash.xxh3_64_intdigest(payload))


class LedgerWriter:
    """Appends to a ledger file; used by one thread."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def publisher(self, publisher: Publisher) -> None:
        """Declare a publisher before its first message."""
        self._write(
            {
                "publisher": publisher.index,
                "stream": publisher.stream,
                "topic": publisher.topic,
                "type": publisher.type_name,
                "gid": publisher.gid,
                "reliable": publisher.reliable,
                "latched": publisher.latched,
            }
        )

    def sent(self, sent: Sent) -> None:
        """Note a message after it was published."""
        self._write(
            {
                "p": sent.publisher,
                "n": sent.number,
                "t": sent.sent_ns,
                "m": sent.stamp_ns,
                "b": sent.size,
                "x": sent.digest,
            }
        )

    def start(self, now_ns: int) -> None:
        """Note that all subscriptions waited for are matched."""
        self._write({"start": now_ns})

    def end(self, now_ns: int) -> None:
        """Note that nothing follows."""
        self._write({"end": now_ns})

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, document: dict[str, object]) -> None:
        line = orjson.dumps(document) + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]


def read_ledger(path: str) -> Ledger:
    """Read a ledger; a line still being written is left out.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If a whole line is no ledger line.
    """
    ledger = Ledger()
    for document in _documents(path):
        if "p" in document:
            index = int(document["p"])
            ledger.sent[index].append(
                Sent(index, document["n"], document["t"], document["m"], document["b"],
                     document["x"])
            )  # fmt: skip
        elif "publisher" in document:
            ledger.publishers.append(
                Publisher(
                    int(document["publisher"]),
                    document["stream"],
                    document["topic"],
                    document["type"],
                    document["gid"],
                    bool(document["reliable"]),
                    bool(document["latched"]),
                )
            )
            ledger.sent.append([])
        elif "start" in document:
            ledger.start_ns = int(document["start"])
        elif "end" in document:
            ledger.end_ns = int(document["end"])
        else:
            raise ValueError(f"{path}: not a ledger line: {document}")
    return ledger


def _documents(path: str) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield orjson.loads(line)
