# SPDX-License-Identifier: Apache-2.0
"""``thadam init``: a complete, commented configuration from a bag or from the running graph."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from thadam_ros.cli.initial_config import render_initial_config
from thadam_ros.cli.registry import load_ros_module
from thadam_ros.cli.terminal import print_json
from thadam_ros.decode.catalog import TypeCatalog
from thadam_ros.errors import FatalError
from thadam_ros.model.message import TopicDeclaration

NAME = "init"
HELP = "write a first configuration from a bag or from the running graph"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--from-bag", metavar="BAG", help="rosbag2 folder or file, or ROS 1 bag")
    origin.add_argument(
        "--from-graph", action="store_true", help="topics that are published now (needs ROS 2)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="how long to look at the graph, seconds (default: 5)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def run(args: argparse.Namespace) -> int:
    """Write the document.

    Raises:
        FatalError: The bag cannot be read, nothing was found, or FILE exists.
        NeedsRosError: ``--from-graph`` without ROS.
    """
    if args.from_bag:
        origin = args.from_bag
        # Late: only this branch needs the bag libraries, which take a while to import.
        from thadam_ros.cli.bag_topics import read_topics

        topics = read_topics(Path(args.from_bag))
    else:
        origin = "the running graph"
        topics = _graph_topics(args.timeout)
    if not topics:
        raise FatalError(f"no topics were found in {origin}; nothing was written")
    text = render_initial_config(topics, origin)
    unknown = _unknown_types(topics)
    if args.output:
        _write(Path(args.output), text, args.force)
    if args.json:
        print_json(
            {
                "output": args.output,
                "topics": {t.name: t.type_name for t in topics},
                "types_not_installed": unknown,
                "document": text,
            }
        )
    elif args.output:
        print(f"wrote {args.output}: {len(topics)} topics")
        bag = f" --bag {args.from_bag}" if args.from_bag and unknown else ""
        print(f"next: thadam validate {args.output}{bag}")
        if unknown:
            print(f"to run it, install the messages of: {', '.join(unknown)}")
    else:
        sys.stdout.write(text)
    return 0


def _graph_topics(timeout_s: float) -> list[TopicDeclaration]:
    module = load_ros_module("init_graph", "thadam init --from-graph")
    topics: list[TopicDeclaration] = module.collect_topics(timeout_s)
    return topics


def _unknown_types(topics: list[TopicDeclaration]) -> list[str]:
    catalog = TypeCatalog()
    return sorted({t.type_name for t in topics if catalog.definition(t.type_name) is None})


def _write(path: Path, text: str, force: bool) -> None:
    if path.exists() and not force:
        raise FatalError(f"{path} exists; choose another -o, or overwrite it with --force")
    temp = path.with_name(f"{path.name}.tmp")
    temp.write_text(text, encoding="utf-8")
    os.replace(temp, path)
