# SPDX-License-Identifier: Apache-2.0
"""Globs over slash-separated names: ``*`` inside one segment, ``**`` over segments (spec 3.2)."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob; it must match the whole name."""
    parts: list[str] = []
    for piece in re.split(r"(\*\*|\*)", pattern):
        if piece == "**":
            parts.append(".*")
        elif piece == "*":
            parts.append("[^/]*")
        else:
            parts.append(re.escape(piece))
    return re.compile("".join(parts), re.DOTALL)


def glob_matches(pattern: str, name: str) -> bool:
    """Tell whether ``name`` matches ``pattern`` as a whole."""
    return compile_glob(pattern).fullmatch(name) is not None


def resolve_name(name: str, namespace: str) -> str:
    """Return the fully qualified form of a topic name or pattern in ``namespace``.

    Absolute names stay as they are; a pattern that starts with ``**`` is absolute too, since it
    already covers every namespace.
    """
    if name.startswith(("/", "**")):
        return name
    return f"{namespace.rstrip('/')}/{name}"
