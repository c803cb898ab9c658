# SPDX-License-Identifier: Apache-2.0
"""A run with somebody's own bag: its topics, and the configuration of ``thadam init``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from thadam_ros.cli.bag_topics import read_topics
from thadam_ros.cli.initial_config import SOURCE, render_initial_config
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.errors import FatalError
from thadam_ros.model.message import TopicDeclaration
from thadam_ros.node.demo.options import Options
from thadam_ros.node.demo.publishing import message_class
from thadam_ros.node.demo.stage import Stage
from thadam_ros.node.topics import is_system_topic
from thadam_ros.node.types import hash_of
from thadam_ros.runtime.loading import load_path

#: What the edge publishes itself; a bag's copy could not be told apart.
_OWN_TOPICS = ("/diagnostics",)


def make_bag_stage(options: Options, ledger: Path) -> Stage:
    """Choose the topics that can be played and write their configuration.

    Raises:
        FatalError: The bag cannot be read, or holds nothing that can be played here.
        ConfigError: The configuration made of it is not valid.
    """
    assert options.bag is not None
    playable: dict[str, TopicDeclaration] = {}
    notes: list[str] = []
    catalog = TypeCatalog()
    for topic in read_topics(options.bag):
        reason = _why_not(topic, playable, catalog)
        if reason:
            notes.append(f"{topic.name} ({topic.type_name}) is not played: {reason}")
        else:
            playable[topic.name] = topic
    if not playable:
        raise FatalError(
            f"{options.bag}: no topic can be played here; " + ("; ".join(notes) or "it is empty")
        )
    config = options.output / "bag.yaml"
    config.write_text(_document(list(playable.values()), options), encoding="utf-8")
    load_path(config, os.environ)
    notes.append(f"{len(playable)} topics are played; the configuration is {config}")
    command = (
        *(sys.executable, "-m", "thadam_ros.node.demo.player", str(options.bag)),
        *("--seconds", f"{options.seconds:g}", "--ledger", str(ledger), "--stay"),
        *("--topics", *playable),
    )
    return Stage(config, command, "/", None, tuple(notes))


def _why_not(
    topic: TopicDeclaration, taken: dict[str, TopicDeclaration], catalog: TypeCatalog
) -> str:
    if topic.name in taken:
        return "the bag has this topic with another type as well"
    if is_system_topic(topic.name) or topic.name in _OWN_TOPICS:
        return "it belongs to ROS itself or to what the edge publishes"
    try:
        message_class(topic.type_name)
    except (ImportError, AttributeError, ValueError):
        return "its message package is not installed here"
    installed = hash_of(catalog.definition(topic.type_name) or "", topic.type_name)
    stored = hash_of(topic.definition, topic.type_name)
    if installed and stored and installed != stored:
        return "the bag was recorded with another definition of this type"
    return ""


def _document(topics: list[TopicDeclaration], options: Options) -> str:
    """Return the document of ``thadam init`` with the demo's folders and sinks put in."""
    text = render_initial_config(topics, str(options.bag))
    document = yaml.safe_load(text)
    output = str(options.output)
    document["edge"].update(data_dir=f"{output}/data", lock_file=f"{output}/datasets.lock")
    document["wal"].update(budget="8GiB", min_free="256MiB")
    document["sources"][SOURCE]["also"] = [topic.name for topic in topics]
    document["sinks"] = {
        "lake": _sink(f"{output}/lake", "2s", primary=True),
        "mirror": _sink(f"{output}/mirror", "1s", primary=False),
    }
    dumped: str = yaml.safe_dump(document, sort_keys=False)
    return f"# Made by thadam init from {options.bag}, with the demo's folders and sinks.\n{dumped}"


def _sink(url: str, max_age: str, *, primary: bool) -> dict[str, object]:
    return {"type": "parquet", "url": url, "primary": primary, "rotation": {"max_age": max_age}}
