# SPDX-License-Identifier: Apache-2.0
"""The loader meets anything with ConfigError or a configuration, never with another exception."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thadam_ros.config.canonical import document_tree
from thadam_ros.config.document import render_yaml
from thadam_ros.config.loader import load_document, load_parameters, load_tree
from thadam_ros.config.parameters import parameter_specs, parameters_from_tree
from thadam_ros.config.schema import Config
from thadam_ros.errors import ConfigError

from .documents import CHECKOUT, ENV

EXAMPLE = (CHECKOUT / "config" / "thadam.yaml").read_text()
TREE = yaml.safe_load(EXAMPLE)
FLAT = parameters_from_tree(TREE)

SPECIAL = (
    "5s|1GiB|/x|./x|*|**|$(env|$(env X)|$(env X y)|{topic.0}|cdr|mqtt|parquet|list<double>|{|m/s"
    "|degC|99999999999999999999999999s|window|ndjson|/var/lib|yes|1e3"
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(SPECIAL.split("|")),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["from", "type", "name", "kind", "x", "é"]), inner),
    ),
    max_leaves=8,
)
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _paths(tree: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += _paths(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            found += _paths(value, (*path, index))
    return found


PATHS = _paths(TREE)


def _attempt(load: Callable[[], Config]) -> Config | None:
    """Return what was loaded; None when it was refused with at least one readable problem."""
    try:
        return load()
    except ConfigError as exc:
        readable = [str(problem) for problem in exc.problems]
    assert readable
    assert all(readable)
    return None


def _accepts(text: str) -> None:
    config = _attempt(lambda: load_document(text + "\n", ENV))
    if config is not None:
        assert load_document(render_yaml(config), {}).config_hash == config.config_hash


@RELAXED
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=4))
def test_wrong_values_anywhere_are_problems(
    changes: list[tuple[tuple[object, ...], object]],
) -> None:
    """Any value in any place of a real document; what is accepted survives a round trip."""
    tree = copy.deepcopy(TREE)
    for path, value in changes:
        node = tree
        try:
            for part in path[:-1]:
                node = node[part]
            node[path[-1]] = copy.deepcopy(value)
        except (TypeError, KeyError, IndexError):
            continue
    config = _attempt(lambda: load_tree(tree, ENV))
    if config is None:
        return
    again = document_tree(config)
    flat = {name: _escaped(value) for name, value in parameters_from_tree(again).items()}
    assert load_parameters(flat, {}) == config
    assert load_document(render_yaml(config), {}) == config
    parameter_specs(again)


def _escaped(value: object) -> object:
    if isinstance(value, list):
        return [_escaped(v) for v in value]
    return value.replace("$(", "$$(") if isinstance(value, str) else value


@RELAXED
@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from(sorted(FLAT)),
            st.sampled_from(sorted(FLAT)).map(lambda name: name + ".x"),
            st.text(alphabet="abc._/", max_size=12),
        ),
        VALUES,
        max_size=5,
    )
)
def test_wrong_parameters_are_problems(changes: dict[str, object]) -> None:
    """Any value under any name, beside the parameters of a real configuration."""
    _attempt(lambda: load_parameters({**FLAT, **changes}, ENV))


@RELAXED
@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_problems(text: str) -> None:
    """YAML syntax included."""
    _accepts(text)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_documents_are_problems(seed: int) -> None:
    """Characters lost, doubled and replaced in a real document."""
    rng = random.Random(seed)
    text = list(EXAMPLE)
    for _ in range(rng.randrange(1, 30)):
        place = rng.randrange(len(text))
        action = rng.randrange(3)
        if action == 0:
            del text[place : place + rng.randrange(1, 40)]
        elif action == 1:
            text.insert(place, rng.choice(text))
        else:
            text[place] = rng.choice("{}[]:,&*!|>'\"%@`#\t\n\\ -?0é\x07")
    _accepts("".join(text))
