# SPDX-License-Identifier: Apache-2.0
"""Rules of ``datasets:`` that need no message definition (spec 3.2)."""

from __future__ import annotations

import re
from typing import Final

from thadam_ros.config.checks.references import topic_problem, unknown
from thadam_ros.config.schema import Config, DatasetConfig, FieldConfig
from thadam_ros.config.units import conversion_problem, unit_problem
from thadam_ros.errors import Problem

#: Columns every dataset has (spec 3.1); names with a leading _ cannot be declared anyway.
_ENVELOPE_NAMES: Final = frozenset({"sample_idx"})
_TOPIC_LEVEL: Final = re.compile(r"\{topic\.(-?\d+)\}")


def check_matches(config: Config) -> list[Problem]:
    """The source exists and can carry what is decoded."""
    problems: list[Problem] = []
    for name, dataset in config.datasets.items():
        path, match = f"datasets.{name}", dataset.match
        source = config.sources.get(match.source)
        if source is None:
            valid = config.sources
            problems.append(unknown(f"{path}.match.source", match.source, "source", valid))
        else:
            problems += _decode_problems(path, dataset, source.type)
            for index, topic in enumerate(match.topics):
                message = topic_problem(topic, source.type)
                if message is not None:
                    problems.append(Problem(f"{path}.match.topics[{index}]", topic, message))
        if match.sparkplug is None and not match.topics:
            message = "is missing; give the topics, or sparkplug with group and node"
            problems.append(Problem(f"{path}.match.topics", None, message))
        if match.sparkplug is not None and match.topics:
            message = "stands beside sparkplug, which implies its topics; keep one of them"
            problems.append(Problem(f"{path}.match.topics", list(match.topics), message))
        if match.sparkplug is not None and dataset.decode != "sparkplug_b":
            message = "does not fit match.sparkplug; valid: sparkplug_b"
            problems.append(Problem(f"{path}.decode", dataset.decode, message))
    return problems


def _decode_problems(path: str, dataset: DatasetConfig, source_type: str) -> list[Problem]:
    problems: list[Problem] = []
    decode = dataset.decode
    if decode == "cdr" and source_type == "mqtt":
        message = "does not fit a source of type mqtt; valid: json, sparkplug_b"
        problems.append(Problem(f"{path}.decode", decode, message))
    elif decode == "sparkplug_b" and source_type == "ros2":
        message = "does not fit a source of type ros2; valid: cdr, json"
        problems.append(Problem(f"{path}.decode", decode, message))
    elif decode == "cdr" and dataset.type is None:
        message = "is missing; CDR needs the message type, such as sensor_msgs/msg/Imu"
        problems.append(Problem(f"{path}.type", None, message))
    if decode != "cdr":
        if dataset.type is not None:
            problems.append(Problem(f"{path}.type", dataset.type, "exists only for decode cdr"))
        if dataset.all_fields:
            message = f"needs a message definition, which {decode} has not; declare fields"
            problems.append(Problem(f"{path}.all_fields", True, message))
    if decode != "json" and dataset.duplicates != "refuse":
        message = "exists only for decode json"
        problems.append(Problem(f"{path}.duplicates", dataset.duplicates, message))
    if dataset.gap == "publisher_sequence" and source_type != "ros2":
        message = "exists only for sources of type ros2; give a pointer such as /seq"
        problems.append(Problem(f"{path}.gap", dataset.gap, message))
    return problems


def check_fields(config: Config) -> list[Problem]:
    """Every column has one origin, a type where it needs one, and a possible conversion."""
    problems: list[Problem] = []
    for name, dataset in config.datasets.items():
        path = f"datasets.{name}"
        if not dataset.fields and not dataset.all_fields:
            message = "is missing; declare fields, or all_fields: true"
            problems.append(Problem(f"{path}.fields", None, message))
        if dataset.exclude and not dataset.all_fields:
            message = "acts only with all_fields: true"
            problems.append(Problem(f"{path}.exclude", list(dataset.exclude), message))
        ids: dict[int, str] = {}
        for field in dataset.fields.values():
            where = f"{path}.fields.{field.name}"
            problems += _origin_problems(where, field, dataset)
            problems += _unit_problems(where, field)
            if field.id is not None and ids.setdefault(field.id, field.name) != field.name:
                message = f"is the field id of {ids[field.id]} too; ids are unique"
                problems.append(Problem(f"{where}.id", field.id, message))
    return problems


def _origin_problems(path: str, field: FieldConfig, dataset: DatasetConfig) -> list[Problem]:
    problems: list[Problem] = []
    if field.metric is not None and dataset.decode != "sparkplug_b":
        problems.append(Problem(f"{path}.metric", field.metric, "exists only for sparkplug_b"))
    elif field.metric is not None and field.pointer is not None:
        message = "stands beside from; keep one of them"
        problems.append(Problem(f"{path}.metric", field.metric, message))
    elif field.metric is None and field.pointer is None and not dataset.all_fields:
        wanted = "from or metric" if dataset.decode == "sparkplug_b" else "from"
        message = f"is missing; give {wanted}, such as /header/frame_id"
        problems.append(Problem(f"{path}.from", None, message))
    if field.pointer is not None and field.pointer.startswith("./") and dataset.explode is None:
        message = "addresses an exploded element, but the dataset has no explode; valid: /name"
        problems.append(Problem(f"{path}.from", field.pointer, message, field.pointer[1:]))
    if dataset.decode != "cdr" and field.type is None:
        message = f"is missing; {dataset.decode} fields need a type, such as double or string"
        problems.append(Problem(f"{path}.type", None, message))
    return problems


def _unit_problems(path: str, field: FieldConfig) -> list[Problem]:
    if field.convert_to is not None and field.unit is None:
        message = "is missing; convert_to needs the unit of the message's value"
        return [Problem(f"{path}.unit", None, message)]
    problems = []
    for key, unit in (("unit", field.unit), ("convert_to", field.convert_to)):
        found = unit_problem(unit) if unit is not None else None
        if found is not None:
            problems.append(Problem(f"{path}.{key}", unit, found))
    if not problems and field.unit is not None and field.convert_to is not None:
        found = conversion_problem(field.unit, field.convert_to)
        if found is not None:
            problems.append(Problem(f"{path}.convert_to", field.convert_to, found))
    return problems


def check_columns(config: Config) -> list[Problem]:
    """Column names are unique: envelope, identity levels, fields."""
    problems: list[Problem] = []
    for level in config.edge.identity:
        if level in _ENVELOPE_NAMES:
            message = "is the name of an envelope column; choose another"
            problems.append(Problem(f"edge.identity.{level}", None, message))
    for name, dataset in config.datasets.items():
        path = f"datasets.{name}"
        for level in dataset.identity:
            where = f"{path}.identity.{level}"
            if level in config.edge.identity:
                message = f"repeats the level edge.identity.{level}; choose another name"
                problems.append(Problem(where, dataset.identity[level], message))
            elif level in _ENVELOPE_NAMES:
                problems.append(Problem(where, None, "is the name of an envelope column"))
        for field in dataset.fields:
            where = f"{path}.fields.{field}"
            if field in _ENVELOPE_NAMES:
                problems.append(Problem(where, None, "is the name of an envelope column"))
            elif field in config.edge.identity or field in dataset.identity:
                message = "is the name of an identity level too; columns need different names"
                problems.append(Problem(where, None, message))
    return problems


def check_events(config: Config) -> list[Problem]:
    """Event ids, deduplication, explode and time fit together."""
    problems: list[Problem] = []
    for name, dataset in config.datasets.items():
        path = f"datasets.{name}"
        levels = {*config.edge.identity, *dataset.identity}
        for index, key in enumerate(dataset.event_id_key):
            if not key.startswith("/") and key not in levels:
                where = f"{path}.event_id.key[{index}]"
                problems.append(unknown(where, key, "identity level (or a /pointer)", levels))
        if dataset.dedup is not None and not dataset.event_id_key:
            message = "is missing; dedup needs to know what makes two messages equal"
            problems.append(Problem(f"{path}.event_id.key", None, message))
        problems += _explode_problems(path, dataset)
        problems += _time_problems(path, dataset)
        problems += _identity_problems(config, path, dataset)
    return problems


def _explode_problems(path: str, dataset: DatasetConfig) -> list[Problem]:
    explode = dataset.explode
    if explode is None:
        return []
    if (explode.pointer is None) == (not explode.zip):
        message = "needs exactly one form: a pointer to an array of structures, or zip: [...]"
        return [Problem(f"{path}.explode", None, message)]
    if explode.empty_as_null and not explode.zip:
        return [Problem(f"{path}.explode.empty_as_null", True, "acts only with zip")]
    return []


def _time_problems(path: str, dataset: DatasetConfig) -> list[Problem]:
    time = dataset.time
    if time is None:
        return []
    problems: list[Problem] = []
    if time.pointer.startswith("./") and dataset.explode is None:
        message = "addresses an exploded element, but the dataset has no explode"
        problems.append(Problem(f"{path}.time.from", time.pointer, message, time.pointer[1:]))
    if dataset.decode != "cdr" and time.unit is None:
        message = f"is missing; a time in {dataset.decode} is a number, valid: s, ms, us, ns"
        problems.append(Problem(f"{path}.time.unit", None, message))
    return problems


def _identity_problems(config: Config, path: str, dataset: DatasetConfig) -> list[Problem]:
    source = config.sources.get(dataset.match.source)
    if source is None:
        return []
    problems: list[Problem] = []
    for level, value in dataset.identity.items():
        where = f"{path}.identity.{level}"
        if value.startswith("/"):
            continue
        if "{namespace}" in value and source.type != "ros2":
            problems.append(Problem(where, value, "{namespace} exists only for ros2 sources"))
        if "{device}" in value and dataset.decode != "sparkplug_b":
            problems.append(Problem(where, value, "{device} exists only for sparkplug_b"))
        if source.type == "mqtt":
            problems += _level_problems(where, value, dataset.match.topics)
    return problems


def _level_problems(path: str, value: str, topics: tuple[str, ...]) -> list[Problem]:
    for number in map(int, _TOPIC_LEVEL.findall(value)):
        for topic in topics:
            count = len(topic.split("/"))
            if not topic.endswith("#") and not -count <= number < count:
                message = f"{topic} has only the levels 0 to {count - 1}"
                return [Problem(path, value, message)]
    return []
