# SPDX-License-Identifier: Apache-2.0
"""What a process says about itself: its nodes' statistics as one snapshot (spec 7.3)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rclpy.node import Node

from thadam_ros.config.schema import Config
from thadam_ros.model.clock import Clock
from thadam_ros.model.states import ComponentStatistics
from thadam_ros.node.chain_node import ChainNode
from thadam_ros.node.edge_node import EdgeNode
from thadam_ros.node.isolation import ChainProcesses
from thadam_ros.node.status import (
    Snapshot,
    disk_figures,
    identity_of,
    in_order,
    readiness,
    wal_position,
)
from thadam_ros.runtime.clock_state import clock_synced_probe

_DEFAULT_REQUIRES = ("capture", "sinks")


class EdgeView:
    """Sees the whole edge: capture, the chains here, and those in processes of their own."""

    def __init__(
        self,
        edge: EdgeNode,
        chains: Sequence[ChainNode],
        clock: Clock,
        started_ns: int,
        children: ChainProcesses | None,
    ) -> None:
        self._edge = edge
        self._chains = tuple(chains)
        self._clock = clock
        self._started_ns = started_ns
        self._children = children
        self._config: Config | None = None

    def components(self) -> tuple[ComponentStatistics, ...]:
        """Return the statistics of every component."""
        found = self._edge.statistics()
        for chain in self._chains:
            found.extend(chain.statistics())
        if self._children is not None:
            found.extend(self._children.statistics())
        return in_order(found)

    def ready(self) -> tuple[bool, str]:
        """Return whether the edge is ready, and why not."""
        return self._readiness(self.components())

    def snapshot(self) -> Snapshot:
        """Return everything at this moment."""
        components = self.components()
        ready, reason = self._readiness(components)
        config = self._known_config()
        edge, robot = identity_of(config)
        wal = self._edge.wal
        statistics = wal.statistics() if wal is not None else None
        used, budget, free = disk_figures(config, statistics)
        return Snapshot(
            stamp_ns=self._clock.time_ns(),
            started_ns=self._started_ns,
            edge=edge,
            robot=robot,
            config_hash=config.config_hash if config is not None else "",
            ready=ready,
            reason=reason,
            clock_synced=config is not None and clock_synced_probe(config.edge.clock)(),
            wal_epoch=wal.epoch if wal is not None else 0,
            wal_durable_position=wal_position(statistics),
            wal_bytes=used,
            wal_budget_bytes=budget,
            filesystem_free_bytes=free,
            components=components,
            foreign=self._children.foreign() if self._children is not None else frozenset(),
        )

    def status_directory(self) -> str | None:
        """Return the folder of the status files, None before the first ``configure``."""
        return _status_directory(self._known_config())

    def own_topics(self) -> tuple[str, ...]:
        """Return what the nodes of this process publish; capture leaves it out."""
        names = {"/diagnostics"}
        for node in (self._edge, *self._chains):
            names.update(_published_by(node))
        return tuple(sorted(names))

    def _readiness(self, components: Sequence[ComponentStatistics]) -> tuple[bool, str]:
        config = self._known_config()
        requires = config.edge.ready_requires if config is not None else _DEFAULT_REQUIRES
        return readiness(components, self._edge.capturing, requires)

    def _known_config(self) -> Config | None:
        """Return the configuration in force, or the last one after a clean-up."""
        loaded = self._edge.loaded or next((c.loaded for c in self._chains if c.loaded), None)
        if loaded is not None:
            self._config = loaded.config
        return self._config


class ChainView:
    """Sees one isolated chain."""

    def __init__(self, chain: ChainNode, clock: Clock, started_ns: int) -> None:
        self._chain = chain
        self._clock = clock
        self._started_ns = started_ns

    def snapshot(self) -> Snapshot:
        """Return the chain's part; the WAL's figures are the edge's business."""
        components = in_order(self._chain.statistics())
        config = self._chain.loaded.config if self._chain.loaded is not None else None
        edge, robot = identity_of(config)
        return Snapshot(
            stamp_ns=self._clock.time_ns(),
            started_ns=self._started_ns,
            edge=edge,
            robot=robot,
            config_hash=config.config_hash if config is not None else "",
            ready=self._chain.state_label == "active",
            reason=components[0].state.reason,
            clock_synced=False,
            wal_epoch=0,
            wal_durable_position=-1,
            wal_bytes=0,
            wal_budget_bytes=0,
            filesystem_free_bytes=0,
            components=components,
        )

    def status_directory(self) -> str | None:
        """Return the folder of the status files, None before the first ``configure``."""
        loaded = self._chain.loaded
        return _status_directory(loaded.config if loaded is not None else None)


def _status_directory(config: Config | None) -> str | None:
    return None if config is None else os.path.join(config.edge.data_dir, "status")


def _published_by(node: Node) -> list[str]:
    found = node.get_publisher_names_and_types_by_node(node.get_name(), node.get_namespace())
    return [name for name, _ in found]
