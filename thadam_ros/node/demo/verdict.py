# SPDX-License-Identifier: Apache-2.0
"""The end of a run: balance sheet, checks, queries to paste; from what lies on disk alone."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from thadam_ros.config.schema import SinkConfig
from thadam_ros.node.demo.arrivals import WalContents, read_wal
from thadam_ros.node.demo.balance import make_sheet, stamped_counts, total
from thadam_ros.node.demo.checks import (
    Check,
    SinkFacts,
    arrivals_of,
    capture_checks,
    published_checks,
    robot_checks,
    sheet_checks,
    sink_checks,
)
from thadam_ros.node.demo.ledger import Ledger, read_ledger
from thadam_ros.node.demo.losses import kill_losses
from thadam_ros.node.demo.queries import make_queries
from thadam_ros.node.demo.screen import Screen
from thadam_ros.node.demo.stage import Stage
from thadam_ros.node.demo.story import BROKEN_SINK, Story
from thadam_ros.node.demo.tables import read_tables
from thadam_ros.quarantine.staging import read_staging
from thadam_ros.runtime.loading import LoadedConfig, load_path
from thadam_ros.storage.filesystem import OsFileSystem


def give_verdict(story: Story, stage: Stage, screen: Screen) -> bool:
    """Print everything a run shows; True when all of it is as it must be.

    Raises:
        ThadamError, OSError: Something on disk cannot be read.
    """
    fs = OsFileSystem()
    loaded = load_path(stage.config, {**os.environ, "THADAM_DEMO_DIR": str(story.output)})
    ledger = read_ledger(str(story.ledger_path))
    contents = read_wal(str(story.data_dir / "wal"), ledger, fs)
    kills = story.facts.kills
    interval_ns = loaded.config.wal.commit_interval_ns
    checks = [
        Check("exit code of the edge after SIGINT", 0, story.facts.exit_code),
        Check(f"sink {BROKEN_SINK} was seen Degraded", True, story.facts.was_degraded),
        Check(f"sink {BROKEN_SINK} was seen running again", True, story.facts.was_healed),
        *capture_checks(ledger, contents, kills, interval_ns),
        _lost_check(ledger, contents, story),
    ]
    if stage.plan is not None:
        checks += published_checks(stage.plan, ledger)
    arrivals = arrivals_of(ledger, contents)
    for sink in _primary_first(loaded):
        facts = _sink_facts(loaded, sink, story)
        sheet = make_sheet(ledger, contents, facts.counts, story.facts.refused)
        if sink.primary:
            screen.sheet(sink.name, [*sheet, total(sheet)], dict(facts.tables.rows))
        checks += sheet_checks(sink.name, sheet)
        checks += sink_checks(facts, contents)
        if stage.plan is not None:
            checks += robot_checks(stage.plan, ledger, arrivals, facts)
    _show_losses(ledger, contents, story, screen)
    is_fine = screen.checks(checks)
    _show_queries(story, screen)
    return is_fine


def _primary_first(loaded: LoadedConfig) -> list[SinkConfig]:
    return sorted(loaded.config.sinks.values(), key=lambda sink: (not sink.primary, sink.name))


def _sink_facts(loaded: LoadedConfig, sink: SinkConfig, story: Story) -> SinkFacts:
    fs = OsFileSystem()
    folder = story.data_dir / "chains" / sink.name
    cursor, counts = stamped_counts(str(folder), fs)
    rejects = Counter(r.error_code for r in read_staging(str(folder / "staging"), fs))
    return SinkFacts(
        name=sink.name,
        datasets=loaded.datasets_of(sink),
        cursor=cursor,
        counts=counts,
        rejects=rejects,
        tables=read_tables(Path(sink.url)),
    )


def _lost_check(ledger: Ledger, contents: WalContents, story: Story) -> Check:
    """Hold capture's own count of losses, after its last start, against the log's."""
    started_ns = max(story.facts.kills, default=0)
    lost: Counter[str] = Counter()
    for publisher in ledger.publishers:
        numbers = {
            arrived.number
            for arrived in contents.arrived
            if arrived.publisher == publisher.index and arrived.ingest_ns > started_ns
        }
        if numbers:
            lost[publisher.topic] += max(numbers) - min(numbers) + 1 - len(numbers)
    counted = {topic: count for topic, count in story.facts.lost_by_capture.items() if count}
    expected = {
        topic: count
        for topic, count in lost.items()
        if count and topic in story.facts.lost_by_capture
    }
    return Check("lost on each topic since the restart, as capture counted", expected, counted)


def _show_losses(ledger: Ledger, contents: WalContents, story: Story, screen: Screen) -> None:
    for loss in kill_losses(ledger, contents, story.facts.kills):
        again = "nothing was taken afterwards"
        if loss.blind_ns is not None:
            again = f"the first message was taken again after {loss.blind_ns / 1e9:.2f} s"
        screen.console.print(
            f"The SIGKILL cost {loss.before} reliable messages that were not durable yet (loss"
            f" window {loss.window_ns / 1e6:.0f} ms) and {loss.after} published while nobody"
            f" listened ({again})."
        )


def _show_queries(story: Story, screen: Screen) -> None:
    lake = story.output / "lake"
    kill_ns = story.facts.kills[-1] if story.facts.kills else None
    queries = make_queries(lake, kill_ns)
    path = story.output / "queries.sql"
    text = "\n\n".join(f"-- {title}\n{sql}" for title, sql in queries)
    path.write_text(text + "\n", encoding="utf-8")
    screen.console.print(f"\nQueries to paste into DuckDB (also in {path}):\n\n{text}\n")
    print_them = (
        "import duckdb, sys; "
        '[print(duckdb.sql(q)) for q in open(sys.argv[1]).read().split(";") if q.strip()]'
    )
    screen.console.print("All of them at once, in the environment (. scripts/env):\n")
    screen.console.print(f"{os.path.basename(sys.executable)} -c '{print_them}' {path}")
    screen.console.print("\nQuarantine by code:\n")
    screen.console.print(f"thadam quarantine ls {story.data_dir}\n")
