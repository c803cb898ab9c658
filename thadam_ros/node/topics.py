# SPDX-License-Identifier: Apache-2.0
"""Which topics of the graph are captured (spec 7.2).

A topic is taken when a dataset of the source matches it, ``also`` names it, or ``capture`` is
``all``; ``exclude`` always wins. Left out unless named literally: hidden topics (a segment that
begins with ``_``), ``/parameter_events``, ``/rosout``, transition and service events, and what
this process publishes itself.

Relative names resolve in the node's namespace and obey its remappings; a pattern with ``*``
resolves in the namespace and is held against the names in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from thadam_ros.config.schema import DatasetConfig, Ros2SourceConfig, TopicOptions
from thadam_ros.model.globs import glob_matches, resolve_name
from thadam_ros.node.qos import merge_options

_SYSTEM_TOPICS = frozenset({"/parameter_events", "/rosout"})
_SYSTEM_SUFFIXES = ("/transition_event", "/_service_event", "/_action/status")


@dataclass(frozen=True, slots=True)
class Selection:
    """A topic to capture.

    Attributes:
        original_name: Fully qualified name before remapping.
        options: What the configuration says about this topic.
    """

    name: str
    original_name: str
    options: TopicOptions


class TopicSelector:
    """Decides, for one source, about the topics that discovery finds."""

    def __init__(
        self,
        source_name: str,
        source: Ros2SourceConfig,
        datasets: Iterable[DatasetConfig],
        namespace: str,
        resolve: Callable[[str], str],
        qos_overrides: Mapping[str, TopicOptions] | None = None,
    ) -> None:
        """Prepare the patterns.

        Args:
            namespace: Of the capturing node.
            resolve: Maps a literal name to the final one, remappings applied (the node's
                ``resolve_topic_name``); it may raise for names that are no topic names.
            qos_overrides: By final name; they are stronger than the source's options.
        """
        wanted = [
            pattern
            for dataset in datasets
            if dataset.match.source == source_name
            for pattern in dataset.match.topics
        ]
        wanted.extend(source.also)
        self._everything = source.capture == "all"
        self._originals: dict[str, str] = {}
        self._literal: set[str] = set()
        self._globs: list[str] = []
        for pattern in wanted:
            absolute = resolve_name(pattern, namespace)
            if "*" in pattern:
                self._globs.append(absolute)
            else:
                final = resolve(pattern)
                self._literal.add(final)
                self._originals.setdefault(final, absolute)
        self._exclude = [
            resolve_name(pattern, namespace) if "*" in pattern else resolve(pattern)
            for pattern in source.exclude
        ]
        self._options = {
            (resolve_name(name, namespace) if "*" in name else resolve(name)): options
            for name, options in source.topics.items()
        }
        self._qos_overrides = dict(qos_overrides or {})

    @property
    def literal_names(self) -> Collection[str]:
        """Final names that the configuration spells out; their absence can be reported."""
        return self._literal

    def select(self, name: str, own: Collection[str]) -> Selection | None:
        """Return how to capture topic ``name``, or None when it is not wanted.

        Args:
            own: Topics that this process publishes.
        """
        if any(glob_matches(pattern, name) for pattern in self._exclude):
            return None
        if name not in self._literal:
            if name in own or is_system_topic(name):
                return None
            if not self._everything and not any(glob_matches(p, name) for p in self._globs):
                return None
        options = self._options_of(name)
        if name in self._qos_overrides:
            options = merge_options(options, self._qos_overrides[name])
        return Selection(name, self._originals.get(name, name), options)

    def _options_of(self, name: str) -> TopicOptions:
        exact = self._options.get(name)
        if exact is not None:
            return exact
        for pattern, options in self._options.items():
            if "*" in pattern and glob_matches(pattern, name):
                return options
        return TopicOptions()


def is_system_topic(name: str) -> bool:
    """Tell whether a topic belongs to ROS's own machinery or is hidden."""
    if name in _SYSTEM_TOPICS or name.endswith(_SYSTEM_SUFFIXES):
        return True
    return any(segment.startswith("_") for segment in name.split("/"))
