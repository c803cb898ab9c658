# SPDX-License-Identifier: Apache-2.0
"""Retention of a configuration's WAL: a thread beside its writer that deletes what may go."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from thadam_ros.chain.cursor import read_cursor
from thadam_ros.errors import FormatError
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.runtime.loading import LoadedConfig
from thadam_ros.runtime.redact import redact
from thadam_ros.storage.filesystem import FileSystem
from thadam_ros.wal.retention import Retention, RetentionStatistics
from thadam_ros.wal.writer import WalWriter

#: A pass is made this often, and when the writer is short of space.
PERIOD_S: Final = 1.0
#: Pause after a pass: the writer may ask after each of its commits, also while nothing can go.
_PAUSE_S: Final = 0.02
_FRUITLESS_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class RemovedSink:
    """A sink that is no longer configured, and what of the log it had not settled.

    Attributes:
        after: Its last stamped position.
        through: Last durable position when it was found.
    """

    name: str
    after: Position
    through: Position

    def __str__(self) -> str:
        return (
            f"sink {self.name!r} is not configured any more and no longer keeps WAL segments; "
            f"frames after {self.after} up to {self.through} were not delivered to it"
        )


@dataclass(frozen=True, slots=True)
class WalRetentionStatistics:
    """Snapshot.

    Attributes:
        log: What the passes did.
        removed_sinks: Found at the first pass.
        errors: Passes that raised; the next one tries again.
        last_error: Of the last pass, empty when it worked.
    """

    log: RetentionStatistics
    removed_sinks: tuple[RemovedSink, ...]
    errors: int
    last_error: str


class WalRetention:
    """Keeps one WAL inside its budget. Runs in the process that owns the writer.

    Args:
        loaded: Names the sinks whose cursors count, wherever their chains run.
        report: Called once with a sentence for each removed sink that was not done.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        writer: WalWriter,
        *,
        fs: FileSystem,
        report: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._sinks = dict(loaded.config.sinks)
        self._chains = os.path.join(loaded.config.edge.data_dir, "chains")
        self._writer = writer
        self._fs = fs
        self._report = report
        self._retention = Retention(
            os.path.join(loaded.config.edge.data_dir, "wal"),
            writer.budget,
            fs=fs,
            log=writer,
            read_cursors=self.cursors,
        )
        self._removed: tuple[RemovedSink, ...] | None = None
        self._errors = 0
        self._last_error = ""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wal-retention", daemon=False)

    def start(self) -> None:
        """Begin; the first pass is made at once."""
        self._writer.on_pressed = self._wake.set
        self._thread.start()

    def close(self) -> None:
        """End after the pass at hand; may be called again. Close the writer afterwards."""
        self._writer.on_pressed = lambda: None
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def statistics(self) -> WalRetentionStatistics:
        """Return a snapshot."""
        return WalRetentionStatistics(
            self._retention.statistics(), self._removed or (), self._errors, self._last_error
        )

    def run_once(self) -> bool:
        """Make one pass, whatever it raises is counted; True when another has more to do."""
        try:
            if self._removed is None:
                self._removed = tuple(self._find_removed())
                for sink in self._removed:
                    self._report(str(sink))
            more = self._retention.run()
        except BaseException as exc:  # noqa: BLE001 - the component's edge (spec 1.6)
            self._errors += 1
            self._last_error = redact(exc)
            return False
        self._last_error = ""
        return more

    def cursors(self, durable: bool) -> dict[str, Position]:
        """Return the cursor of every configured sink.

        A sink that was never started keeps everything, unless it is to begin with what is new;
        so does one whose cursor cannot be read: nobody knows what it still needs.

        Args:
            durable: Make what is returned durable: a cursor that a power cut could take back
                must not cost a segment.

        Raises:
            OSError: From the filesystem.
        """
        found: dict[str, Position] = {}
        for name, sink in self._sinks.items():
            directory = os.path.join(self._chains, name)
            try:
                cursor = read_cursor(directory, self._fs)
            except FormatError:
                found[name] = BEFORE_ALL
                continue
            if cursor is not None:
                found[name] = cursor.position
                if durable:
                    # What the rename made visible is durable once its folder is synced.
                    self._fs.fsync_dir(directory)
            elif sink.start == "earliest":
                found[name] = BEFORE_ALL
        return found

    def _find_removed(self) -> Iterable[RemovedSink]:
        if not self._fs.exists(self._chains):
            return
        durable = self._writer.durable
        for name in self._fs.listdir(self._chains):
            if name in self._sinks:
                continue
            # A damaged cursor or a file beside the folders: there is nothing to say about it.
            with contextlib.suppress(FormatError, NotADirectoryError):
                cursor = read_cursor(os.path.join(self._chains, name), self._fs)
                if cursor is not None and cursor.position < durable:
                    yield RemovedSink(name, cursor.position, durable)

    def _run(self) -> None:
        while not self._stop.is_set():
            before = self._retention.statistics().deleted_segments
            more = self.run_once()
            fruitless = self._retention.statistics().deleted_segments == before
            if self._stop.wait(_FRUITLESS_PAUSE_S if fruitless else _PAUSE_S):
                return
            if not more:
                self._wake.wait(PERIOD_S)
            self._wake.clear()
