# SPDX-License-Identifier: Apache-2.0
"""What the ``parquet`` driver counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParquetStatistics:
    """Snapshot of one driver; names that end in ``_total`` count since process start.

    Attributes:
        unstamped_files: Sealed files whose cut the cursor does not name yet.
        unstamped_bytes: Their bytes.
        waiting_files: Stamped files that are not delivered yet.
        waiting_bytes: Their bytes; sealing pauses at ``delivery.budget``.
        budget_bytes: ``delivery.budget``.
        sealed_files_total: Files made durable.
        sealed_rows_total: Rows in them.
        sealed_bytes_total: Their bytes.
        unsealed_files_total: Files removed again because the call that sealed them raised.
        delivered_files_total: Files that became visible.
        delivered_bytes_total: Their bytes.
        already_there_total: Deliveries that found their bytes visible (a crash came in between).
        replaced_total: Visible files whose bytes did not match their name and were replaced.
        voided_files_total: Files of unstamped cuts removed by ``open``.
        voided_names: The last of them, at most 100; their rows are made again from the WAL.
        swept_temps_total: Unfinished files removed by ``open``.
        foreign_files: Names in ``sealed/`` that are not ours; left alone.
        delivery_failures_total: Calls of ``work`` that raised.
        delivery_error: What the last delivery failed with, empty when it succeeded.
        delivery_failing_since_ns: Monotonic clock of the first failure since the last success, 0
            when none.
    """

    unstamped_files: int = 0
    unstamped_bytes: int = 0
    waiting_files: int = 0
    waiting_bytes: int = 0
    budget_bytes: int = 0
    sealed_files_total: int = 0
    sealed_rows_total: int = 0
    sealed_bytes_total: int = 0
    unsealed_files_total: int = 0
    delivered_files_total: int = 0
    delivered_bytes_total: int = 0
    already_there_total: int = 0
    replaced_total: int = 0
    voided_files_total: int = 0
    voided_names: tuple[str, ...] = ()
    swept_temps_total: int = 0
    foreign_files: tuple[str, ...] = ()
    delivery_failures_total: int = 0
    delivery_error: str = ""
    delivery_failing_since_ns: int = 0
