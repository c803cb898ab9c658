# SPDX-License-Identifier: Apache-2.0
"""What a lane asks of a store: the seam between ``publish`` and every sink driver (spec 5.1, 5.2).

A driver is used by one thread, the sink's lane; only :meth:`SinkDriver.abort` comes from another.
It reports by the type of what it raises, never by text:

====================  ==============================================================================
returned rejects      rows the store refused for what they are; the others of the unit are durable
``RecordError``       the unit is refused for what it holds and the store cannot say which row;
                      nothing of it is durable; the lane bisects by sending
``TransientError``    the same call may work later; nothing of this call counts as done
``StorageFullError``  a ``TransientError``: disk, quota or the driver's own budget is exhausted
``FatalError``        credentials, configuration or a refused schema: needs a person
anything else         a bug, caught at the lane's edge
====================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from thadam_ros.model.event import Reject


class PartitionKey(NamedTuple):
    """What is published as one object or request (spec 1.2).

    Attributes:
        hour: Whole hours since the Unix epoch of the rows' ingest time, UTC.
        synced: Whether the host clock was synchronised when the rows were captured.
    """

    dataset: str
    hour: int
    synced: bool


@dataclass(frozen=True, slots=True)
class PublishUnit:
    """Rows of one partition that are published together for one cut.

    A unit whose publication raised is sent again unchanged: same rows, same order, same
    boundaries, so that a store's idempotence token can be derived from its content.

    Attributes:
        cut_no: The cut these rows belong to; a unit published by size or age before its cut
            carries the number of the next one.
        rows: Batches of one schema in WAL order; together at least one row, or nothing is written.
        lineage: Position ranges, hashes, counts and starting state (spec 4.4), values JSON can
            hold; the driver adds what only it knows (rows, bytes).
        epoch: ``_wal_epoch`` at the end of the rows, 0 for the one the driver was made with: the
            WAL may not have existed then, and a chain may outlive an epoch.
    """

    key: PartitionKey
    cut_no: int
    rows: tuple[pa.RecordBatch, ...]
    lineage: Mapping[str, object]
    epoch: int = 0

    @property
    def row_count(self) -> int:
        """Rows over all batches."""
        return sum(batch.num_rows for batch in self.rows)


class SinkDriver(Protocol):
    """A store. Six methods; which of them a crash may skip stands with each.

    After a crash nothing but ``open`` runs, in a new process, with the cut the cursor names: all
    that a driver must remember lies on disk or in the store.
    """

    def open(self, stamped_cut: int) -> None:
        """Connect, undo what belongs to cuts above ``stamped_cut``, queue the rest for delivery.

        Runs before anything else and after every crash. May be called again at any time, also
        after ``abort`` or a failed ``open``: it then starts from what the store holds.

        Args:
            stamped_cut: The cut the cursor names, 0 when nothing was ever stamped.

        Raises:
            TransientError: The store does not answer; the lane calls again after its backoff.
            FatalError: Configuration, credentials or schema.
        """

    def publish(self, unit: PublishUnit) -> tuple[Reject, ...]:
        """Make the unit's rows durable; they are when this returns, all but the rejects returned.

        May be called again with the same unit after it raised. A crash may end it anywhere: what
        it left behind belongs to an unstamped cut and the next ``open`` undoes it, or the store
        recognises the repetition.

        Raises:
            RecordError, TransientError, StorageFullError, FatalError: See the module; in all of
                them nothing of the unit counts as published.
        """

    def stamped(self, cut_no: int) -> None:
        """The cursor on disk now names ``cut_no``: units of cuts up to it may become visible.

        May be called again, also with a lower number, and **never runs when a crash comes right
        after the stamp**; the next ``open`` carries the same news. Does no I/O, does not raise.
        """

    def work(self) -> bool:
        """Do one bounded piece of background work, such as a step of delivery.

        Called by the lane between its duties, as often as it likes. A crash may end it anywhere;
        every piece can be done again.

        Returns:
            True when more waits and can go on at once; False when there is nothing to do now.

        Raises:
            TransientError: The visible store cannot be written; what waits is kept, publishing
                and stamping may go on. The lane calls again after its backoff.
            FatalError: See the module.
        """

    def abort(self) -> None:
        """End a call that hangs; the only method another thread may call, at any time, repeatedly.

        The interrupted ``publish`` or ``work``, and every later one until ``open``, raises
        ``TransientError``. Not run by a crash.
        """

    def close(self) -> None:
        """Release connections and descriptors. May be called again; **never runs on a crash**,
        so nothing durable may depend on it. Does not deliver what waits.
        """
