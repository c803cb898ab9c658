# SPDX-License-Identifier: Apache-2.0
"""A configuration ready to run: loaded, planned, held against lock file and installation.

``thadam validate``, the nodes and the tools all come through here, so that they agree on what is
valid. Problems of the document raise; what only this installation lacks (a driver, a library) is
listed as ``obstacles``, because a laptop may well check a robot's document.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from thadam_ros.config.canonical import datasets_of, row_hash
from thadam_ros.config.document import render_yaml
from thadam_ros.config.kinds import nearest
from thadam_ros.config.loader import load_merged, merged_document, read_document
from thadam_ros.config.schema import Config, SinkConfig
from thadam_ros.config.yaml_tree import Document
from thadam_ros.dataset.lock import DatasetLock, parse_lock, render_lock
from thadam_ros.dataset.plan import Catalog, DatasetPlan, plan_dataset
from thadam_ros.errors import ConfigError, FormatError, Problem
from thadam_ros.sinks import DRIVERS
from thadam_ros.storage.atomic import read_whole, replace_durably
from thadam_ros.storage.filesystem import FileSystem, OsFileSystem

if TYPE_CHECKING:
    from thadam_ros.sinks import DriverEntry


@dataclass(frozen=True)
class LoadedConfig:
    """A valid configuration with everything worked out.

    Attributes:
        plans: Dataset -> plan with the transforms of all sinks.
        merged_yaml: The complete document as loaded; loads to the same hash.
        lock: What the lock file is to hold from now on.
        lock_path: Where it stands.
        lock_changed: The file does not hold ``lock`` yet.
        notes: What a person should know, one sentence each, dataset first.
        obstacles: Why this installation cannot run it.
    """

    config: Config
    plans: Mapping[str, DatasetPlan]
    merged_yaml: str
    lock: DatasetLock
    lock_path: str
    lock_changed: bool = False
    notes: tuple[str, ...] = ()
    obstacles: tuple[Problem, ...] = ()
    sink_plans: Mapping[tuple[str, str], DatasetPlan] = field(default_factory=dict)

    def datasets_of(self, sink: SinkConfig) -> tuple[str, ...]:
        """Return the names of the datasets that ``sink`` takes, sorted."""
        return datasets_of(self.config, sink)

    def plan_for(self, dataset: str, sink: str) -> DatasetPlan:
        """Return the plan of a dataset with the transforms that run for ``sink``."""
        return self.sink_plans.get((dataset, sink), self.plans[dataset])

    def require_runnable(self) -> None:
        """Raise unless this installation can run the configuration.

        Raises:
            ConfigError: With all obstacles.
        """
        if self.obstacles:
            raise ConfigError(self.obstacles)


def load_path(
    path: str | Path,
    env: Mapping[str, str],
    *,
    catalog: Catalog | None = None,
    lock_path: str | None = None,
    fs: FileSystem | None = None,
) -> LoadedConfig:
    """Load a YAML document from a file.

    Args:
        env: What ``$(env NAME)`` may use, such as ``os.environ``.
        catalog: Finds message definitions; default the installed ones.
        lock_path: Lock file, where neither the document nor its place decides.

    Raises:
        ConfigError: With all problems.
        FormatError: The lock file is not one, or of another version.
    """
    document = read_document(Path(path))
    return _load(document, env, str(path), catalog, lock_path, fs)


def load_text(
    text: str,
    env: Mapping[str, str],
    *,
    catalog: Catalog | None = None,
    lock_path: str | None = None,
    fs: FileSystem | None = None,
) -> LoadedConfig:
    """Load a YAML document from its text; arguments and errors as :func:`load_path`."""
    return _load(read_document(text + "\n"), env, "", catalog, lock_path, fs)


def load_parameters(
    flat: Mapping[str, object],
    env: Mapping[str, str],
    *,
    base_document: str | Path | None = None,
    catalog: Catalog | None = None,
    lock_path: str | None = None,
    fs: FileSystem | None = None,
    ignore: Sequence[str] = (),
    parameter_lines: Mapping[str, int] | None = None,
    problems: Sequence[Problem] = (),
) -> LoadedConfig:
    """Load ROS parameters, over the document that ``config_file`` names.

    Args:
        flat: Dotted name -> value; parameters of the process are skipped.
        base_document: A path in place of ``config_file``.
        ignore: Further parameter names that are no part of the configuration.
        parameter_lines: Lines of the parameters in their file, for messages.
        problems: What reading that file found already.

    Raises:
        ConfigError, FormatError: As :func:`load_path`.
    """
    document = merged_document(
        flat, env, base_document, ignore=ignore, parameter_lines=parameter_lines
    )
    document.problems[:0] = problems
    named = base_document if base_document is not None else flat.get("config_file")
    return _load(document, env, str(named or ""), catalog, lock_path, fs)


def save_lock(loaded: LoadedConfig, fs: FileSystem) -> None:
    """Write the lock file if it changed, so that field ids stay what they are.

    Raises:
        OSError: From the filesystem.
    """
    if not loaded.lock_changed:
        return
    fs.makedirs(os.path.dirname(loaded.lock_path))
    replace_durably(fs, loaded.lock_path, render_lock(loaded.lock).encode())


class _Planner:
    """Plans every dataset while the loader checks, so that all problems come at once."""

    def __init__(
        self, catalog: Catalog, find_lock: Callable[[Config], tuple[str, DatasetLock]]
    ) -> None:
        self._catalog = catalog
        self._find_lock = find_lock
        self.plans: dict[str, DatasetPlan] = {}
        self.lock = DatasetLock()
        self.before = DatasetLock()
        self.lock_path = ""

    def check(self, config: Config) -> list[Problem]:
        """Plan the sound datasets; return what planning found."""
        self.lock_path, self.before = self._find_lock(config)
        self.lock = self.before
        problems: list[Problem] = []
        for name, dataset in config.datasets.items():
            plan, found = plan_dataset(
                dataset,
                config.edge.identity,
                self._catalog,
                self.before,
                config.limits,
                config.transforms,
                "",
            )
            problems += [_with_nearest_type(p, name) for p in found]
            self.plans[name] = plan
            if not found and plan.supported:
                self.lock = self.lock.with_version(name, dataset.version, plan.pinned)
        return problems

    def for_sinks(self, config: Config) -> dict[tuple[str, str], DatasetPlan]:
        """Return plans per sink where a transform runs for some sinks only."""
        plans: dict[tuple[str, str], DatasetPlan] = {}
        limited = {t.dataset for t in config.transforms if t.sinks}
        if not limited:
            return plans
        for sink in config.sinks.values():
            for name in datasets_of(config, sink):
                if None not in limited and name not in limited:
                    continue
                plans[name, sink.name], _ = plan_dataset(
                    config.datasets[name],
                    config.edge.identity,
                    self._catalog,
                    self.lock,
                    config.limits,
                    config.transforms,
                    row_hash(config, name, sink.name),
                    sink=sink.name,
                )
        return plans


def _load(
    document: Document,
    env: Mapping[str, str],
    config_file: str,
    catalog: Catalog | None,
    lock_path: str | None,
    fs: FileSystem | None,
) -> LoadedConfig:
    files = fs or OsFileSystem()

    def find_lock(config: Config) -> tuple[str, DatasetLock]:
        path = lock_path or default_lock_path(config, config_file)
        return path, read_lock(path, files)

    planner = _Planner(catalog if catalog is not None else _default_catalog(), find_lock)
    config = load_merged(document, env, checks=[planner.check])
    plans = {
        name: replace(plan, row_hash=config.row_hashes[name])
        for name, plan in planner.plans.items()
    }
    notes = [f"{name}: {note}" for name, plan in plans.items() for note in plan.notes]
    return LoadedConfig(
        config=config,
        plans=plans,
        merged_yaml=render_yaml(config),
        lock=planner.lock,
        lock_path=planner.lock_path,
        lock_changed=planner.lock != planner.before,
        notes=tuple(notes),
        obstacles=tuple(obstacles_of(config, plans)),
        sink_plans=planner.for_sinks(config),
    )


def _with_nearest_type(problem: Problem, dataset: str) -> Problem:
    """Add the well-known type that a mistyped one was probably meant to be."""
    if problem.path != f"datasets.{dataset}.type" or problem.suggestion is not None:
        return problem
    from rosbags.typesys import Stores, get_typestore

    known = sorted(get_typestore(Stores.LATEST).fielddefs)
    close = nearest(problem.value, known)
    return problem if close == problem.value else replace(problem, suggestion=close)


def _default_catalog() -> Catalog:
    from thadam_ros.decode.catalog import TypeCatalog

    return TypeCatalog()


def default_lock_path(config: Config, config_file: str) -> str:
    """Return where the lock file stands (spec 3.2)."""
    if config.edge.lock_file is not None:
        return config.edge.lock_file
    if config_file:
        return os.path.abspath(config_file) + ".lock"
    return os.path.join(config.edge.data_dir, "config", "datasets.lock")


def read_lock(path: str, fs: FileSystem) -> DatasetLock:
    """Return the lock file's content; an absent file promises nothing.

    Raises:
        FormatError: It is not a lock file, or of another version.
    """
    try:
        data = read_whole(fs, path)
    except FileNotFoundError:
        return DatasetLock()
    except OSError as exc:
        raise FormatError(f"the lock file {path} cannot be read: {exc.strerror}") from exc
    try:
        return parse_lock(data.decode("utf-8"))
    except (FormatError, UnicodeDecodeError) as exc:
        raise FormatError(f"{path}: {exc}") from exc


def obstacles_of(
    config: Config,
    plans: Mapping[str, DatasetPlan],
    drivers: Mapping[str, DriverEntry] = DRIVERS,
) -> list[Problem]:
    """Return why this installation cannot run ``config``: drivers, libraries, decoders."""
    found: list[Problem] = []
    usable = ", ".join(name for name, entry in drivers.items() if entry.target)
    for name, sink in config.sinks.items():
        path, entry = f"sinks.{name}.type", drivers.get(sink.type)
        if entry is None or not entry.target:
            message = f"has no driver in this version; types with a driver: {usable}"
            found.append(Problem(path, sink.type, message))
            continue
        missing = [lib for lib in entry.libraries if importlib.util.find_spec(lib) is None]
        if missing:
            message = (
                f"needs the library {', '.join(missing)}; install it with: "
                f"pip install 'thadam_ros[{entry.extra}]'"
            )
            found.append(Problem(path, sink.type, message))
    for name, plan in plans.items():
        if not plan.supported:
            found.append(Problem(f"datasets.{name}", None, plan.reason))
    return found
