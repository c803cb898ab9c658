# SPDX-License-Identifier: Apache-2.0
"""Reading staging without its lock, beside a chain that appends (spec 4.3)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from thadam_ros.model.event import Reject
from thadam_ros.quarantine.format import Damage, Record, scan_segment, segment_number
from thadam_ros.storage.atomic import read_whole
from thadam_ros.storage.filesystem import FileSystem


def list_segments(directory: str, fs: FileSystem) -> list[str]:
    """Return segment names in order; none when the directory does not exist."""
    if not fs.exists(directory):
        return []
    names = [name for name in fs.listdir(directory) if segment_number(name) is not None]
    return sorted(names, key=lambda name: segment_number(name) or 0)


def scan_staging(directory: str, fs: FileSystem) -> Iterator[Record | Damage]:
    """Yield every intact record and every damaged range, in order, one segment in memory.

    Raises:
        FormatError: A segment has another version.
        OSError: From the filesystem.
    """
    names = list_segments(directory, fs)
    for name in names:
        data = read_whole(fs, os.path.join(directory, name))
        yield from scan_segment(name, data, last=name == names[-1])


def read_staging(directory: str, fs: FileSystem) -> Iterator[Reject]:
    """Yield every readable reject once, in the order they were staged.

    Raises:
        FormatError: A segment has another version.
        OSError: From the filesystem.
    """
    for found in scan_staging(directory, fs):
        if isinstance(found, Record):
            yield found.reject
