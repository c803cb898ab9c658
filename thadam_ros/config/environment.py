# SPDX-License-Identifier: Apache-2.0
"""Expansion of ``$(env NAME default)`` in text values (spec 3.7).

Only this loader expands: launch passes parameter files as they are, so that both spellings of one
configuration mean the same. ``$$(`` stands for a literal ``$(``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from thadam_ros.config.kinds import Expanded, nearest
from thadam_ros.config.yaml_tree import join
from thadam_ros.errors import Problem

_REFERENCE: Final = re.compile(
    r"(?P<escaped>\$\$\()|\$\(env\s+(?P<name>[^\s()]+)(?:\s+(?P<default>[^()]*))?\s*\)"
)
_LOOKS_LIKE: Final = re.compile(r"(?<!\$)\$\((?P<word>[A-Za-z_]+)")
_VALUE_MAX: Final = 64 << 10


def expand_tree(
    tree: Mapping[str, object], env: Mapping[str, str], problems: list[Problem]
) -> dict[str, object]:
    """Return ``tree`` with every text expanded; what cannot be expanded becomes a problem."""
    return {key: _expand(value, join("", key), env, problems) for key, value in tree.items()}


def _expand(value: object, path: str, env: Mapping[str, str], problems: list[Problem]) -> object:
    if isinstance(value, dict):
        return {str(k): _expand(v, join(path, str(k)), env, problems) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, f"{path}[{i}]", env, problems) for i, v in enumerate(value)]
    if isinstance(value, str) and "$(" in value:
        return expand_text(value, path, env, problems)
    return value


def expand_text(text: str, path: str, env: Mapping[str, str], problems: list[Problem]) -> str:
    """Return ``text`` with its references replaced; report what is missing under ``path``."""
    replaced = False

    def value_of(match: re.Match[str]) -> str:
        nonlocal replaced
        if match["escaped"]:
            return "$("
        replaced = True
        name, default = match["name"], match["default"]
        found = env.get(name, default.rstrip() if default is not None else None)
        if found is None:
            problems.append(
                Problem(
                    path,
                    text,
                    f"the environment variable {name} is not set; set it, or give a default: "
                    f"$(env {name} value)",
                    nearest(name, list(env)),
                )
            )
            return "unset"
        return found[:_VALUE_MAX]

    out = _REFERENCE.sub(value_of, text)
    rest = _REFERENCE.sub(" ", text)
    unknown = _LOOKS_LIKE.search(rest)
    if unknown is not None:
        problems.append(
            Problem(
                path, text, f"$({unknown['word']} ...) is not known; valid is $(env NAME default)"
            )
        )
    return Expanded(out) if replaced else out


def escape(text: str) -> str:
    """Return ``text`` so that expanding it gives it back."""
    return text.replace("$(", "$$(")
