# SPDX-License-Identifier: Apache-2.0
"""``thadam validate``: check a configuration as the nodes will, all problems at once."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from thadam_ros.cli.terminal import print_json, print_table, problem_document
from thadam_ros.config.parameter_files import parse_parameter_file
from thadam_ros.dataset.plan import Catalog
from thadam_ros.runtime.loading import LoadedConfig, load_parameters, load_path

NAME = "validate"
HELP = "check a configuration and say what it means"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("document", nargs="?", help="thadam.yaml")
    parser.add_argument(
        "--parameters", metavar="FILE", help="ROS parameter file; its values override the document"
    )
    parser.add_argument(
        "--node", default="thadam", help="whose parameters in the file (default: thadam)"
    )
    parser.add_argument("--namespace", default="/", help="the node's namespace (default: /)")
    parser.add_argument(
        "--bag", metavar="BAG", help="a bag whose stored message definitions count as installed"
    )
    parser.add_argument("--columns", action="store_true", help="list every column")
    parser.add_argument("--merged", action="store_true", help="print the complete merged document")
    parser.add_argument(
        "--runnable", action="store_true", help="also fail when this installation cannot run it"
    )


def run(args: argparse.Namespace) -> int:
    """Check and summarize; problems leave as ConfigError, which main() prints.

    Raises:
        ConfigError: With all problems.
        FormatError: The lock file is not one.
    """
    if not args.document and not args.parameters:
        args.document = "thadam.yaml"
    loaded = _load(args)
    if args.runnable:
        loaded.require_runnable()
    if args.json:
        print_json(summary(loaded))
    elif args.merged:
        print(loaded.merged_yaml, end="")
    else:
        _print(loaded, args)
    return 0


def _load(args: argparse.Namespace) -> LoadedConfig:
    catalog: Catalog | None = None
    if args.bag:
        # Late: only this branch needs the bag libraries, which take a while to import.
        from thadam_ros.cli.bag_topics import bag_catalog

        catalog = bag_catalog(Path(args.bag))
    if not args.parameters:
        return load_path(args.document, os.environ, catalog=catalog)
    text = Path(args.parameters).read_text(encoding="utf-8")
    file = parse_parameter_file(text, args.node, args.namespace)
    return load_parameters(
        file.flat,
        os.environ,
        base_document=Path(args.document) if args.document else None,
        catalog=catalog,
        parameter_lines=file.lines,
        problems=file.problems,
    )


def summary(loaded: LoadedConfig) -> dict[str, object]:
    """Return everything ``--json`` prints."""
    config = loaded.config
    datasets = {}
    for name, plan in loaded.plans.items():
        dataset = config.datasets[name]
        datasets[name] = {
            "source": dataset.match.source,
            "topics": list(dataset.match.topics),
            "decode": dataset.decode,
            "type": dataset.type,
            "version": dataset.version,
            "row_hash": config.row_hashes[name],
            "sinks": [s.name for s in config.sinks.values() if name in loaded.datasets_of(s)],
            "columns": [
                {"name": f.name, "type": str(f.type), "id": f.field_id, "unit": f.unit}
                for f in plan.fields
            ],
        }
    return {
        "valid": True,
        "config_hash": config.config_hash,
        "lock_file": loaded.lock_path,
        "lock_changed": loaded.lock_changed,
        "datasets": datasets,
        "sinks": {s.name: {"type": s.type, "url": s.url} for s in config.sinks.values()},
        "transforms": {t.name: config.transform_hashes[t.name] for t in config.transforms},
        "notes": list(loaded.notes),
        "obstacles": [problem_document(p) for p in loaded.obstacles],
    }


def _print(loaded: LoadedConfig, args: argparse.Namespace) -> None:
    config = loaded.config
    source = " + ".join(n for n in (args.document, args.parameters) if n)
    print(f"{source} is valid")
    print(f"config hash  {config.config_hash}")
    print(f"lock file    {loaded.lock_path}{' (to be written)' if loaded.lock_changed else ''}")
    print()
    rows = []
    for name, plan in loaded.plans.items():
        dataset = config.datasets[name]
        sinks = [s.name for s in config.sinks.values() if name in loaded.datasets_of(s)]
        carried = ", ".join(dataset.match.topics) or "sparkplug"
        rows.append(
            (
                name,
                dataset.version,
                f"{dataset.match.source}: {carried}",
                dataset.type or dataset.decode,
                len(plan.fields),
                ", ".join(sinks) or "none",
                config.row_hashes[name][:12],
            )
        )
    print_table(("dataset", "version", "from", "type", "columns", "sinks", "row hash"), rows)
    if args.columns:
        for name, plan in loaded.plans.items():
            print()
            columns = [(f.field_id, f.name, f.type, f.unit or "") for f in plan.fields]
            print_table(("id", "column", "type", "unit"), columns, title=name)
    if loaded.notes:
        print()
        for note in loaded.notes:
            print(f"note: {note}")
    if loaded.obstacles:
        print()
        print("this installation cannot run it:")
        for problem in loaded.obstacles:
            print(f"  {problem}")
