# SPDX-License-Identifier: Apache-2.0
"""A bag as a log, so that any recording can be pushed through the chains offline (spec 2)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from thadam_ros.config.schema import WalConfig
from thadam_ros.errors import FatalError, StorageFullError
from thadam_ros.files.bag_reader import BagError, BagMessage, BagReader
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import SourceBatch
from thadam_ros.model.position import Position
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.budget import UNLIMITED
from thadam_ros.wal.layout import list_segments
from thadam_ros.wal.mark import load_mark
from thadam_ros.wal.writer import WalWriter

RECORDS_MAX: Final = 10_000
#: A commit of one frame that takes longer than this is a disk that does not work.
_COMMIT_TIMEOUT_S: Final = 60.0
_RECORD_OVERHEAD_BYTES: Final = 40
_FRAME_MAX: Final = (1 << 63) - 1


class LogTimeClock(SystemClock):
    """Says what the recording says, so that lag and age speak of the data and not of the import.

    When the recorder booted is not in a bag: boot time is 0, the boot id zeros.
    """

    def __init__(self) -> None:
        self.now_ns = 0

    def time_ns(self) -> int:
        return self.now_ns

    def boottime_ns(self) -> int:
        return 0

    def boot_id(self) -> bytes:
        return bytes(16)


@dataclass(slots=True)
class ImportResult:
    """What an import made.

    Attributes:
        bytes: Of payloads.
        epoch, first, last: Of the new frames; None while there is none.
        topics: Topic -> messages.
        skipped: Topic -> messages that are not CDR.
        problem: Why the bag could not be read to its end, or empty.
    """

    messages: int = 0
    bytes: int = 0
    epoch: int | None = None
    first: Position | None = None
    last: Position | None = None
    topics: Counter[str] = field(default_factory=Counter)
    skipped: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


def import_bag(
    directory: str,
    bag: BagReader,
    *,
    source_id: str,
    config: WalConfig,
    fs: FileSystem,
    clock_synced: bool = False,
    append: bool = False,
    cursors: Sequence[Position] = (),
    progress: Callable[[ImportResult], None] = lambda _: None,
) -> ImportResult:
    """Write the messages of ``bag`` to the log in ``directory``, in an epoch of their own.

    One batch is one frame, made durable before the next is read: memory does not grow, and the
    same bag gives the same frames. Log time becomes the ingest time.

    Args:
        append: Go on behind frames that are there already.
        cursors: Of chains that may have read an earlier log in this directory.
        progress: Called after every frame.

    Raises:
        FatalError: The log has frames and ``append`` is False, or nothing of the bag can be read;
            nothing was changed then.
        LockHeldError, FormatError, StorageFullError, OSError: As :meth:`WalWriter.open`, or from
            a commit; what was imported before stays.
    """
    if has_frames(fs, directory) and not append:
        raise FatalError(
            f"{directory} has frames already; import into a new data_dir, or say --append to go "
            "on behind them in an epoch of its own"
        )
    result = ImportResult(skipped=bag.skipped)
    messages = bag.messages()
    # The first message before anything is written: a file that is no bag leaves no trace.
    first = next(messages, None)
    if first is None:
        return result
    clock = LogTimeClock()
    writer = WalWriter.open(
        directory,
        # The budget binds capture; who imports a bag asked for all of it.
        replace(config, budget_bytes=UNLIMITED, min_free_bytes=0),
        fs=fs,
        clock=clock,
        clock_synced=lambda: clock_synced,
        cursors=[*cursors, *_beyond_end(fs, directory)],
    )
    try:
        result.epoch = writer.epoch
        begin = Position(writer.ordinal, writer.durable.frame + 1)
        readable = _until_unreadable(itertools.chain((first,), messages), result)
        for topics, size in append_messages(
            writer, readable, source_id, bytes_max=config.commit_bytes, clock=clock
        ):
            result.messages += topics.total()
            result.bytes += size
            result.topics += topics
            result.first, result.last = begin, writer.durable
            progress(result)
    finally:
        writer.close()
    return result


def append_messages(
    writer: WalWriter,
    messages: Iterable[BagMessage],
    source_id: str,
    *,
    records_max: int = RECORDS_MAX,
    bytes_max: int,
    clock: LogTimeClock | None = None,
) -> Iterator[tuple[Counter[str], int]]:
    """Append messages batch by batch; yield each one's counts by topic and its payload bytes.

    Args:
        bytes_max: Of a batch with its record headers; ``commit_bytes`` gives one frame a batch.
        clock: The writer's clock, set to the log time of each batch's first message.

    Raises:
        StorageFullError: Disk or budget is exhausted.
        FatalError: The writer failed.
    """
    batch, topics, size, room = SourceBatch(source_id), Counter[str](), 0, bytes_max
    for message in messages:
        needed = len(message.payload) + _RECORD_OVERHEAD_BYTES
        if len(batch) and (needed > room or len(batch) >= records_max):
            _commit(writer, batch, clock)
            yield topics, size
            batch, topics, size, room = SourceBatch(source_id), Counter(), 0, bytes_max
        batch.topic_refs.append(writer.declare_topic(message.declaration))
        batch.ingest_times_ns.append(message.time_ns)
        batch.payloads.append(message.payload)
        batch.source_timestamps_ns.append(message.source_timestamp_ns)
        batch.sequences.append(message.sequence)
        batch.publisher_refs.append(
            writer.declare_publisher(message.publisher) if message.publisher else 0
        )
        topics[message.declaration.name] += 1
        size += len(message.payload)
        room -= needed
    if len(batch):
        _commit(writer, batch, clock)
        yield topics, size


def _commit(writer: WalWriter, batch: SourceBatch, clock: LogTimeClock | None) -> None:
    if clock is not None:
        clock.now_ns = batch.ingest_times_ns[0]
    if writer.append(batch) and writer.flush(_COMMIT_TIMEOUT_S):
        return
    statistics = writer.statistics()
    said = statistics.first_error or statistics.last_error or "the batch was refused"
    text = f"the log ends at {writer.durable}: {said}"
    if statistics.storage_full or not statistics.failed:
        raise StorageFullError(text)
    raise FatalError(text)


def _until_unreadable(messages: Iterator[BagMessage], result: ImportResult) -> Iterator[BagMessage]:
    """Yield what can be read; then ``problem`` says why there is no more."""
    try:
        yield from messages
    except BagError as exc:
        result.problem = str(exc)


def has_frames(fs: FileSystem, directory: str) -> bool:
    """Tell whether a log was ever written here.

    Raises:
        FormatError: Files of two logs, or a mark of another version.
        OSError: From the filesystem.
    """
    mark = load_mark(fs, directory)
    used = mark is not None and mark.position > Position(0, -1)
    return used or bool(list_segments(fs, directory))


def _beyond_end(fs: FileSystem, directory: str) -> list[Position]:
    """Return a position beyond every frame: with it the writer begins a new epoch."""
    if not has_frames(fs, directory):
        return []
    ordinals = [name.ordinal for name in list_segments(fs, directory)]
    mark = load_mark(fs, directory)
    if mark is not None:
        ordinals.append(mark.position.ordinal)
    return [Position(max(ordinals), _FRAME_MAX)]
