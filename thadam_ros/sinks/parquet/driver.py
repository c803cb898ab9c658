# SPDX-License-Identifier: Apache-2.0
"""The ``parquet`` driver: seal, stamp, deliver; the format is the docstring of the package."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import xxhash

from thadam_ros.config.schema import SinkConfig
from thadam_ros.errors import FatalError, StorageFullError, TransientError
from thadam_ros.model.clock import Clock
from thadam_ros.model.event import Reject
from thadam_ros.sinks.contract import PublishUnit
from thadam_ros.sinks.parquet.delivery import Delivery, Step
from thadam_ros.sinks.parquet.encoder import EncodedFile, ParquetEncoder
from thadam_ros.sinks.parquet.layout import (
    SealedFile,
    check_prefix,
    file_name,
    local_folder,
    parse_sealed_name,
)
from thadam_ros.sinks.parquet.statistics import ParquetStatistics
from thadam_ros.storage.atomic import TEMP_SUFFIX
from thadam_ros.storage.filesystem import FileSystem

SEALED_FOLDER = "sealed"
TARGET_MARKER = "target"

#: Bytes written between two looks at the abort flag.
_WRITE_STEP_BYTES = 8 << 20

#: Names of voided files that statistics carry at most.
_VOIDED_NAMES_MAX = 100

#: Errors of the chain's own folder that no waiting cures.
_OWN_FOLDER_FATAL = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


class ParquetDriver:
    """A :class:`~thadam_ros.sinks.contract.SinkDriver` that writes Hive-partitioned Parquet.

    Args:
        config: The sink; ``url`` is a local folder or a ``file://`` url.
        chain_dir: The chain's own folder, held by its lock.
        epoch: ``_wal_epoch`` of the WAL, part of every file name.
        schemas: Dataset -> columns with field ids.

    Raises:
        FatalError: The url is not a local folder, or ``file_prefix`` cannot name a file.
    """

    def __init__(
        self,
        config: SinkConfig,
        chain_dir: str,
        epoch: int,
        schemas: Mapping[str, pa.Schema],
        *,
        fs: FileSystem,
        clock: Clock,
    ) -> None:
        self._config = config
        self._prefix = check_prefix(config.file_prefix, config.name)
        self._epoch = epoch
        self._fs = fs
        self._clock = clock
        self._sealed_dir = os.path.join(chain_dir, SEALED_FOLDER)
        self._delivery = Delivery(
            config.name,
            self._sealed_dir,
            local_folder(config.url, config.name),
            os.path.join(chain_dir, TARGET_MARKER),
            fs=fs,
        )
        self._encoders = {
            dataset: ParquetEncoder(
                schema,
                rows_max=config.rotation.max_rows,
                bytes_max=config.rotation.max_bytes,
            )
            for dataset, schema in schemas.items()
        }
        self._newest_first = config.delivery.order == "live_first"
        self._aborted = threading.Event()
        # A file moves from owner to owner, into the new one first, so that an interruption at any
        # step leaves it with one or with both, never with none (spec 5.3). Files in the order of
        # their cuts.
        self._sealing: list[SealedFile] = []
        self._unstamped: list[SealedFile] = []
        self._waiting: deque[SealedFile] = deque()
        self._current: SealedFile | None = None
        self._waiting_bytes = 0
        self._next_delivery_ns = 0
        self._statistics = ParquetStatistics(budget_bytes=config.delivery.budget_bytes)

    def open(self, stamped_cut: int) -> None:
        """Sweep temps, void files of cuts above ``stamped_cut``, queue the rest.

        The visible folder is not touched: it may be away without stopping capture or sealing.

        Raises:
            TransientError: ``sealed/`` cannot be read for now.
            FatalError: ``sealed/`` cannot be made or read.
        """
        self._aborted.clear()
        self._delivery.reset()
        self._current = None
        try:
            self._fs.makedirs(self._sealed_dir)
            # Makes the cursor's rename durable as well: a process that was killed right after it
            # leaves it in the page cache, and what is delivered now must stay stamped.
            self._fs.fsync_dir(os.path.dirname(self._sealed_dir))
            self._recover(stamped_cut)
        except OSError as exc:
            raise self._own_folder_error(exc) from exc

    def publish(self, unit: PublishUnit) -> tuple[Reject, ...]:
        """Seal the unit; a call that raises leaves none of its files behind.

        A unit whose bytes are already sealed for the same cut (the call before was interrupted
        after its last step) is not written again.

        Raises:
            StorageFullError: The chain's disk is full, or what waits for delivery is at
                ``delivery.budget``.
            TransientError: Any other passing error of the chain's disk, or ``abort``.
            FatalError: The chain's folder cannot be written.
            ValueError: A dataset without a schema, or rows with other columns.
        """
        self._check_abort()
        self._check_budget()
        encoder = self._encoders.get(unit.key.dataset)
        if encoder is None:
            raise ValueError(f"sink {self._config.name} has no dataset {unit.key.dataset!r}")
        try:
            self._discard(self._sealing)
            siblings = [
                file
                for file in self._unstamped
                if file.cut_no == unit.cut_no and file.key == unit.key
            ]
            rows = 0
            try:
                for encoded in encoder.encode(unit.rows, unit.lineage):
                    rows += self._seal(unit, encoded, siblings)
                if self._sealing:
                    self._fs.fsync_dir(self._sealed_dir)
            except BaseException:
                self._discard(self._sealing)
                raise
        except OSError as exc:
            raise self._own_folder_error(exc) from exc
        self._keep_sealed(rows)
        return ()

    def stamped(self, cut_no: int) -> None:
        """Queue the files of cuts up to ``cut_no`` for delivery."""
        ready = [file for file in self._unstamped if file.cut_no <= cut_no]
        self._waiting.extend(ready)
        self._waiting_bytes += sum(file.size for file in ready)
        self._unstamped = [file for file in self._unstamped if file.cut_no > cut_no]

    def work(self) -> bool:
        """Take one file one step towards the visible folder; a copy moves 8 MiB a step.

        Under ``delivery.rate_limit`` this returns False until the rate allows the next file.

        Raises:
            TransientError: The visible folder cannot be written; ``StorageFullError`` when full.
            FatalError: A sealed file was removed by somebody.
        """
        self._check_abort()
        file = self._current
        if file is None:
            if not self._waiting or self._clock.monotonic_ns() < self._next_delivery_ns:
                return False
            file = self._current = self._waiting[-1 if self._newest_first else 0]
            if self._newest_first:
                self._waiting.pop()
            else:
                self._waiting.popleft()
        try:
            outcome = self._delivery.step(file)
        except FatalError:
            # Gone for good: the next open would not find it either.
            self._leave_waiting(file)
            raise
        except TransientError as exc:
            if self._newest_first:
                self._waiting.append(file)
            else:
                self._waiting.appendleft(file)
            self._current = None
            self._count_failure(str(exc))
            raise
        if outcome is not Step.COPYING:
            self._leave_waiting(file)
            self._count_delivery(file, outcome)
        return self._current is not None or bool(self._waiting)

    def abort(self) -> None:
        """Make the running call and later ones raise until the next ``open``."""
        self._aborted.set()

    def close(self) -> None:
        """Give an unfinished copy up; may be called again."""
        self._delivery.reset()

    def statistics(self) -> ParquetStatistics:
        """Return a snapshot; may be called from any thread."""
        unstamped = self._unstamped
        return replace(
            self._statistics,
            unstamped_files=len(unstamped),
            unstamped_bytes=sum(file.size for file in unstamped),
            waiting_files=len(self._waiting) + (self._current is not None),
            waiting_bytes=self._waiting_bytes,
        )

    def _recover(self, stamped_cut: int) -> None:
        waiting: list[SealedFile] = []
        voided: list[str] = []
        foreign: list[str] = []
        temps = 0
        for name in self._fs.listdir(self._sealed_dir):
            path = os.path.join(self._sealed_dir, name)
            if name.endswith(TEMP_SUFFIX):
                self._fs.unlink(path)
                temps += 1
                continue
            file = parse_sealed_name(name, self._fs.size(path))
            if file is None:
                foreign.append(name)
            elif file.cut_no > stamped_cut:
                self._fs.unlink(path)
                voided.append(name)
            else:
                waiting.append(file)
        if voided or temps:
            self._fs.fsync_dir(self._sealed_dir)
        waiting.sort(key=lambda file: (file.cut_no, file.sealed_name))
        self._sealing = []
        self._unstamped = []
        self._waiting = deque(waiting)
        self._waiting_bytes = sum(file.size for file in waiting)
        before = self._statistics
        self._statistics = replace(
            before,
            voided_files_total=before.voided_files_total + len(voided),
            voided_names=(*before.voided_names, *voided)[-_VOIDED_NAMES_MAX:],
            swept_temps_total=before.swept_temps_total + temps,
            foreign_files=tuple(foreign[:_VOIDED_NAMES_MAX]),
        )

    def _seal(self, unit: PublishUnit, encoded: EncodedFile, siblings: list[SealedFile]) -> int:
        """Write one file and give it its sealed name; return its rows, 0 when it is there."""
        content_hash = xxhash.xxh3_64_hexdigest(encoded.content)
        if any(file.content_hash == content_hash for file in siblings):
            return 0
        name = file_name(
            self._config.file_prefix,
            unit.epoch or self._epoch,
            unit.cut_no,
            len(siblings) + len(self._sealing),
            content_hash,
        )
        file = SealedFile(unit.key, unit.cut_no, name, content_hash, encoded.content.size)
        path = os.path.join(self._sealed_dir, file.sealed_name)
        self._sealing.append(file)
        self._write(path + TEMP_SUFFIX, memoryview(encoded.content))
        self._fs.rename(path + TEMP_SUFFIX, path)
        return encoded.row_count

    def _write(self, path: str, content: memoryview) -> None:
        fd = self._fs.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for offset in range(0, len(content), _WRITE_STEP_BYTES):
                self._check_abort()
                self._fs.pwrite_all(fd, [content[offset : offset + _WRITE_STEP_BYTES]], offset)
            self._fs.fsync(fd)
        finally:
            self._fs.close(fd)

    def _keep_sealed(self, rows: int) -> None:
        sealed = self._sealing
        self._unstamped = [*self._unstamped, *sealed]
        self._sealing = []
        before = self._statistics
        self._statistics = replace(
            before,
            sealed_files_total=before.sealed_files_total + len(sealed),
            sealed_rows_total=before.sealed_rows_total + rows,
            sealed_bytes_total=before.sealed_bytes_total + sum(file.size for file in sealed),
        )

    def _discard(self, files: list[SealedFile]) -> None:
        """Remove files of a call that raised, whatever stage each reached."""
        if not files:
            return
        for file in files:
            path = os.path.join(self._sealed_dir, file.sealed_name)
            for name in (path, path + TEMP_SUFFIX):
                if self._fs.exists(name):
                    self._fs.unlink(name)
        self._unstamped = [file for file in self._unstamped if file not in files]
        before = self._statistics
        self._statistics = replace(
            before, unsealed_files_total=before.unsealed_files_total + len(files)
        )
        self._sealing = []

    def _leave_waiting(self, file: SealedFile) -> None:
        self._current = None
        self._waiting_bytes -= file.size

    def _check_abort(self) -> None:
        if self._aborted.is_set():
            raise TransientError(f"sink {self._config.name}: aborted; it must be opened again")

    def _check_budget(self) -> None:
        """Refuse while stamped files fill the budget.

        Unstamped ones do not count: only the cut they belong to can free them, and it needs the
        rest of its rows sealed. They are at most one cut (``cut_bytes``).
        """
        budget_bytes = self._config.delivery.budget_bytes
        if self._waiting_bytes < budget_bytes:
            return
        # An interruption may have left the counter behind the files; trust those at the limit.
        held = (*self._waiting, *([self._current] if self._current else []))
        self._waiting_bytes = sum(file.size for file in held)
        if self._waiting_bytes < budget_bytes:
            return
        raise StorageFullError(
            f"sink {self._config.name}: the sealed backlog is at its budget "
            f"({self._waiting_bytes} of {budget_bytes} bytes wait in {self._sealed_dir}); "
            f"make {self._config.url} writable or raise delivery.budget"
        )

    def _count_failure(self, message: str) -> None:
        before = self._statistics
        since_ns = before.delivery_failing_since_ns or self._clock.monotonic_ns()
        self._statistics = replace(
            before,
            delivery_failures_total=before.delivery_failures_total + 1,
            delivery_error=message,
            delivery_failing_since_ns=since_ns,
        )

    def _count_delivery(self, file: SealedFile, outcome: Step) -> None:
        rate = self._config.delivery.rate_limit_bytes_per_s
        if rate:
            self._next_delivery_ns = self._clock.monotonic_ns() + file.size * 1_000_000_000 // rate
        before = self._statistics
        self._statistics = replace(
            before,
            delivered_files_total=before.delivered_files_total + 1,
            delivered_bytes_total=before.delivered_bytes_total + file.size,
            already_there_total=before.already_there_total + (outcome is Step.ALREADY_THERE),
            replaced_total=before.replaced_total + (outcome is Step.REPLACED),
            delivery_error="",
            delivery_failing_since_ns=0,
        )

    def _own_folder_error(self, exc: OSError) -> TransientError | FatalError:
        text = (
            f"sink {self._config.name}: cannot write {self._sealed_dir}: {exc.strerror} "
            f"({exc.filename2 or exc.filename or self._sealed_dir})"
        )
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageFullError(f"{text}; free some space, rows stay in the WAL until then")
        if exc.errno in _OWN_FOLDER_FATAL:
            return FatalError(f"{text}; give this process its folder back")
        return TransientError(text)
