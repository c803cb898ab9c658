# SPDX-License-Identifier: Apache-2.0
"""Names of sealed and visible files; the format is the docstring of the package."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from thadam_ros.errors import FatalError
from thadam_ros.sinks.contract import PartitionKey

_EPOCH = datetime(1970, 1, 1)

_SEALED = re.compile(
    r"(?P<dataset>[a-z_][a-z0-9_]*)@(?P<hour>\d{4}-\d\d-\d\dT\d\d)@(?P<sync>synced|unsynced)"
    r"@(?P<name>.*-(?P<epoch>\d+)-(?P<cut>\d+)-(?P<n>\d+)-(?P<hash>[0-9a-f]{16})\.parquet)"
)

#: No separators; readers of Hive folders skip names that begin with a dot or an underscore.
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@=+-]{0,63}")

#: A scheme needs two letters: ``C:/x`` never was a url.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class SealedFile(NamedTuple):
    """A file in ``sealed/``.

    Attributes:
        name: Its name in the visible folder.
        content_hash: 16 hex digits, xxh3_64 of the bytes.
        size: Bytes.
    """

    key: PartitionKey
    cut_no: int
    name: str
    content_hash: str
    size: int

    @property
    def sealed_name(self) -> str:
        """Name inside ``sealed/``: the partition, then the visible name."""
        sync = "synced" if self.key.synced else "unsynced"
        hour = _time(self.key.hour).strftime("%Y-%m-%dT%H")
        return f"{self.key.dataset}@{hour}@{sync}@{self.name}"


def check_prefix(prefix: str, sink: str) -> str:
    """Return ``prefix`` when files can be named after it.

    Raises:
        FatalError: It holds other characters, is too long, or readers would skip such files.
    """
    if _PREFIX.fullmatch(prefix) is None:
        raise FatalError(
            f"sinks.{sink}.file_prefix = {prefix!r}: must be 1 to 64 letters, digits or ._@=+- and "
            "begin with a letter or digit"
        )
    return prefix


def file_name(prefix: str, epoch: int, cut_no: int, n: int, content_hash: str) -> str:
    """Return the visible name of a file (spec 5.1)."""
    return f"{prefix}-{epoch}-{cut_no}-{n}-{content_hash}.parquet"


def parse_sealed_name(sealed_name: str, size: int) -> SealedFile | None:
    """Return what a name in ``sealed/`` says, None when this software did not give it."""
    match = _SEALED.fullmatch(sealed_name)
    if match is None:
        return None
    try:
        hour = datetime.strptime(match["hour"], "%Y-%m-%dT%H")
    except ValueError:
        return None
    key = PartitionKey(
        match["dataset"], (hour - _EPOCH) // timedelta(hours=1), match["sync"] == "synced"
    )
    return SealedFile(key, int(match["cut"]), match["name"], match["hash"], size)


def partition_folder(key: PartitionKey) -> str:
    """Return the folder of a partition relative to the sink's url (Hive style, UTC)."""
    unsynced = "" if key.synced else "unsynced/"
    return f"{key.dataset}/{unsynced}" + _time(key.hour).strftime("date=%Y-%m-%d/hour=%H")


def local_folder(url: str, sink: str) -> str:
    """Return the absolute local path that a ``parquet`` sink's url means.

    A plain path is taken literally, ``file://`` urls are percent-decoded.

    Raises:
        FatalError: Another scheme, another host, or a relative path.
    """
    path = url
    if _SCHEME.match(url):
        parts = urlsplit(url)
        if parts.scheme.lower() != "file":
            raise FatalError(
                f"sinks.{sink}.url = {url!r}: {parts.scheme}:// is not in this version; "
                "give a local folder or a file:// url"
            )
        if parts.netloc not in ("", "localhost"):
            raise FatalError(
                f"sinks.{sink}.url = {url!r}: a file:// url cannot name another host; "
                "write file:///path"
            )
        path = unquote(parts.path)
    if not path.startswith("/"):
        raise FatalError(f"sinks.{sink}.url = {url!r}: the folder must be an absolute path")
    return path.rstrip("/") or "/"


def _time(hour: int) -> datetime:
    return _EPOCH + timedelta(hours=hour)
