# SPDX-License-Identifier: Apache-2.0
"""A whole edge in a child process for crash tests: ``python -m thadam_ros.testing.edge_child``.

Appends numbered ``std_msgs/msg/UInt64`` messages to the WAL of a configuration, prints the
number of each batch once it is durable, and runs the chains meanwhile, until it is killed or its
standard input ends.
"""

from __future__ import annotations

import argparse
import os
import select
import struct
import sys
import time
from pathlib import Path

from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.model.message import SourceBatch, TopicDeclaration
from thadam_ros.runtime.edge import Edge
from thadam_ros.runtime.loading import load_text

TYPE_NAME = "std_msgs/msg/UInt64"


def encode(number: int) -> bytes:
    """Return the CDR bytes of a UInt64 message."""
    return b"\x00\x01\x00\x00" + struct.pack("<Q", number)


def main(argv: list[str] | None = None) -> int:
    """Run until standard input ends; exit 0 when everything was drained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("--first", type=int, default=0, help="number of the first message")
    parser.add_argument("--batch", type=int, default=50, help="messages of one batch")
    args = parser.parse_args(argv)
    loaded = load_text(args.document.read_text(encoding="utf-8"), dict(os.environ))
    edge = Edge(loaded)
    edge.start()
    assert edge.wal is not None
    definition = TypeCatalog().definition(TYPE_NAME) or ""
    topic = TopicDeclaration("/numbers", type_name=TYPE_NAME, definition=definition)
    ref = edge.wal.declare_topic(topic)
    number = args.first
    while not select.select([sys.stdin], [], [], 0)[0]:
        batch = SourceBatch("robot")
        for _ in range(args.batch):
            batch.topic_refs.append(ref)
            batch.ingest_times_ns.append(time.time_ns())
            batch.payloads.append(encode(number))
            batch.source_timestamps_ns.append(0)
            batch.sequences.append(0)
            batch.publisher_refs.append(0)
            number += 1
        if not edge.wal.append(batch) or not edge.wal.flush(30.0):
            print(f"refused: {edge.wal.statistics()}", file=sys.stderr)
            return 1
        print(number, flush=True)
    return 0 if edge.close(drain_timeout_s=60.0) else 1


if __name__ == "__main__":
    sys.exit(main())
