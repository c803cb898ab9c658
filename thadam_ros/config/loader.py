# SPDX-License-Identifier: Apache-2.0
"""The one loader of configurations: documents, ROS parameters, and both merged (spec 3.7).

Order: parse, merge (parameters over the document), expand ``$(env ...)``, build typed records,
check across records, hash. Every step reports into one list, so that all problems come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from thadam_ros.config.build import Builder
from thadam_ros.config.canonical import config_hash, row_hash, transform_hash
from thadam_ros.config.checks import CHECKS
from thadam_ros.config.environment import expand_tree
from thadam_ros.config.parameters import tree_from_parameters
from thadam_ros.config.schema import Config
from thadam_ros.config.yaml_tree import Document, join, parse_yaml
from thadam_ros.errors import ConfigError, Problem

#: Key -> its neighbour: when that one was given wrongly, this one is not judged (it may be another
#: way to say the same, or depend on it).
_NEIGHBOURS: Final = {"fields": "all_fields", "topics": "sparkplug", "convert_to": "unit"}

#: A check across a whole configuration, such as planning its datasets.
Check = Callable[[Config], "list[Problem]"]


def load_document(
    text_or_path: str | Path, env: Mapping[str, str], *, checks: Sequence[Check] = ()
) -> Config:
    """Load a YAML document.

    Args:
        text_or_path: A path, or the text itself (text has a line break or a ``key: value``).
        env: What ``$(env NAME)`` may use, such as ``os.environ``.
        checks: Further checks that need upper layers; wrong values are replaced by defaults in
            what they see, and what they say about those is dropped.

    Raises:
        ConfigError: With all problems.
    """
    document = read_document(text_or_path)
    return load_merged(document, env, checks=checks)


def load_parameters(
    flat: Mapping[str, object],
    env: Mapping[str, str],
    base_document: str | Path | None = None,
    *,
    checks: Sequence[Check] = (),
    ignore: Sequence[str] = (),
) -> Config:
    """Load ROS parameters, over the document that ``config_file`` names.

    Args:
        flat: Dotted name -> value; process parameters are skipped.
        base_document: Text or path; default what the parameter ``config_file`` names.
        ignore: Further names that are no part of the tree.

    Raises:
        ConfigError: With all problems.
    """
    document = merged_document(flat, env, base_document, ignore=ignore)
    return load_merged(document, env, checks=checks)


def load_tree(
    tree: Mapping[str, object], env: Mapping[str, str], *, checks: Sequence[Check] = ()
) -> Config:
    """Load a tree that was parsed or merged before.

    Raises:
        ConfigError: With all problems.
    """
    document = Document()
    document.tree = _name_transforms(dict(tree), document.lines, document.problems)
    return load_merged(document, env, checks=checks)


def read_document(text_or_path: str | Path) -> Document:
    """Parse a document; problems, also of reading the file, are in the result."""
    text = text_or_path
    if isinstance(text, Path) or ("\n" not in text and ": " not in text and text.strip() != ""):
        try:
            text = Path(text).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as exc:
            cause = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
            message = f"cannot be read: {cause}; give a readable file"
            return Document(problems=[Problem("", str(text), message)])
    document = parse_yaml(text)
    document.tree = _name_transforms(document.tree, document.lines, document.problems)
    return document


def merged_document(
    flat: Mapping[str, object],
    env: Mapping[str, str],
    base_document: str | Path | None = None,
    *,
    ignore: Sequence[str] = (),
    parameter_lines: Mapping[str, int] | None = None,
) -> Document:
    """Return the document that parameters and their base document make, unexpanded.

    Args:
        parameter_lines: Lines of the parameters; used where no document stands below, since a
            line says nothing when two files may be meant.
    """
    named = flat.get("config_file")
    if base_document is None and isinstance(named, str) and named:
        problems: list[Problem] = []
        expanded = expand_tree({"config_file": named}, env, problems)["config_file"]
        if problems:
            return Document(problems=problems)
        base_document = Path(str(expanded))
    base = read_document(base_document) if base_document else Document()
    lines = {p: n for p, n in base.lines.items() if p not in flat}
    if not base_document:
        lines = dict(parameter_lines or {})
    document = Document(lines=lines, problems=list(base.problems))
    document.tree = tree_from_parameters(flat, base.tree, document.problems, ignore)
    if flat.get("use_sim_time") is True:
        document.tree = _simulated(document.tree)
    return document


def _simulated(tree: dict[str, object]) -> dict[str, object]:
    """Give the source times of ros2 datasets the domain ``sim`` (spec 3.2, 7.2).

    It happens in the tree, so that hashes and the merged document say so.
    """
    sources, datasets = tree.get("sources"), tree.get("datasets")
    if not isinstance(sources, dict) or not isinstance(datasets, dict):
        return tree
    out: dict[str, object] = {}
    for name, dataset in datasets.items():
        match = dataset.get("match") if isinstance(dataset, dict) else None
        source = sources.get(match.get("source")) if isinstance(match, dict) else None
        is_ros2 = isinstance(source, dict) and source.get("type") == "ros2"
        if isinstance(dataset, dict) and is_ros2 and isinstance(dataset.get("time"), dict):
            dataset = {**dataset, "time": {**dataset["time"], "domain": "sim"}}
        out[name] = dataset
    return {**tree, "datasets": out}


def load_merged(
    document: Document, env: Mapping[str, str], *, checks: Sequence[Check] = ()
) -> Config:
    """Load a parsed document, as :func:`read_document` or :func:`merged_document` give it.

    Raises:
        ConfigError: With all problems.
    """
    problems = list(document.problems)
    early = len(problems)
    tree = expand_tree(document.tree, env, problems)
    builder = Builder(lines=dict(document.lines), problems=problems)
    builder.broken.update(p.path for p in problems if p.path)
    problems[early:] = [
        replace(p, line=document.lines.get(p.path, p.line)) for p in problems[early:]
    ]
    if any(p.path in ("", "config_file") for p in problems[:early]) and not tree:
        # Without a readable document every required key would be reported as missing.
        raise ConfigError(problems)
    built: Config = builder.record(Config, tree, "")
    for check in CHECKS:
        _report(builder, check(built))
    usable = _usable_part(built, builder)
    for check in checks:
        _report(builder, check(usable))
    if builder.problems:
        raise ConfigError(sorted(builder.problems, key=_place))
    return hashed(built)


def _holds_any(path: str, inner: Iterable[str]) -> bool:
    """Tell whether one of ``inner`` lies in ``path``: then the cause has been named already."""
    return any(p.startswith((f"{path}.", f"{path}[")) for p in inner)


def _report(builder: Builder, problems: Iterable[Problem]) -> None:
    """Add what a check found, unless it only follows from a value that was replaced."""
    wrong = frozenset(builder.broken)
    for problem in problems:
        outer, _, last = problem.path.rpartition(".")
        other = join(outer, _NEIGHBOURS.get(last, ""))
        if not _holds_any(problem.path, wrong) and not builder.is_broken(other):
            builder.report(problem.path, problem.value, problem.message, problem.suggestion)


def _usable_part(config: Config, builder: Builder) -> Config:
    """Return ``config`` without the steps that have problems and the datasets that are no maps."""
    paths = [p.path for p in builder.problems]

    def is_sound(path: str) -> bool:
        return path not in paths and not _holds_any(path, paths)

    return replace(
        config,
        datasets={
            n: d for n, d in config.datasets.items() if not builder.is_broken(f"datasets.{n}")
        },
        transforms=tuple(t for t in config.transforms if is_sound(f"transforms.{t.name}")),
    )


def _place(problem: Problem) -> tuple[int, int]:
    """Sort by line where lines are known; keep the order of discovery else."""
    return (0, problem.line) if problem.line is not None else (1, 0)


def hashed(config: Config) -> Config:
    """Return ``config`` with its hashes."""
    return replace(
        config,
        config_hash=config_hash(config),
        row_hashes={name: row_hash(config, name) for name in config.datasets},
        transform_hashes={t.name: transform_hash(config, t.name) for t in config.transforms},
    )


def _name_transforms(
    tree: dict[str, object], lines: dict[str, int], problems: list[Problem]
) -> dict[str, object]:
    """Turn the list of named items into a map, which keeps their order."""
    items = tree.get("transforms")
    if not isinstance(items, list):
        return tree
    named: dict[str, object] = {}
    for index, item in enumerate(items):
        where = f"transforms[{index}]"
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(name, str):
            message = "must be a map with the keys name and kind"
            problems.append(Problem(where, None, message, line=lines.get(where)))
            continue
        if name in named:
            message = "another transform has this name; give each its own"
            problems.append(Problem(join(where, "name"), name, message, line=lines.get(where)))
            continue
        named[name] = {k: v for k, v in item.items() if k != "name"}
        for path in [p for p in lines if p == where or p.startswith((where + ".", where + "["))]:
            lines[join("transforms", name) + path[len(where) :]] = lines[path]
    return {**tree, "transforms": named}
