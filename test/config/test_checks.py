# SPDX-License-Identifier: Apache-2.0
"""Promises of the rules across a document (spec 2, 3.2, 3.5, 5.1, 6)."""

from __future__ import annotations

import pytest

from thadam_ros.config.loader import load_document

from .documents import ENV, load_small, only_problem, problems_of, small

IMU = "all_fields: true"
JSON = "fields: {temp: {from: /t, type: double}}"
END = "sinks:"
LAKE = "url: /lake}"


def _steps(*steps: str) -> tuple[str, str]:
    return (END, f"transforms: [{', '.join(steps)}]\n{END}")


def _files(text: str) -> tuple[str, str]:
    defaults = {"watch": "/w", "source": "robot", "sink": "lake", "datasets": "[imu]"}
    given = dict(part.split(": ", 1) for part in text.split(" | ") if part)
    body = ", ".join(f"{k}: {v}" for k, v in {**defaults, **given}.items())
    return (END, f"files: {{f: {{{body}}}}}\n{END}")


@pytest.mark.parametrize(
    ("change", "path", "valid"),
    [
        # spec 3.2: match, decode, type
        (("source: robot", "source: rebot"), "datasets.imu.match.source", "cell, robot"),
        (("topics: [imu/data]", "topics: []"), "datasets.imu.match.topics", "give the topics"),
        (("[imu/data]", '["imu/+"]'), "datasets.imu.match.topics[0]", "* inside one segment"),
        (("[plant/+/temp]", '["plant/#/temp"]'), "datasets.temperature.match.topics[0]", "last"),
        (("[plant/+/temp]", '["plant/*/temp"]'), "datasets.temperature.match.topics[0]", "+ for"),
        (("decode: json", "decode: cdr"), "datasets.temperature.decode", "json, sparkplug_b"),
        (("    type: sensor_msgs/msg/Imu\n", ""), "datasets.imu.type", "sensor_msgs/msg/Imu"),
        (("sensor_msgs/msg/Imu", "sensor_msgs/Imu"), "datasets.imu.type", "sensor_msgs/msg/Imu"),
        (("decode: json", "decode: json\n    type: a/msg/B"), "datasets.temperature.type", "cdr"),
        ((JSON, "all_fields: true"), "datasets.temperature.all_fields", "declare fields"),
        ((IMU, "gap: /x\n    fields: {}"), "datasets.imu.fields", "all_fields: true"),
        ((IMU, "exclude: [/x]\n    fields: {x: /y}"), "datasets.imu.exclude", "all_fields: true"),
        ((IMU, f"{IMU}\n    duplicates: last"), "datasets.imu.duplicates", "json"),
        ((JSON, JSON + "\n    gap: publisher_sequence"), "datasets.temperature.gap", "/seq"),
        # fields
        ((JSON, "fields: {temp: /t}"), "datasets.temperature.fields.temp.type", "double"),
        ((IMU, "fields: {x: ./y}"), "datasets.imu.fields.x.from", "no explode"),
        ((IMU, "fields: {x: {required: true}}"), "datasets.imu.fields.x.from", "is missing"),
        ((IMU, "fields: {x: {from: /y, metric: a}}"), "datasets.imu.fields.x.metric", "sparkplug"),
        ((IMU, "fields: {x: {from: /y, unit: parsec2x}}"), "datasets.imu.fields.x.unit", "pint"),
        (
            (IMU, "fields: {x: {from: /y, unit: m, convert_to: s}}"),
            "datasets.imu.fields.x.convert_to",
            "both must measure",
        ),
        ((IMU, "fields: {x: {from: /y, convert_to: s}}"), "datasets.imu.fields.x.unit", "missing"),
        (
            (IMU, "fields: {x: {from: /x, id: 100}, y: {from: /y, id: 100}}"),
            "datasets.imu.fields.y.id",
            "unique",
        ),
        # columns
        ((IMU, "identity: {robot: a}\n    " + IMU), "datasets.imu.identity.robot", "another name"),
        ((IMU, "fields: {robot: /x}"), "datasets.imu.fields.robot", "identity level"),
        ((IMU, "fields: {sample_idx: /x}"), "datasets.imu.fields.sample_idx", "envelope"),
        (("robot: r7", "sample_idx: r7"), "edge.identity.sample_idx", "envelope"),
        (
            (IMU, "identity: {x: '{topik.1}'}\n    " + IMU),
            "datasets.imu.identity.x",
            "{topic.N}",
        ),
        (
            (JSON, "identity: {x: '{topic.3}'}\n    " + JSON),
            "datasets.temperature.identity.x",
            "levels 0 to 2",
        ),
        (
            (JSON, "identity: {x: '{namespace}'}\n    " + JSON),
            "datasets.temperature.identity.x",
            "ros2",
        ),
        ((IMU, "identity: {x: '{device}'}\n    " + IMU), "datasets.imu.identity.x", "sparkplug"),
        # events, explode, time
        ((IMU, f"{IMU}\n    dedup: {{window: 1s}}"), "datasets.imu.event_id.key", "dedup needs"),
        (
            (IMU, f"{IMU}\n    event_id: {{key: [robto]}}"),
            "datasets.imu.event_id.key[0]",
            "robot",
        ),
        ((IMU, f"{IMU}\n    explode: {{}}"), "datasets.imu.explode", "exactly one form"),
        (
            (IMU, f"{IMU}\n    explode: {{from: /a, zip: [/b]}}"),
            "datasets.imu.explode",
            "exactly one form",
        ),
        (
            (IMU, f"{IMU}\n    explode: {{from: /a, empty_as_null: true}}"),
            "datasets.imu.explode.empty_as_null",
            "zip",
        ),
        (("from: /header/stamp", "from: ./stamp"), "datasets.imu.time.from", "no explode"),
        (("domain: utc", "domain: gps"), "datasets.imu.time.domain", "utc, tai, monotonic"),
        (
            (JSON, f"{JSON}\n    time: {{from: /ts}}"),
            "datasets.temperature.time.unit",
            "s, ms, us, ns",
        ),
        (("from: /header/stamp", "from: /header/stamp, unit: min"), "datasets.imu.time.unit", "ms"),
        # sources, wal, quarantine
        (("mqtt://broker", "http://broker"), "sources.cell.url", "mqtt://host"),
        (("mqtt://broker", "mqtt://u:secret@broker"), "sources.cell.url", "password_env"),
        (("client_id: edge", "client_id: e, password_env: P"), "sources.cell.user", "needs a user"),
        (
            ("client_id: edge", "client_id: e, user: u, password_env: P, password_file: /p"),
            "sources.cell.password_file",
            "keep one",
        ),
        (("{type: ros2}", "{type: ros2, url: /x}"), "sources.robot.url", "mqtt"),
        (
            (END, f"wal: {{budget: 10GiB, replay_window: 8GiB}}\n{END}"),
            "wal.replay_window",
            "below 8GiB",
        ),
        ((END, f"wal: {{budget: 100MiB}}\n{END}"), "wal.budget", "at least 128MiB"),
        ((END, f"quarantine: {{deliver_to: lak}}\n{END}"), "quarantine.deliver_to", "lake"),
        ((END, f"quarantine: {{format: ndjson}}\n{END}"), "quarantine.format", "parquet"),
        # sinks
        ((LAKE, "url: lake}"), "sinks.lake.url", "an absolute folder"),
        ((LAKE, 'url: /lake, datasets: ["*", imu]}'), "sinks.lake.datasets", '["*"] alone'),
        ((LAKE, "url: /lake, datasets: []}"), "sinks.lake.datasets", "not be empty"),
        ((LAKE, "url: /lake, batch: {max_rows: 1}}"), "sinks.lake.batch", "clickhouse"),
        (
            (LAKE, f"{LAKE}\n  two: {{type: parquet, url: /lake/}}"),
            "sinks.two.url",
            "own url or file_prefix",
        ),
        (
            (
                LAKE,
                "url: /lake, primary: true}\n  two: {type: parquet, url: /l, primary: true}",
            ),
            "sinks.two.primary",
            "at most one",
        ),
        # transforms
        (_steps("{name: a, kind: window}"), "transforms.a.kind", "not in this version"),
        (_steps("{name: a, kind: fliter, keep: x}"), "transforms.a.kind", "filter"),
        (_steps("{name: a, kind: filter}"), "transforms.a.keep", "is missing"),
        (_steps("{name: a, kind: order, keep: x}"), "transforms.a.keep", "filter"),
        (_steps("{name: a, kind: order, dataset: imx}"), "transforms.a.dataset", "imu"),
        (_steps("{name: a, kind: order, sinks: [lak]}"), "transforms.a.sinks[0]", "lake"),
        (_steps("{name: a, kind: sample}"), "transforms.a", "exactly one of every and interval"),
        (_steps("{name: a, kind: validate, columns: [x]}"), "transforms.a", "checks nothing"),
        (
            _steps("{name: a, kind: validate, columns: [x], range: [2, 1]}"),
            "transforms.a.range",
            "lower first",
        ),
        (
            _steps("{name: a, kind: order}", "{name: a, kind: order}"),
            "transforms[1].name",
            "its own",
        ),
        # files (spec 6)
        (_files("source: cel"), "files.f.source", "cell, robot"),
        (_files("sink: lak"), "files.f.sink", "lake"),
        (_files("datasets: [temperature]"), "files.f.datasets[0]", "matches source cell"),
        (_files("dead_letter: {dir: /bad}"), "files.f.dead_letter", "max_invalid_rows"),
        (
            _files("dead_letter: {dir: /w/../w/bad, max_invalid_rows: 1}"),
            "files.f.dead_letter.dir",
            "outside",
        ),
        (
            _files("dead_letter: {dir: /bad, max_invalid_fraction: 1.5}"),
            "files.f.dead_letter.max_invalid_fraction",
            "0 to 1",
        ),
        (_files("allow_empty: true"), "files.f.allow_empty", "dead_letter"),
        (_files("cdc: true"), "files.f.cdc", "not in this version"),
        (
            (END, f"files: {{a: {{{_files('')[1][12:-8]}, b: {{{_files('')[1][12:-8]}}}\n{END}"),
            "files.b.watch",
            "overlaps",
        ),
    ],
)
def test_a_rule_names_the_place_and_what_is_valid(
    change: tuple[str, str], path: str, valid: str
) -> None:
    """One mistake, one problem."""
    problem = only_problem(small(change))
    assert problem.path == path
    assert valid in problem.message, problem.message


def test_sample_is_refused_for_files() -> None:
    """A File is loaded whole (spec 6)."""
    step = "transforms: [{name: thin, kind: sample, every: 2, dataset: imu}]\n"
    text = small(_files("")).replace(END, step + END)
    assert "thin" in only_problem(text).message
    elsewhere = text.replace("dataset: imu}]", "dataset: temperature}]")
    assert not problems_of(elsewhere)


def test_files_go_to_parquet_or_clickhouse() -> None:
    """Other sinks are refused with that sentence."""
    sinks = (LAKE, f"{LAKE}\n  bus: {{type: nats, url: 'nats://n:4222'}}")
    assert "in this version" in only_problem(small(_files("sink: bus"), sinks)).message


def test_an_absent_part_is_named() -> None:
    """An empty document is told everything it needs."""
    assert [p.path for p in problems_of("schema: 1\n")] == ["edge", "sources", "datasets", "sinks"]
    found = problems_of("edge: {data_dir: /d}\nsources: {}\ndatasets: {}\nsinks: {}\n")
    assert [p.path for p in found] == ["sources", "datasets", "sinks"]


def test_one_wrong_value_causes_one_problem() -> None:
    """A wrong type does not make every key of that type wrong."""
    problem = only_problem(small(("{type: ros2}", "{type: ros, capture: all, exclude: [/x]}")))
    assert (problem.path, problem.suggestion) == ("sources.robot.type", "ros2")


def test_a_mistyped_key_is_not_missing_as_well() -> None:
    """The nearest key counts as given; what depends on it is not reported either."""
    for old, new, path in (
        ("data_dir:", "data_dri:", "edge.data_dri"),
        ("all_fields:", "all_field:", "datasets.imu.all_field"),
        ("topics: [imu", "topic: [imu", "datasets.imu.match.topic"),
        ("    type: sensor", "    typ: sensor", "datasets.imu.typ"),
    ):
        assert only_problem(small((old, new))).path == path


def test_secrets_are_refused_everywhere_and_never_shown() -> None:
    """Whatever they are called; the message does not repeat them."""
    for key in ("password", "token", "secret_access_key", "api_key", "private_key"):
        problem = only_problem(small((LAKE, f"url: /lake, {key}: hunter2}}")))
        assert problem.path == f"sinks.lake.{key}"
        assert f"{key}_env" in problem.message
        assert "hunter2" not in str(problem)


def test_short_and_long_forms_are_the_same() -> None:
    """``x: /p`` is ``x: {from: /p}``; ``explode: /p`` is ``explode: {from: /p}``."""
    short = load_small((IMU, "explode: /a\n    fields: {x: ./p}"))
    long = load_small((IMU, "explode: {from: /a}\n    fields: {x: {from: ./p}}"))
    assert short == long


def test_a_batch_has_defaults_of_its_own() -> None:
    """Brokers publish small batches, Parquet large files; half a map keeps the other half."""
    text = small(
        (LAKE, f"{LAKE}\n  bus: {{type: nats, url: 'nats://n:4222', batch: {{max_rows: 7}}}}")
    )
    sinks = load_document(text, ENV).sinks
    assert (sinks["bus"].rotation.max_rows, sinks["bus"].rotation.max_age_ns) == (7, 5 * 10**9)
    assert sinks["lake"].rotation.max_age_ns == 900 * 10**9
    quarantine = load_small(
        (END, f"quarantine: {{rotation: {{max_bytes: 1MiB}}}}\n{END}")
    ).quarantine
    assert quarantine.rotation.max_age_ns == 3600 * 10**9
