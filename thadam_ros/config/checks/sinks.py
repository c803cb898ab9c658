# SPDX-License-Identifier: Apache-2.0
"""Rules of ``sinks:``, ``transforms:`` and ``files:`` (spec 3.5, 5.1, 6)."""

from __future__ import annotations

from typing import Final

from thadam_ros.config.canonical import datasets_of
from thadam_ros.config.checks.edge import check_password, check_url
from thadam_ros.config.checks.references import is_inside, unknown
from thadam_ros.config.schema import Config, FilePipelineConfig, SinkConfig, TransformConfig
from thadam_ros.errors import Problem

_SCHEMES: Final = {
    "clickhouse": ("http", "https"),
    "kafka": ("kafka", "kafkas"),
    "nats": ("nats", "tls"),
    "mqtt": ("mqtt", "mqtts"),
}
#: Sinks that Files can be loaded into in this version (spec 6).
_FILE_SINKS: Final = ("parquet", "clickhouse")


def check_sinks(config: Config) -> list[Problem]:
    """Datasets exist, one primary at most, URLs fit, nobody writes into another's files."""
    problems: list[Problem] = []
    primary: str | None = None
    for name, sink in config.sinks.items():
        path = f"sinks.{name}"
        problems += _dataset_problems(f"{path}.datasets", sink.datasets, config)
        if sink.primary and primary is not None:
            message = f"{primary} is primary already; at most one sink is"
            problems.append(Problem(f"{path}.primary", True, message))
        primary = name if sink.primary and primary is None else primary
        problems += _url_problems(path, sink)
        options = sink.options
        problems += check_password(
            path, options.get("user"), options.get("password_env"), options.get("password_file")
        )
        levels = set(config.edge.identity)
        for index, level in enumerate(_names(options.get("key"))):
            carried = [config.datasets[n] for n in datasets_of(config, sink)]
            if level not in levels and not all(level in d.identity for d in carried):
                problems.append(unknown(f"{path}.key[{index}]", level, "identity level", levels))
    return problems + _shared_folders(config)


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, tuple) else ()


def _dataset_problems(path: str, names: tuple[str, ...], config: Config) -> list[Problem]:
    if "*" in names and len(names) > 1:
        return [Problem(path, list(names), 'is "*" and more; valid: ["*"] alone, or names')]
    return [
        unknown(f"{path}[{i}]", name, "dataset", config.datasets)
        for i, name in enumerate(names)
        if name != "*" and name not in config.datasets
    ]


def _url_problems(path: str, sink: SinkConfig) -> list[Problem]:
    if sink.type != "parquet":
        return check_url(f"{path}.url", sink.url, _SCHEMES[sink.type]) if sink.type else []
    url = sink.url
    if url.startswith("/") and "://" not in url:
        return []
    if url.startswith("file:///") or (url.startswith("s3://") and url[5:].strip("/")):
        return []
    message = "is not a place for Parquet files; valid: an absolute folder, file:///..., s3://..."
    return [Problem(f"{path}.url", url, message)]


def _shared_folders(config: Config) -> list[Problem]:
    problems: list[Problem] = []
    seen: list[SinkConfig] = []
    for sink in config.sinks.values():
        if sink.type != "parquet":
            continue
        for other in seen:
            both = set(datasets_of(config, sink)) & set(datasets_of(config, other))
            same = sink.url.rstrip("/") == other.url.rstrip("/")
            if same and both and sink.file_prefix == other.file_prefix:
                message = (
                    f"is the folder of sink {other.name} too, for {', '.join(sorted(both))}; "
                    "give each its own url or file_prefix"
                )
                problems.append(Problem(f"sinks.{sink.name}.url", sink.url, message))
        seen.append(sink)
    return problems


def check_transforms(config: Config) -> list[Problem]:
    """Targets exist and options make sense."""
    problems: list[Problem] = []
    for step in config.transforms:
        path = f"transforms.{step.name}"
        if step.dataset is not None and step.dataset not in config.datasets:
            problems.append(unknown(f"{path}.dataset", step.dataset, "dataset", config.datasets))
        for index, sink in enumerate(step.sinks):
            if sink not in config.sinks:
                problems.append(unknown(f"{path}.sinks[{index}]", sink, "sink", config.sinks))
        problems += _option_problems(path, step)
        if step.kind == "object_ref":
            for sink_config in config.sinks.values():
                taken = not step.sinks or sink_config.name in step.sinks
                if taken and sink_config.type != "parquet":
                    message = (
                        f"works for parquet sinks only, and sink {sink_config.name} is "
                        f"{sink_config.type}; name the parquet sinks in sinks"
                    )
                    problems.append(Problem(f"{path}.sinks", None, message))
                    break
    return problems


def _option_problems(path: str, step: TransformConfig) -> list[Problem]:
    options, problems = step.options, []
    for key in ("range", "length"):
        pair = options.get(key)
        if not isinstance(pair, tuple) or not pair:
            continue
        if len(pair) != 2 or pair[0] > pair[1]:
            message = "must be two numbers, the lower first"
            problems.append(Problem(f"{path}.{key}", list(pair), message))
    if step.kind == "validate" and not any(
        options.get(k) for k in ("range", "required", "finite", "enum", "length")
    ):
        message = "checks nothing; give one of range, required, finite, enum, length"
        problems.append(Problem(path, None, message))
    if step.kind == "sample" and (options.get("every") is None) == (
        options.get("interval") is None
    ):
        problems.append(Problem(path, None, "needs exactly one of every and interval"))
    if step.kind == "pose" and len(_names(options.get("quaternion"))) != 4:
        columns = list(_names(options.get("quaternion")))
        message = "must be the four columns of x, y, z, w"
        problems.append(Problem(f"{path}.quaternion", columns, message))
    return problems


def check_files(config: Config) -> list[Problem]:
    """Rules of chapter 6."""
    problems: list[Problem] = []
    for name, pipeline in config.files.items():
        path = f"files.{name}"
        if pipeline.source not in config.sources:
            problems.append(unknown(f"{path}.source", pipeline.source, "source", config.sources))
        problems += _dataset_problems(f"{path}.datasets", pipeline.datasets, config)
        sink = config.sinks.get(pipeline.sink)
        fitting = [n for n, s in config.sinks.items() if s.type in _FILE_SINKS]
        if sink is None:
            problems.append(unknown(f"{path}.sink", pipeline.sink, "sink", fitting))
        elif sink.type and sink.type not in _FILE_SINKS:
            message = (
                f"is a sink of type {sink.type}; files go to a sink of type parquet or clickhouse "
                f"in this version, valid: {', '.join(fitting) or 'none is configured'}"
            )
            problems.append(Problem(f"{path}.sink", pipeline.sink, message))
        else:
            problems += _carried_problems(path, pipeline, sink, config)
        problems += _sample_problems(path, pipeline, config)
        problems += _dead_letter_problems(path, pipeline)
    return problems + _watch_problems(config)


def _carried_problems(
    path: str, pipeline: FilePipelineConfig, sink: SinkConfig, config: Config
) -> list[Problem]:
    problems: list[Problem] = []
    carried = datasets_of(config, sink)
    for index, name in enumerate(pipeline.datasets):
        where = f"{path}.datasets[{index}]"
        dataset = config.datasets.get(name)
        if dataset is None:
            continue
        if name not in carried:
            message = f"is not taken by sink {sink.name}; it takes: {', '.join(carried)}"
            problems.append(Problem(where, name, message))
        elif {pipeline.source, dataset.match.source} <= set(
            config.sources
        ) and dataset.match.source != pipeline.source:
            message = (
                f"matches source {dataset.match.source}, and this pipeline stands for "
                f"{pipeline.source}; no row of a file could match"
            )
            problems.append(Problem(where, name, message))
    return problems


def _sample_problems(path: str, pipeline: FilePipelineConfig, config: Config) -> list[Problem]:
    for step in config.transforms:
        names = pipeline.datasets
        hit = step.dataset is None or "*" in names or step.dataset in names
        if step.kind == "sample" and hit and (not step.sinks or pipeline.sink in step.sinks):
            message = f"meets the transform {step.name} of kind sample, which files refuse"
            return [Problem(f"{path}.datasets", list(names), message)]
    return []


def _dead_letter_problems(path: str, pipeline: FilePipelineConfig) -> list[Problem]:
    letter = pipeline.dead_letter
    if letter is None:
        if pipeline.allow_empty:
            return [Problem(f"{path}.allow_empty", True, "acts only with dead_letter")]
        return []
    problems: list[Problem] = []
    if letter.max_invalid_fraction is None and letter.max_invalid_rows is None:
        message = "has no limit; give max_invalid_fraction (0 to 1) or max_invalid_rows (from 0)"
        problems.append(Problem(f"{path}.dead_letter", None, message))
    if is_inside(letter.dir, pipeline.watch):
        message = f"lies inside the watched folder {pipeline.watch}; choose a folder outside"
        problems.append(Problem(f"{path}.dead_letter.dir", letter.dir, message))
    return problems


def _watch_problems(config: Config) -> list[Problem]:
    problems: list[Problem] = []
    seen: list[FilePipelineConfig] = []
    for pipeline in config.files.values():
        for other in seen:
            if is_inside(pipeline.watch, other.watch) or is_inside(other.watch, pipeline.watch):
                message = f"overlaps the folder of files.{other.name}: {other.watch}"
                problems.append(Problem(f"files.{pipeline.name}.watch", pipeline.watch, message))
        seen.append(pipeline)
    return problems
