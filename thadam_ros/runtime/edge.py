# SPDX-License-Identifier: Apache-2.0
"""A whole configuration at work without ROS: one WAL, one thread per chain (spec 1.4)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType

from thadam_ros.chain.cursor import read_cursor
from thadam_ros.errors import FormatError
from thadam_ros.model.clock import Clock, SystemClock
from thadam_ros.model.position import Position
from thadam_ros.model.states import ComponentStatistics, Kind
from thadam_ros.runtime.chain_runner import ChainRunner, StepResult
from thadam_ros.runtime.clock_state import clock_synced_probe
from thadam_ros.runtime.loading import LoadedConfig, save_lock
from thadam_ros.runtime.retention import WalRetention
from thadam_ros.runtime.state_tracker import StateTracker
from thadam_ros.runtime.status_files import write_status
from thadam_ros.runtime.wal_state import wal_details, wal_state
from thadam_ros.storage.atomic import replace_durably
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem
from thadam_ros.wal.writer import WalWriter

#: An idle chain looks at the durable mark this often even if nobody wakes it.
POLL_S = 0.1


def chain_cursors(data_dir: str, fs: FileSystem) -> list[Position]:
    """Return the cursors of all chains that ever stamped a cut.

    A cursor that is damaged or of another version is passed over: its own chain refuses it and
    says so, capture goes on.

    Raises:
        OSError: From the filesystem.
    """
    root = os.path.join(data_dir, "chains")
    if not fs.exists(root):
        return []
    positions = []
    for name in fs.listdir(root):
        # A file beside the chains' folders is none of ours.
        with contextlib.suppress(FormatError, NotADirectoryError):
            cursor = read_cursor(os.path.join(root, name), fs)
            if cursor is not None:
                positions.append(cursor.position)
    return positions


def open_wal(
    loaded: LoadedConfig,
    *,
    fs: FileSystem,
    clock: Clock,
    on_durable: Callable[[], None] | None = None,
) -> WalWriter:
    """Open the configuration's WAL for writing.

    Raises:
        LockHeldError, FormatError, OSError: See :meth:`WalWriter.open`.
    """
    edge = loaded.config.edge
    return WalWriter.open(
        os.path.join(edge.data_dir, "wal"),
        loaded.config.wal,
        fs=fs,
        clock=clock,
        clock_synced=clock_synced_probe(edge.clock),
        on_durable=on_durable,
        cursors=chain_cursors(edge.data_dir, fs),
    )


def keep_wal(
    loaded: LoadedConfig,
    writer: WalWriter,
    *,
    fs: FileSystem,
    report: Callable[[str], object] = lambda text: None,
) -> WalRetention:
    """Start the retention of the configuration's WAL; close it before the writer.

    Args:
        report: Called with what a person should know, one sentence each.
    """
    retention = WalRetention(loaded, writer, fs=fs, report=report)
    retention.start()
    return retention


def save_merged_config(loaded: LoadedConfig, fs: FileSystem) -> str:
    """Write the configuration as loaded to ``config/<hash>.yaml``, and its lock file.

    Returns:
        The path of the merged configuration.

    Raises:
        OSError: From the filesystem.
    """
    config = loaded.config
    directory = os.path.join(config.edge.data_dir, "config")
    fs.makedirs(directory)
    path = os.path.join(directory, f"{config.config_hash}.yaml")
    if not fs.exists(path):
        replace_durably(fs, path, loaded.merged_yaml.encode())
    save_lock(loaded, fs)
    return path


class Edge:
    """The WAL writer and all chains of a configuration; a context manager.

    Args:
        loaded: The configuration.
        sinks: Names of the sinks to run; all when None. The others keep their segments.
        report: Called with what a person should know, one sentence each, from any thread.

    Attributes:
        wal, retention: The writer and its retention, None while not started.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        sinks: tuple[str, ...] | None = None,
        report: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._loaded = loaded
        self._fs = fs or OsFileSystem()
        self._clock = clock or SystemClock()
        names = sinks if sinks is not None else tuple(loaded.config.sinks)
        self.fatal: dict[str, BaseException] = {}
        self.runners = {name: self._runner(name) for name in names}
        self._wakes = {name: threading.Event() for name in names}
        self._threads: list[threading.Thread] = []
        self._stop = False
        self._report = report
        self._tracker = StateTracker(self._clock)
        self.wal: WalWriter | None = None
        self.retention: WalRetention | None = None

    def _runner(self, name: str) -> ChainRunner:
        def failed(exc: BaseException) -> None:
            self.fatal[name] = exc

        return ChainRunner(
            self._loaded.config.sinks[name],
            self._loaded,
            fs=self._fs,
            clock=self._clock,
            on_fatal=failed,
        )

    def __enter__(self) -> Edge:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain_timeout_s=0.0 if exc_type is not None else 30.0)

    def start(self) -> None:
        """Open the WAL and every chain, then start stepping.

        Raises:
            FatalError, OSError: What could not be opened; nothing keeps running then.
        """
        save_merged_config(self._loaded, self._fs)
        self.wal = open_wal(self._loaded, fs=self._fs, clock=self._clock, on_durable=self._wake_all)
        try:
            for name, runner in self.runners.items():
                runner.open(self._wakes[name].set)
        except BaseException:
            self.close(drain_timeout_s=0.0)
            raise
        self.retention = keep_wal(self._loaded, self.wal, fs=self._fs, report=self._report)
        for name in self.runners:
            thread = threading.Thread(target=self._run, args=(name,), name=f"chain-{name}")
            self._threads.append(thread)
            thread.start()

    def _run(self, name: str) -> None:
        runner, wake = self.runners[name], self._wakes[name]
        while not self._stop:
            if runner.step() is not StepResult.PROGRESS:
                wake.wait(POLL_S)
                wake.clear()

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake.set()

    def close(self, drain_timeout_s: float) -> bool:
        """Make everything durable, drain the chains in turn, stop. May be called again.

        Returns:
            True when every chain delivered everything.
        """
        if self.retention is not None:
            self.retention.close()
        if self.wal is not None:
            self.wal.close()
            self.wal = None
        self._stop = True
        self._wake_all()
        for thread in self._threads:
            thread.join()
        self._threads = []
        results = [runner.close(drain_timeout_s) for runner in self.runners.values()]
        return all(results)

    def statistics(self) -> list[ComponentStatistics]:
        """Return the statistics of the WAL, while it is open, and of every chain."""
        found = [s for runner in self.runners.values() for s in runner.statistics()]
        if self.wal is not None and self.retention is not None:
            found.insert(0, self._wal_statistics(self.wal, self.retention))
        return found

    def _wal_statistics(self, wal: WalWriter, retention: WalRetention) -> ComponentStatistics:
        statistics, retained = wal.statistics(), retention.statistics()
        return ComponentStatistics(
            name="wal",
            kind=Kind.WAL,
            state=wal_state(self._tracker, statistics, retained),
            received=statistics.records + statistics.lost_records,
            delivered=statistics.records,
            lost=statistics.lost_records,
            refused=statistics.refused_records,
            details=wal_details(statistics, retained),
        )

    def write_status(self) -> None:
        """Rewrite the status files of the WAL and of every chain.

        Raises:
            OSError: From the filesystem.
        """
        directory = os.path.join(self._loaded.config.edge.data_dir, "status")
        for statistics in self.statistics():
            write_status(directory, statistics, self._clock)
