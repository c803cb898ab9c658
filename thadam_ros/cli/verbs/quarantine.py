# SPDX-License-Identifier: Apache-2.0
"""``thadam quarantine``: what was rejected, why, and its raw bytes (spec 4.3)."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from thadam_ros.cli.terminal import print_json, print_table
from thadam_ros.errors import ThadamError
from thadam_ros.model.event import Reject
from thadam_ros.quarantine.format import Damage, Record
from thadam_ros.quarantine.reader import scan_staging
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem

NAME = "quarantine"
HELP = "list and show what was rejected, and why"

#: Where a configuration without a data_dir of its own puts it.
DEFAULT_DATA_DIR = "/var/lib/thadam"

#: Shortest beginning of an identity that `show` takes.
_PREFIX_MIN = 4

_HEX_COLUMNS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Reads staging beside running chains. Exit code 1 when staging has damaged ranges."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ls|show")
    ls = actions.add_parser("ls", help="count rejects by dataset, code and topic")
    ls.add_argument("directory", nargs="?", metavar="DATA_DIR", help="the same as --data-dir")
    ls.add_argument("--rejects", action="store_true", help="list every reject with its id")
    ls.add_argument(
        "--limit", type=int, default=100, metavar="N", help="rejects to list at most (100)"
    )
    show = actions.add_parser("show", help="one reject in full, with its raw bytes")
    show.add_argument("id", metavar="ID", help="beginning of an id, as `ls --rejects` prints it")
    for action in (ls, show):
        action.add_argument(
            "--data-dir",
            metavar="DIR",
            help=f"edge.data_dir (default: $THADAM_DATA_DIR, else {DEFAULT_DATA_DIR})",
        )
        action.add_argument("--sink", metavar="NAME", help="only the chain of this sink")
        # Also accepted before the action, whose value must not be overwritten by a default.
        action.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print one JSON document",
        )


def run(args: argparse.Namespace) -> int:
    """List or show.

    Raises:
        ThadamError: No such directory, sink or reject.
        FormatError: Staging of another version.
    """
    data_dir = (
        getattr(args, "directory", None)
        or args.data_dir
        or os.environ.get("THADAM_DATA_DIR")
        or DEFAULT_DATA_DIR
    )
    fs = OsFileSystem()
    directories = staging_directories(data_dir, args.sink, fs)
    if args.action == "show":
        return _show(args.id.lower(), directories, fs, as_json=args.json)
    if args.rejects:
        return _list(directories, fs, args.limit, as_json=args.json)
    return _count(directories, fs, as_json=args.json)


def staging_directories(data_dir: str, sink: str | None, fs: FileSystem) -> dict[str, str]:
    """Return sink -> staging directory of every chain below ``data_dir``.

    Raises:
        ThadamError: There are no chains there, or not the one that was asked for.
    """
    chains = os.path.join(data_dir, "chains")
    if not fs.exists(chains):
        raise ThadamError(
            f"{chains} does not exist; give the edge.data_dir of the configuration with --data-dir"
        )
    found = {name: os.path.join(chains, name, "staging") for name in fs.listdir(chains)}
    if sink is None:
        return found
    if sink not in found:
        raise ThadamError(
            f"there is no chain of a sink {sink!r} in {chains}; there are: "
            f"{', '.join(found) or 'none'}"
        )
    return {sink: found[sink]}


def summarize(directory: str, fs: FileSystem) -> dict[str, object]:
    """Return counts by dataset, domain, code and topic, and the damaged ranges."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    damaged: list[dict[str, object]] = []
    torn_bytes = 0
    for found in scan_staging(directory, fs):
        if isinstance(found, Damage):
            if found.torn:
                torn_bytes += found.end - found.start
            else:
                damaged.append({"segment": found.segment, "start": found.start, "end": found.end})
            continue
        reject = found.reject
        key = (reject.dataset, reject.error_domain, reject.error_code, reject.topic)
        time_ns = reject.ingest_time_ns
        group = groups.setdefault(key, [0, time_ns, time_ns])
        group[0] += 1
        group[1] = min(group[1], time_ns)
        group[2] = max(group[2], time_ns)
    ordered = sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))
    return {
        "rejects": sum(group[0] for group in groups.values()),
        "groups": [
            {
                "dataset": dataset,
                "domain": domain,
                "code": code,
                "topic": topic,
                "count": count,
                "first_ingest_time": _time(first_ns),
                "last_ingest_time": _time(last_ns),
            }
            for (dataset, domain, code, topic), (count, first_ns, last_ns) in ordered
        ],
        "damaged": damaged,
        "torn_bytes": torn_bytes,
    }


def _count(directories: Mapping[str, str], fs: FileSystem, *, as_json: bool) -> int:
    sinks = {sink: summarize(directory, fs) for sink, directory in directories.items()}
    damaged = any(summary["damaged"] for summary in sinks.values())
    if as_json:
        total = sum(int(str(summary["rejects"])) for summary in sinks.values())
        print_json({"sinks": sinks, "rejects": total})
        return int(damaged)
    columns = ("sink", "dataset", "domain", "code", "topic", "count", "last")
    rows: list[tuple[object, ...]] = []
    for sink, summary in sinks.items():
        groups = summary["groups"]
        assert isinstance(groups, list)
        rows += [
            (
                sink,
                group["dataset"] or "-",
                group["domain"],
                group["code"],
                group["topic"],
                group["count"],
                group["last_ingest_time"],
            )
            for group in groups
        ]
    if rows:
        print_table(columns, rows)
    else:
        print("no rejects")
    for sink, summary in sinks.items():
        _warn(sink, summary)
    return int(damaged)


def _warn(sink: str, summary: Mapping[str, object]) -> None:
    ranges = summary["damaged"]
    assert isinstance(ranges, list)
    for damage in ranges:
        print(
            f"{sink}: damaged bytes {damage['start']}..{damage['end']} in {damage['segment']}: "
            "rejects there cannot be read"
        )
    if summary["torn_bytes"]:
        print(f"{sink}: {summary['torn_bytes']} bytes at the end are being written, or torn")


def _list(directories: Mapping[str, str], fs: FileSystem, limit: int, *, as_json: bool) -> int:
    rows: list[dict[str, object]] = []
    more = False
    for sink, record in _records(directories, fs):
        if len(rows) >= limit:
            more = True
            break
        reject = record.reject
        rows.append(
            {
                "id": record.identity.hex(),
                "sink": sink,
                "ingest_time": _time(reject.ingest_time_ns),
                "topic": reject.topic,
                "dataset": reject.dataset,
                "code": reject.error_code,
                "reason": reject.reason,
            }
        )
    if as_json:
        print_json({"rejects": rows, "more": more})
        return 0
    if not rows:
        print("no rejects")
        return 0
    print_table(
        ("id", "sink", "ingest time", "topic", "dataset", "code", "reason"),
        [(str(row["id"])[:12], *list(row.values())[1:]) for row in rows],
    )
    if more:
        print(f"only the first {limit} are listed; --limit shows more")
    return 0


def _show(prefix: str, directories: Mapping[str, str], fs: FileSystem, *, as_json: bool) -> int:
    if len(prefix) < _PREFIX_MIN:
        raise ThadamError(f"an id needs at least {_PREFIX_MIN} digits; `ls --rejects` prints them")
    matches: dict[bytes, Record] = {}
    sinks: dict[bytes, list[str]] = {}
    for sink, record in _records(directories, fs):
        if record.identity.hex().startswith(prefix):
            matches.setdefault(record.identity, record)
            sinks.setdefault(record.identity, []).append(sink)
    if len(matches) != 1:
        raise ThadamError(
            f"{len(matches)} rejects have an id that begins with {prefix!r}; "
            "`thadam quarantine ls --rejects` lists ids"
        )
    [(identity, record)] = matches.items()
    fields: dict[str, object] = {"id": identity.hex(), "sinks": sinks[identity]}
    fields |= dataclasses.asdict(record.reject)
    fields["ingest_time"] = _time(record.reject.ingest_time_ns)
    if as_json:
        print_json(fields)
        return 0
    raw = fields.pop("raw")
    assert isinstance(raw, bytes)
    fields["sinks"] = ", ".join(sinks[identity])
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name:<{width}}  {value}")
    print(f"{'raw':<{width}}  {_size(record.reject)}")
    for line in hex_dump(raw):
        print(line)
    return 0


def _records(directories: Mapping[str, str], fs: FileSystem) -> Iterator[tuple[str, Record]]:
    for sink, directory in directories.items():
        for found in scan_staging(directory, fs):
            if isinstance(found, Record):
                yield sink, found


def _size(reject: Reject) -> str:
    cut = ", cut: the message is longer" if reject.raw_truncated else ""
    return f"{len(reject.raw)} bytes{cut}"


def hex_dump(data: bytes) -> Iterator[str]:
    """Yield lines of offset, 16 bytes in hex and as ASCII."""
    for offset in range(0, len(data), _HEX_COLUMNS):
        piece = data[offset : offset + _HEX_COLUMNS]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        yield f"{offset:08x}  {piece.hex(' '):<{_HEX_COLUMNS * 3 - 1}}  |{text}|"


def _time(time_ns: int) -> str:
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"
