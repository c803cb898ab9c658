# SPDX-License-Identifier: Apache-2.0
"""YAML text to a plain tree, with line numbers and nothing that YAML does behind one's back.

Scalars follow the YAML 1.2 core schema (``on``, ``no`` and ``10:30`` are text), keys are always
text, repeated keys are problems, and the tree's size and depth are bounded however often an
alias repeats a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from thadam_ros.errors import Problem

_NODES_MAX: Final = 200_000
DEPTH_MAX: Final = 40
_TEXT_MAX: Final = 8 << 20
_INT = re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,22}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: What the composer resolves by itself, and ``!``, which only says "text".
_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "merge")
) | {"!"}
_SPECIAL: Final = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass(slots=True)
class Document:
    """A parsed document.

    Attributes:
        tree: The root map; empty when there is none.
        lines: Dotted path -> line, from 1.
        problems: What is wrong with it as YAML.
    """

    tree: dict[str, object] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def join(path: str, key: str) -> str:
    """Return the dotted path of ``key`` under ``path``."""
    return f"{path}.{key}" if path else key


def parse_yaml(text: str) -> Document:
    """Parse one YAML document whose root is a map; never raises for bad input."""
    document = Document()
    if len(text) > _TEXT_MAX:
        document.problems.append(Problem("", None, f"is longer than {_TEXT_MAX >> 20} MiB"))
        return document
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        what = getattr(exc, "problem", None) or str(exc).splitlines()[0]
        line = mark.line + 1 if mark is not None else None
        document.problems.append(Problem("", None, f"is not valid YAML: {what}", line=line))
        return document
    except RecursionError:
        document.problems.append(Problem("", None, f"nests deeper than {DEPTH_MAX} levels"))
        return document
    if root is None:
        return document
    value = _Converter(document).convert(root, "", 0)
    if isinstance(value, dict):
        document.tree = value
    elif not document.problems:
        document.problems.append(
            Problem("", value, "must be a map with keys such as edge, sources")
        )
    return document


class _Converter:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        self._stopped = False

    def convert(self, node: yaml.Node, path: str, depth: int) -> object:
        self._nodes += 1
        if self._nodes > _NODES_MAX or depth > DEPTH_MAX:
            if not self._stopped:
                self._stopped = True
                limit = f"{DEPTH_MAX} levels" if depth > DEPTH_MAX else f"{_NODES_MAX} values"
                self._problem(node, path, None, f"the document has more than {limit}")
            return None
        if path:
            self._document.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._problem(node, path, None, f"has the YAML tag {tag}, which means nothing here")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self.convert(item, f"{path}[{i}]", depth + 1) for i, item in items]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, object]:
        out: dict[str, object] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            if self._stopped:
                break
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, None, "keys must be plain text")
                continue
            key = str(key_node.value)
            if key == "<<" and key_node.style is None:
                self._problem(key_node, join(path, key), None, "merge keys are not supported here")
                continue
            if key in first_line:
                message = f"stands here twice, first in line {first_line[key]}; keep one"
                self._problem(key_node, join(path, key), None, message)
                continue
            first_line[key] = key_node.start_mark.line + 1
            self._document.lines[join(path, key)] = first_line[key]
            out[key] = self.convert(value_node, join(path, key), depth + 1)
        return out

    def _scalar(self, node: yaml.Node, path: str) -> object:
        text = str(node.value)
        if node.tag != "!" and not node.tag.startswith("tag:yaml.org,2002:"):
            self._problem(
                node, path, text, f"has the YAML tag {node.tag}, which means nothing here"
            )
            return text
        # The tag is that of YAML 1.1; only whether the text was quoted matters here.
        return text if getattr(node, "style", None) is not None else _core_value(text)

    def _problem(self, node: yaml.Node, path: str, value: object, message: str) -> None:
        line = node.start_mark.line + 1
        self._document.problems.append(Problem(path, value, message, line=line))


def _core_value(text: str) -> object:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INT.fullmatch(text):
        if text.startswith(("0x", "0o")):
            return int(text, 0)
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.lower() in _SPECIAL:
        return float(_SPECIAL[text.lower()])
    return text
