# SPDX-License-Identifier: Apache-2.0
"""A configuration as a YAML document: complete, units spelled out, loads to the same hash."""

from __future__ import annotations

from typing import Any

import yaml

from thadam_ros.config.canonical import document_tree
from thadam_ros.config.environment import escape
from thadam_ros.config.schema import Config
from thadam_ros.config.settings import settings_of


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes every text, so that no reader guesses a type; never writes an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = text.replace("_", "a").isalnum() and not text[:1].isdigit()
    reserved = text.lower() in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    style = None if plain and text.isascii() and not reserved else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted)


def render_yaml(config: Config) -> str:
    """Return ``config`` as a document with every default written out."""
    tree = document_tree(config)
    ordered = {key: tree[key] for key in ("schema", *settings_of(Config)) if key in tree}
    head = f"# Merged configuration of thadam_ros, complete with defaults: {config.config_hash}\n"
    return head + render_tree(ordered)


def render_tree(tree: dict[str, object]) -> str:
    """Return a tree as YAML; text that looks like a reference stays text when it is loaded."""
    text: str = yaml.dump(
        _escaped(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _escaped(value: object) -> object:
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(inner) for inner in value]
    return escape(value) if isinstance(value, str) else value
