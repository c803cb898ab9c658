# SPDX-License-Identifier: Apache-2.0
"""A first configuration for a person to edit, made of topics and their definitions.

Every topic becomes a dataset with a column per field; every array of structures becomes a dataset
of its own, exploded. What cannot be a dataset stays in the document as a comment that says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from thadam_ros.config.settings import settings_of
from thadam_ros.dataset.envelope import ENVELOPE_IDS
from thadam_ros.dataset.message import Leaf, Shape, element_leaf, expand, find_leaf
from thadam_ros.decode.definition import parse_definition
from thadam_ros.decode.schema import MessageSchema
from thadam_ros.errors import RecordError
from thadam_ros.model.message import TopicDeclaration

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME_CHARS_MAX: Final = 63
SOURCE: Final = "robot"
_LEVELS: Final = ("robot", "robot_id", "robot_name")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of ``all_fields``, or a declared one where its name could not stay."""

    name: str
    leaf: Leaf
    renamed: bool = False


@dataclass(slots=True)
class _Names:
    """Gives out names that are valid and not taken."""

    taken: set[str] = field(default_factory=set)

    def draw(self, wanted: str) -> str:
        """Return ``wanted``, made valid, shortened from the left and numbered as needed."""
        name = re.sub(r"[^a-z0-9_]+", "_", wanted.lower()).strip("_")
        name = name[-_NAME_CHARS_MAX:].lstrip("_0123456789") or "unnamed"
        unique, number = name, 2
        while unique in self.taken:
            suffix = f"_{number}"
            unique, number = name[: _NAME_CHARS_MAX - len(suffix)] + suffix, number + 1
        self.taken.add(unique)
        return unique


def render_initial_config(topics: Sequence[TopicDeclaration], origin: str) -> str:
    """Return a complete, commented document for ``topics``.

    Args:
        topics: Topics with their definition texts; those without one become comments.
        origin: Where the topics come from, for the first line.
    """
    names = _Names()
    blocks: list[list[str]] = []
    used: set[str] = set()
    for topic in sorted(topics, key=lambda t: (t.name, t.type_name)):
        blocks += _topic_blocks(topic, names, used)
    level = next((name for name in _LEVELS if name not in used), "thadam_robot")
    lines = [*_head(origin, level)]
    if not any(line and not line.startswith("  #") for block in blocks for line in block):
        lines += ["# No topic with a known definition was found; declare datasets by hand."]
        lines += ["datasets: {}"]
    else:
        lines += ["datasets:"]
    for block in blocks:
        lines += ["", *block]
    return "\n".join([*lines, "", *_TAIL]) + "\n"


def _head(origin: str, level: str) -> Iterator[str]:
    yield f"# Written by thadam init from {_comment(origin)}. Edit it, then: thadam validate FILE"
    yield "#"
    yield "# Each dataset is one output table. all_fields makes a column of every field; a comment"
    yield "# lists them. Delete what you do not need, rename what you like. `domain: utc` says that"
    yield "# the stamps are UTC; write sim, tai, monotonic or unknown if they are not."
    yield f"schema: {settings_of_schema()}"
    yield ""
    yield "edge:"
    yield "  data_dir: $(env THADAM_DATA_DIR /var/lib/thadam)   # write-ahead log, cursors, rejects"
    yield "  identity:                          # constant columns of every dataset"
    yield f"    {level}: $(env ROBOT_ID robot)"
    yield ""
    yield "wal:"
    yield "  commit_interval: 200ms             # what a power cut can cost"
    yield "  when_full: stop_capture            # or drop_oldest"
    yield ""
    yield "sources:"
    yield f"  {SOURCE}:"
    yield "    type: ros2"
    yield "    capture: matched                 # what a dataset matches; or all"
    yield ""


_TAIL: Final = (
    "sinks:",
    "  lake:",
    "    type: parquet",
    "    url: $(env THADAM_LAKE /var/lib/thadam-lake)     # a folder, or s3://bucket/prefix",
    '    datasets: ["*"]',
    "    rotation: {max_bytes: 128MiB, max_rows: 1000000, max_age: 15min}",
)


def settings_of_schema() -> int:
    """Return the document format version that is written."""
    from thadam_ros.config.schema import Config

    default = settings_of(Config)["schema"][1]
    return default if isinstance(default, int) else 1


def _topic_blocks(topic: TopicDeclaration, names: _Names, used: set[str]) -> list[list[str]]:
    title = f"  # {_comment(topic.name)}, {_comment(topic.type_name)}"
    if re.fullmatch(r"(/[A-Za-z0-9_]+)+", topic.name) is None:
        return [[title, "  # left out: the name is not a ROS 2 topic name"]]
    if not topic.definition.strip():
        return [[title, "  # left out: no definition of this type is known here"]]
    try:
        schema = parse_definition(topic.definition, topic.type_name)
    except RecordError as exc:
        return [[title, f"  # left out: {_comment(exc.reason)}"]]
    return list(_datasets(topic, schema, title, names, used))


def _datasets(
    topic: TopicDeclaration, schema: MessageSchema, title: str, names: _Names, used: set[str]
) -> Iterator[list[str]]:
    leaves = list(expand(schema))
    arrays = [leaf for leaf in leaves if leaf.shape is Shape.STRUCTS]
    plain = [leaf for leaf in leaves if leaf.shape is not Shape.STRUCTS]
    base = names.draw(topic.name.strip("/").replace("/", "_"))
    if plain:
        columns = _columns(plain)
        used.update(column.name for column in columns)
        yield [title, *_flat_dataset(base, topic, schema, columns, arrays)]
    elif not arrays:
        yield [title, "  # left out: the message has no fields"]
    for array in arrays:
        block = _exploded_dataset(names, base, topic, schema, array, used)
        yield [f"{title}, one row per element of {array.pointer}", *block]


def _columns(leaves: Iterable[Leaf], relative: bool = False) -> list[_Column]:
    """Name the columns; those whose own name cannot stay are marked."""
    names = _Names(set(ENVELOPE_IDS))
    columns: list[_Column] = []
    for leaf in leaves:
        fits = _NAME.fullmatch(leaf.column) is not None and leaf.column not in names.taken
        name = names.draw(leaf.column)
        columns.append(_Column(name, leaf, relative or not (fits and name == leaf.column)))
    return columns


def _flat_dataset(
    name: str,
    topic: TopicDeclaration,
    schema: MessageSchema,
    columns: Sequence[_Column],
    arrays: Sequence[Leaf],
) -> Iterator[str]:
    yield f"  {name}:"
    yield f"    match: {{source: {SOURCE}, topics: [{topic.name}]}}"
    yield f"    type: {topic.type_name}"
    yield from _time(schema, None)
    yield "    all_fields: true"
    renamed = [column for column in columns if column.renamed]
    if renamed:
        yield "    exclude:                         # their names would not be column names"
        for column in renamed:
            yield f"      - {column.leaf.pointer}"
        yield "    fields:"
        for column in renamed:
            yield f"      {_key(column.name)}: {column.leaf.pointer}"
    yield from _column_comments(columns)
    for array in arrays:
        yield f"    #   {array.pointer}: {array}, see the exploded dataset below"


def _exploded_dataset(
    names: _Names,
    base: str,
    topic: TopicDeclaration,
    schema: MessageSchema,
    array: Leaf,
    used: set[str],
) -> Iterator[str]:
    element = element_leaf(array)
    if element.shape is not Shape.STRUCT:
        yield f"  # left out: the elements are {element.shape.value}s, not structures with fields"
        return
    inner = list(expand(schema, array.type_name))
    columns = _columns((leaf for leaf in inner if leaf.shape is not Shape.STRUCTS), relative=True)
    if not columns:
        yield "  # left out: the elements have no fields that can be columns"
        return
    used.update(column.name for column in columns)
    yield f"  {names.draw(f'{base}_{array.column}')}:"
    yield f"    match: {{source: {SOURCE}, topics: [{topic.name}]}}"
    yield f"    type: {topic.type_name}"
    yield f"    explode: {array.pointer}"
    yield from _time(schema, array)
    yield "    fields:"
    for column in columns:
        yield f"      {_key(column.name)}: .{column.leaf.pointer}"
    for leaf in inner:
        if leaf.shape is Shape.STRUCTS:
            yield f"    #   .{leaf.pointer}: {leaf}, an array inside an array, left out"


def _time(schema: MessageSchema, array: Leaf | None) -> Iterator[str]:
    for pointer in ("/header/stamp", "/stamp", "/clock"):
        leaf = find_leaf(schema, pointer)
        if leaf is not None and leaf.shape is Shape.TIME:
            domain = "sim" if pointer == "/clock" else "utc"
            yield f"    time: {{from: {pointer}, domain: {domain}}}"
            return
        element = find_leaf(schema, pointer, array.type_name) if array is not None else None
        if element is not None and element.shape is Shape.TIME:
            yield f"    time: {{from: .{pointer}, domain: utc}}"
            return


def _column_comments(columns: Sequence[_Column]) -> Iterator[str]:
    yield "    # columns:"
    width = max(len(column.name) for column in columns)
    for column in columns:
        kind = column.leaf.natural
        yield f"    #   {column.name.ljust(width)}  {kind}"


def _key(name: str) -> str:
    """Quote a key that other YAML readers take for a boolean."""
    return f'"{name}"' if name in ("y", "n", "yes", "no", "on", "off", "true", "false") else name


def _comment(text: str) -> str:
    """Return ``text`` so that it cannot leave its comment line."""
    return re.sub(r"[^\x20-\x7e]+", " ", text)[:200]
