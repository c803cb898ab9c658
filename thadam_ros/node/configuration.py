# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a process get their configuration: document, parameters, environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from thadam_ros.config.loader import merged_document
from thadam_ros.config.parameters import ParameterSpec, named_items, parameter_specs
from thadam_ros.errors import ConfigError, Problem
from thadam_ros.runtime.loading import LoadedConfig, load_parameters
from thadam_ros.storage.filesystem import FileSystem

Flat = Mapping[str, object]


@dataclass(slots=True)
class ConfigSource:
    """Merges what the nodes of the process were given into one configuration.

    Attributes:
        env: What ``$(env NAME)`` may use.
        use_sim_time: Whether source stamps are simulated time (spec 7.2).
        lock_path: Lock file, where neither the document nor its place decides.
    """

    fs: FileSystem
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    use_sim_time: bool = False
    lock_path: str | None = None
    _givers: list[Callable[[], Flat]] = field(default_factory=list)
    #: Signature and tree: every node of the process asks for it while it is made.
    _tree: tuple[object, dict[str, object]] | None = None

    def add(self, given: Callable[[], Flat]) -> None:
        """Register a node's given parameters; later nodes win."""
        self._givers.append(given)

    def flat(self) -> dict[str, object]:
        """Return all given parameters of the process."""
        merged: dict[str, object] = {}
        for given in self._givers:
            merged.update(given())
        if self.use_sim_time:
            # The loader turns it into the time domain of the datasets.
            merged["use_sim_time"] = True
        return merged

    def load(self) -> LoadedConfig:
        """Load and check everything.

        Raises:
            ConfigError: With all problems.
            FormatError: The lock file is not one, or of another version.
        """
        return load_parameters(self.flat(), self.env, lock_path=self.lock_path, fs=self.fs)

    def tree(self) -> dict[str, object]:
        """Return the document tree as far as it can be read, valid or not."""
        signature = self.document_signature()
        if self._tree is None or self._tree[0] != signature:
            self._tree = (signature, dict(merged_document(self.flat(), self.env).tree))
        return dict(self._tree[1])

    def specs(self) -> list[ParameterSpec]:
        """Return the parameters that the present tree has."""
        return parameter_specs(self.tree())

    def sink_names(self) -> tuple[str, ...]:
        """Return the names of the configured sinks, valid or not, sorted."""
        return tuple(sorted(named_items(self.tree().get("sinks"))))

    def document_signature(self) -> tuple[object, ...]:
        """Return what changes when the document or a parameter changes."""
        flat = self.flat()
        path = str(flat.get("config_file") or "")
        try:
            status = os.stat(path) if path else None
        except OSError:
            status = None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino) if status else ()
        return (path, stamp, tuple(sorted((k, repr(v)) for k, v in flat.items())))


def require_no_obstacles(loaded: LoadedConfig, concerns: Callable[[str], bool]) -> None:
    """Raise when this installation lacks something that a component needs.

    Args:
        concerns: Tells by a problem's path whether the component needs it.

    Raises:
        ConfigError: With all obstacles that concern it.
    """
    problems = [problem for problem in loaded.obstacles if concerns(problem.path)]
    if problems:
        raise ConfigError(problems)


def changed_sinks(before: Iterable[str], now: Iterable[str]) -> ConfigError:
    """Return the error of a configuration whose set of sinks is not the process's (spec 7.1)."""
    was, wanted = ", ".join(sorted(before)) or "none", ", ".join(sorted(now)) or "none"
    return ConfigError(
        [
            Problem(
                "sink_names",
                wanted,
                f"the set of sinks changed since the process started with {was}; "
                "every sink has a node of its own: restart the process",
            )
        ]
    )
