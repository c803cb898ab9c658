# SPDX-License-Identifier: Apache-2.0
"""``thadam wal``: list, check, repair, dump, export and import the write-ahead log (spec 2)."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import sys
from collections.abc import Iterator

from thadam_ros.cli import wal_export, wal_import
from thadam_ros.cli.terminal import human_bytes, print_json, print_table
from thadam_ros.cli.wal_common import (
    add_data_dir,
    default_data_dir,
    format_time,
    gap_document,
    log_directory,
    parse_position,
    range_document,
)
from thadam_ros.model.message import Frame
from thadam_ros.model.position import BEFORE_ALL, Position
from thadam_ros.storage.filesystem import OsFileSystem
from thadam_ros.wal.fsck import (
    FsckReport,
    describe_gap,
    describe_range,
    end_of_files,
    fsck,
    list_log,
)
from thadam_ros.wal.mark import FixedMark, Mark
from thadam_ros.wal.reader import WalReader
from thadam_ros.wal.repair import repair

NAME = "wal"
HELP = "list, check, repair, dump, export and import the write-ahead log"
_READ_FRAMES = 64
_READ_BYTES = 16 << 20
RECORD_COLUMNS = (
    "position",
    "index",
    "topic",
    "bytes",
    "ingest time",
    "source time",
    "sequence",
    "publisher",
)
FRAME_COLUMNS = ("position", "source", "records", "bytes", "ingest time", "synced", "topics")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Reads beside a running writer. Exit code 1 when fsck, or dump on its way, finds damage "
        "or missing segments."
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ls|fsck|dump|export|import"
    )
    ls = actions.add_parser("ls", help="list the segments with their positions and sizes")
    check = actions.add_parser("fsck", help="read every byte and say what is damaged or missing")
    dump = actions.add_parser("dump", help="show records: positions, topics, sizes, stamps")
    for action in (ls, check, dump):
        action.add_argument(
            "directory", nargs="?", metavar="DIR", help="a data_dir or the wal folder in it"
        )
        add_data_dir(action)
    check.add_argument(
        "--repair",
        action="store_true",
        help="set damage aside and mend what can be; refused while a writer has the log",
    )
    wal_export.add_arguments(actions.add_parser("export", help=wal_export.HELP))
    wal_import.add_arguments(actions.add_parser("import", help=wal_import.HELP))
    dump.add_argument("--topic", metavar="NAME", help="only this topic; * and ? are wildcards")
    dump.add_argument(
        "--from",
        dest="start",
        type=parse_position,
        metavar="POS",
        help="first position, as 17 or, in a later epoch, 1:17 (ordinal:frame)",
    )
    dump.add_argument(
        "--limit", type=int, default=100, metavar="N", help="at most N lines, 0 for all (100)"
    )
    dump.add_argument("--frames", action="store_true", help="a line for each frame, not record")
    dump.add_argument(
        "--all",
        action="store_true",
        help="also what lies above the durable mark (use it only when nothing writes)",
    )


def run(args: argparse.Namespace) -> int:
    """List, check, repair, dump, export or import.

    Raises:
        ThadamError: There is no such log, or one of its files is of another version.
        OSError: From the filesystem.
    """
    if args.action == "export":
        return wal_export.run(args)
    if args.action == "import":
        return wal_import.run(args)
    directory = log_directory(args.directory or args.data_dir or default_data_dir())
    if args.action == "ls":
        return _list(directory, as_json=args.json)
    if args.action == "fsck":
        return _check(directory, with_repair=args.repair, as_json=args.json)
    return _dump(directory, args)


def _mark_text(mark: Mark | None) -> str:
    return "durable mark: missing or damaged" if mark is None else f"durable: {mark.position}"


def _list(directory: str, *, as_json: bool) -> int:
    mark, segments = list_log(OsFileSystem(), directory)
    if as_json:
        print_json(
            {
                "directory": directory,
                "durable": None if mark is None else list(mark.position),
                "segments": [
                    {
                        "file": s.name.filename,
                        "ordinal": s.name.ordinal,
                        "epoch": s.name.epoch,
                        "first": s.name.first,
                        "last": s.last,
                        "bytes": s.bytes,
                        "created_ns": s.created_ns,
                    }
                    for s in segments
                ],
            }
        )
        return 0
    print_table(
        ("segment", "first", "last", "frames", "size", "created"),
        [
            (
                s.name.filename,
                Position(s.name.ordinal, s.name.first),
                Position(s.name.ordinal, s.last) if s.last >= 0 else "-",
                s.last - s.name.first + 1 if s.last >= 0 else 0,
                human_bytes(s.bytes),
                format_time(s.created_ns),
            )
            for s in segments
        ],
    )
    total = human_bytes(sum(s.bytes for s in segments))
    print(f"{len(segments)} segments, {total}; {_mark_text(mark)}")
    return 0


def _check(directory: str, *, with_repair: bool, as_json: bool) -> int:
    fs = OsFileSystem()
    done = repair(fs, directory) if with_repair else None
    report = fsck(fs, directory) if done is None else done.after
    problems = report.problems
    if as_json:
        document = _fsck_document(report)
        if done is not None:
            document |= {
                "found": list(done.before.problems),
                "repairs": [dataclasses.asdict(item) for item in done.repairs],
            }
        print_json(document)
        return 1 if problems else 0
    if done is not None:
        for sentence in done.before.problems:
            print(f"found: {sentence}")
        for item in done.repairs:
            print(f"done: {item}")
    print_table(
        ("segment", "frames", "records", "bytes", "not durable", "bad ranges"),
        [
            (
                s.name.filename,
                s.frames,
                s.records,
                s.bytes,
                s.beyond_mark,
                "refused" if s.refused else len(s.damage),
            )
            for s in report.segments
        ],
    )
    left = "" if done is None else "left: "
    for sentence in problems:
        print(f"{left}{sentence}")
    for name, size in report.kept:
        print(f"kept by an earlier recovery or repair: {name}, {human_bytes(size)}")
    writer = "; a writer is running" if report.writer_active else ""
    verdict = _counted(len(problems), "problem") if problems else "no problem"
    if done is not None:
        verdict = f"{_counted(len(done.repairs), 'repair')}, {verdict} left"
    print(f"{verdict}; {_mark_text(report.mark)}{writer}")
    return 1 if problems else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _fsck_document(report: FsckReport) -> dict[str, object]:
    return {
        "directory": report.directory,
        "durable": None if report.mark is None else list(report.mark.position),
        "writer_active": report.writer_active,
        "segments": [
            {
                "file": s.name.filename,
                "bytes": s.bytes,
                "frames": s.frames,
                "records": s.records,
                "declarations": s.declarations,
                "last": s.last,
                "beyond_mark": s.beyond_mark,
                "damage": [range_document(item) for item in s.damage],
                "refused": s.refused,
            }
            for s in report.segments
        ],
        "gaps": [gap_document(gap) for gap in report.gaps],
        "foreign": list(report.foreign),
        "kept": [{"file": name, "bytes": size} for name, size in report.kept],
        "problems": list(report.problems),
    }


def _dump(directory: str, args: argparse.Namespace) -> int:
    fs = OsFileSystem()
    after = BEFORE_ALL
    if args.start is not None:
        after = Position(args.start.ordinal, args.start.frame - 1)
    marks = FixedMark(end_of_files(fs, directory)) if args.all else None
    reader = WalReader(directory, fs=fs, after=after, marks=marks)
    try:
        lines: list[dict[str, object]] = []
        for frame in _frames(reader):
            lines += _lines_of(frame, args.topic, frames=args.frames)
            if args.limit and len(lines) >= args.limit:
                del lines[args.limit :]
                break
            if not args.json and not args.limit:
                # Everything was asked for: a table of it would not fit in memory.
                _print_plain(lines, frames=args.frames)
                lines = []
        damage, gaps, durable = reader.damage, reader.gaps, reader.durable
    finally:
        reader.close()
    if args.json:
        print_json(
            {
                "durable": list(durable),
                "frames" if args.frames else "records": lines,
                "damage": [range_document(item) for item in damage],
                "gaps": [gap_document(gap) for gap in gaps],
            }
        )
    else:
        if args.limit:
            columns = FRAME_COLUMNS if args.frames else RECORD_COLUMNS
            print_table(columns, [_row(line, frames=args.frames) for line in lines])
        for sentence in (*map(describe_range, damage), *map(describe_gap, gaps)):
            print(sentence, file=sys.stderr)
    return 1 if damage or gaps else 0


def _frames(reader: WalReader) -> Iterator[Frame]:
    while frames := reader.read(_READ_FRAMES, _READ_BYTES):
        yield from frames


def _lines_of(frame: Frame, pattern: str | None, *, frames: bool) -> list[dict[str, object]]:
    names = {ref: topic.name for ref, topic in frame.topics.items()}
    wanted = {
        int(ref)
        for ref in set(frame.topic_refs.tolist())
        if pattern is None or fnmatch.fnmatchcase(names.get(ref, ""), pattern)
    }
    if not wanted and (pattern is not None or len(frame)):
        return []
    place = {"ordinal": frame.ordinal, "epoch": frame.epoch, "position": frame.position}
    if frames:
        return [
            {
                **place,
                "source": frame.source_id,
                "records": len(frame),
                "bytes": len(frame.payload),
                "ingest_time_ns": frame.ingest_time_ns,
                "boottime_ns": frame.boottime_ns,
                "boot_id": frame.boot_id.hex(),
                "clock_synced": frame.clock_synced,
                "topics": sorted(names.get(ref, f"?{ref}") for ref in wanted),
            }
        ]
    refs = frame.topic_refs.tolist()
    sizes = (frame.offsets[1:] - frame.offsets[:-1]).tolist()
    return [
        {
            **place,
            "record_index": index,
            "topic": names.get(ref, f"?{ref}"),
            "bytes": sizes[index],
            "ingest_time_ns": int(frame.ingest_times_ns[index]),
            "source_timestamp_ns": int(frame.source_timestamps_ns[index]),
            "sequence": int(frame.sequences[index]) - 1,
            "publisher": frame.publishers.get(int(frame.publisher_refs[index]), b"").hex(),
            "attributes": dict(frame.attributes.get(index, {})),
        }
        for index, ref in enumerate(refs)
        if ref in wanted
    ]


def _row(line: dict[str, object], *, frames: bool) -> tuple[object, ...]:
    place = f"{line['ordinal']}:{line['position']}"
    if frames:
        topics = line["topics"]
        assert isinstance(topics, list)
        return (
            place,
            line["source"],
            line["records"],
            line["bytes"],
            format_time(_int(line["ingest_time_ns"])),
            "yes" if line["clock_synced"] else "no",
            ", ".join(topics),
        )
    sequence = _int(line["sequence"])
    return (
        place,
        line["record_index"],
        line["topic"],
        line["bytes"],
        format_time(_int(line["ingest_time_ns"])),
        format_time(_int(line["source_timestamp_ns"])),
        "" if sequence < 0 else sequence,
        line["publisher"],
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _print_plain(lines: list[dict[str, object]], *, frames: bool) -> None:
    for line in lines:
        print("\t".join(str(cell) for cell in _row(line, frames=frames)))
