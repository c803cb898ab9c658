# SPDX-License-Identifier: Apache-2.0
"""What the write-ahead log holds of the messages in a ledger.

A record is recognised by publisher gid and publication sequence number; where a distribution tells
neither, by its bytes. Its bytes are compared in any case, up to the padding that RTPS adds to make
a payload's length a multiple of four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from thadam_ros.model.message import Frame
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.node.demo.ledger import Ledger, Sent, digest
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.reader import WalReader

_GID_BYTES = 16
#: Bytes that RTPS may add behind a payload.
PADDING_MAX = 3
_READ_FRAMES = 64
_READ_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Arrived:
    """One record of the log that a ledger knows.

    Attributes:
        publisher, number: The message, as in the ledger.
        position: The frame that holds it.
        index: Record index inside the frame.
        is_numbered: The record carries its publication sequence number.
    """

    publisher: int
    number: int
    ingest_ns: int
    position: Position
    index: int
    is_numbered: bool


@dataclass(slots=True)
class WalContents:
    """A whole log, held against a ledger.

    Attributes:
        arrived: In the order of the log.
        again: Topic -> records whose message is in the log before.
        unknown: Topic -> records that the ledger does not know.
        altered: Topic -> records whose bytes differ from what was published.
        anonymous: Topic -> records that do not name their publisher.
        missing: Per publisher, numbers that are not in the log.
        last: Position of the last record frame.
    """

    arrived: list[Arrived] = field(default_factory=list)
    again: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    altered: Counter[str] = field(default_factory=Counter)
    anonymous: Counter[str] = field(default_factory=Counter)
    missing: list[list[int]] = field(default_factory=list)
    last: Position = BEFORE_ALL
    frames: int = 0
    damaged_ranges: int = 0
    gaps: int = 0


def read_wal(directory: str, ledger: Ledger, fs: FileSystem) -> WalContents:
    """Read everything durable and recognise it.

    Raises:
        FormatError, OSError: From the reader.
    """
    contents = WalContents()
    recognise = _Recogniser(ledger)
    reader = WalReader(directory, fs=fs)
    try:
        while frames := reader.read(_READ_FRAMES, _READ_BYTES):
            for frame in frames:
                contents.frames += 1
                contents.last = Position(frame.ordinal, frame.position)
                _add_frame(contents, recognise, frame)
        contents.damaged_ranges = len(reader.damage)
        contents.gaps = len(reader.gaps)
    finally:
        reader.close()
    seen = recognise.seen
    for publisher in ledger.publishers:
        numbers = (sent.number for sent in ledger.sent[publisher.index])
        contents.missing.append([n for n in numbers if (publisher.index, n) not in seen])
    return contents


def _add_frame(contents: WalContents, recognise: _Recogniser, frame: Frame) -> None:
    position = Position(frame.ordinal, frame.position)
    for index, topic, gid, number, ingest_ns, payload in _records(frame):
        sent = recognise.find(topic, gid, number, payload, ingest_ns)
        if sent is None:
            contents.unknown[topic] += 1
            continue
        if not gid:
            contents.anonymous[topic] += 1
        if not is_same(payload, sent):
            contents.altered[topic] += 1
        key = (sent.publisher, sent.number)
        if key in recognise.seen:
            contents.again[topic] += 1
        recognise.seen.add(key)
        contents.arrived.append(
            Arrived(sent.publisher, sent.number, ingest_ns, position, index, number > 0)
        )


def _records(frame: Frame) -> Iterator[tuple[int, str, str, int, int, memoryview]]:
    """Yield (index, topic, gid or empty, number or 0, ingest time, payload)."""
    payload: memoryview = frame.payload.data
    offsets = frame.offsets.tolist()
    columns = zip(
        frame.topic_refs.tolist(),
        frame.publisher_refs.tolist(),
        frame.sequences.tolist(),
        frame.ingest_times_ns.tolist(),
        strict=True,
    )
    for index, (topic, publisher, sequence, ingest_ns) in enumerate(columns):
        gid = frame.publishers[publisher][:_GID_BYTES].hex() if publisher else ""
        # On disk 0 means unknown and n + 1 means n.
        yield (
            index,
            frame.topics[topic].name,
            gid,
            sequence - 1 if sequence else 0,
            ingest_ns,
            payload[offsets[index] : offsets[index + 1]],
        )


def is_same(payload: memoryview, sent: Sent) -> bool:
    """Tell whether a record holds the bytes that were published, RTPS padding aside."""
    padding = len(payload) - sent.size
    return 0 <= padding <= PADDING_MAX and digest(payload[: sent.size]) == sent.digest


class _Recogniser:
    """Finds the ledger's message for a record."""

    def __init__(self, ledger: Ledger) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._by_gid = {
            (p.topic, p.gid): {sent.number: sent for sent in ledger.sent[p.index]}
            for p in ledger.publishers
            if p.gid
        }
        self._by_bytes: dict[tuple[str, int], list[Sent]] = {}
        for publisher in ledger.publishers:
            for sent in ledger.sent[publisher.index]:
                self._by_bytes.setdefault((publisher.topic, sent.digest), []).append(sent)

    def find(
        self, topic: str, gid: str, number: int, payload: memoryview, ingest_ns: int
    ) -> Sent | None:
        """Return the message, None when the ledger has none like it."""
        if gid and number:
            numbers = self._by_gid.get((topic, gid))
            if numbers is not None:
                return numbers.get(number)
        for padding in range(PADDING_MAX + 1):
            published = payload[: len(payload) - padding]
            alike = self._by_bytes.get((topic, digest(published)))
            if alike:
                return self._likeliest(alike, ingest_ns)
        return None

    def _likeliest(self, alike: list[Sent], ingest_ns: int) -> Sent:
        """Of equal messages the newest that was sent and not seen; else the last came again."""
        fresh = [sent for sent in alike if (sent.publisher, sent.number) not in self.seen]
        sent_before = [sent for sent in fresh if sent.sent_ns <= ingest_ns]
        return (sent_before or fresh or alike)[-1]
