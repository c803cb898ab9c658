# SPDX-License-Identifier: Apache-2.0
"""A process that writes numbered records until it is killed, and says what became durable.

Run as ``python writer_child.py DIRECTORY FIRST_ID``; each line of output is an id that was durable
when it was printed.
"""

from __future__ import annotations

import itertools
import sys

from thadam_ros.config.schema import WalConfig
from thadam_ros.model.clock import SystemClock
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.testing.wal import make_batch
from thadam_ros.wal.writer import WalWriter


def main() -> None:
    directory, first = sys.argv[1], int(sys.argv[2])
    writer = WalWriter.open(
        directory,
        WalConfig(segment_bytes=200_000, commit_interval_ns=1_000_000),
        fs=OsFileSystem(),
        clock=SystemClock(),
        clock_synced=lambda: True,
    )
    topic = writer.declare_topic(TopicDeclaration("/id"))
    for identity in itertools.count(first):
        payload = identity.to_bytes(8, "little") + bytes(identity % 700)
        while not writer.append(make_batch([payload], topic_ref=topic)):
            writer.flush(1)
        if identity % 20 == 19:
            if not writer.flush(30):
                sys.exit(f"not durable: {writer.statistics()}")
            print(identity, flush=True)


if __name__ == "__main__":
    main()
