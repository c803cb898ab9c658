# SPDX-License-Identifier: Apache-2.0
"""ROS parameter files without ROS: which node's values, as flat dotted names.

The rules are those of rcl's parser: keys at the top name nodes (``/**``, ``/r1/thadam``,
``thadam``), later matching keys win, arrays have one type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from thadam_ros.config.yaml_tree import join, parse_yaml
from thadam_ros.errors import Problem

_PARAMETERS: Final = "ros__parameters"


@dataclass(slots=True)
class ParameterFile:
    """Values of one node.

    Attributes:
        flat: Dotted name -> value.
        lines: Dotted name -> line.
    """

    flat: dict[str, object] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse_parameter_file(text: str, node: str = "thadam", namespace: str = "/") -> ParameterFile:
    """Return what a parameter file says to one node; never raises for bad input."""
    document = parse_yaml(text)
    out = ParameterFile(problems=list(document.problems))
    full = f"/{namespace.strip('/')}/{node}".replace("//", "/")
    matched = False
    for key, section in document.tree.items():
        path = join("", key)
        if not isinstance(section, dict) or _PARAMETERS not in section:
            message = f"must hold {_PARAMETERS}; valid is a node's name, such as /**"
            out.problems.append(Problem(path, None, message, line=document.lines.get(path)))
            continue
        if not _matches(key, full):
            continue
        matched = True
        values = section[_PARAMETERS]
        if isinstance(values, dict):
            _flatten(values, "", join(path, _PARAMETERS), document.lines, out)
    if document.tree and not matched and not out.problems:
        keys = ", ".join(document.tree)
        message = f"has no section for {full}; it has: {keys}. Use /**, or name the node"
        out.problems.append(Problem("", None, message))
    return out


def _matches(key: str, full: str) -> bool:
    parts = [p for p in key.split("/") if p]
    if not key.startswith("/") and "*" not in key and full != f"/{key.strip('/')}":
        # A bare name stands for the root namespace alone.
        return False
    pattern = "".join(
        "(/[^/]+)*" if part == "**" else "/" + re.escape(part).replace(r"\*", "[^/]+")
        for part in parts
    )
    return re.fullmatch(pattern, full) is not None


def _flatten(
    value: dict[str, object],
    name: str,
    path: str,
    lines: dict[str, int],
    out: ParameterFile,
) -> None:
    for key, inner in value.items():
        here, there = join(name, key), join(path, key)
        if isinstance(inner, dict):
            _flatten(inner, here, there, lines, out)
            continue
        line = lines.get(there)
        if line is not None:
            out.lines[here] = line
        message = _array_problem(inner)
        if message is not None:
            out.problems.append(Problem(here, None, message, line=line))
        elif inner is not None:
            out.flat[here] = inner
            _item_lines(here, there, inner, lines, out)


def _item_lines(
    here: str, there: str, inner: object, lines: dict[str, int], out: ParameterFile
) -> None:
    if isinstance(inner, list):
        for index in range(len(inner)):
            line = lines.get(f"{there}[{index}]")
            if line is not None:
                out.lines[f"{here}[{index}]"] = line


def _array_problem(value: object) -> str | None:
    if not isinstance(value, list) or not value:
        return None
    if any(isinstance(item, (dict, list)) or item is None for item in value):
        return (
            "is a list of maps or lists, which is no ROS parameter; use a map by name, and list "
            "the names (transform_names for transforms)"
        )
    if len({type(item) for item in value}) > 1:
        return "mixes types, which ROS parameter arrays cannot; write all items the same way"
    return None
