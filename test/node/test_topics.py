# SPDX-License-Identifier: Apache-2.0
"""Which topics are captured (spec 7.2)."""

from __future__ import annotations

import pytest

from thadam_ros.config.schema import DatasetConfig, MatchConfig, Ros2SourceConfig, TopicOptions
from thadam_ros.model.globs import resolve_name

pytest.importorskip("rclpy", reason="thadam_ros.node needs rclpy")

from thadam_ros.node.topics import TopicSelector


def dataset(*topics: str, source: str = "robot") -> DatasetConfig:
    return DatasetConfig("d", MatchConfig(source, topics))


def selector(
    *datasets: DatasetConfig,
    remaps: dict[str, str] | None = None,
    namespace: str = "/r1",
    **source: object,
) -> TopicSelector:
    def resolve(name: str) -> str:
        absolute = resolve_name(name, namespace)
        return (remaps or {}).get(absolute, absolute)

    return TopicSelector(
        "robot",
        Ros2SourceConfig(**source),  # type: ignore[arg-type]
        datasets,
        namespace,
        resolve,
    )


def taken(chosen: TopicSelector, *names: str, own: tuple[str, ...] = ()) -> list[str]:
    return [name for name in names if chosen.select(name, own) is not None]


def test_relative_names_resolve_in_the_namespace() -> None:
    """imu/data means /r1/imu/data and nothing else."""
    chosen = selector(dataset("imu/data"))
    assert taken(chosen, "/r1/imu/data", "/imu/data", "/r2/imu/data") == ["/r1/imu/data"]


def test_a_remapped_name_is_captured_and_remembers_how_it_was_spelled() -> None:
    """Chains match the name before remapping."""
    chosen = selector(dataset("imu/data"), remaps={"/r1/imu/data": "/sensors/imu"})
    selection = chosen.select("/sensors/imu", ())
    assert selection is not None
    assert selection.original_name == "/r1/imu/data"
    assert chosen.select("/r1/imu/data", ()) is None


def test_globs_stay_inside_a_segment_or_span_segments() -> None:
    """One star matches within a segment, two over segments."""
    names = ("/r1/a/scan", "/r1/a/b/scan", "/r2/a/scan")
    assert taken(selector(dataset("*/scan")), *names) == ["/r1/a/scan"]
    assert taken(selector(dataset("**/scan")), *names) == list(names)


def test_datasets_of_other_sources_match_nothing() -> None:
    """A dataset belongs to one source."""
    assert taken(selector(dataset("a", source="cell")), "/r1/a") == []


def test_exclude_wins_over_everything() -> None:
    """A topic that is excluded is not captured although a dataset and also name it."""
    chosen = selector(dataset("camera/image_raw"), also=("/tf",), exclude=("**/image_raw", "/tf"))
    assert taken(chosen, "/r1/camera/image_raw", "/tf") == []


@pytest.mark.parametrize(
    "name",
    [
        "/parameter_events",
        "/rosout",
        "/r1/node/transition_event",
        "/r1/_hidden/topic",
        "/r1/srv/_service_event",
        "/r1/act/_action/feedback",
        "/r1/thadam/status",
    ],
)
def test_machinery_is_left_out_unless_it_is_named(name: str) -> None:
    """Capture all and a glob leave it out; a literal name takes it."""
    own = ("/r1/thadam/status",)
    assert taken(selector(capture="all"), name, own=own) == []
    assert taken(selector(dataset("/**")), name, own=own) == []
    assert taken(selector(also=(name,)), name, own=own) == [name]


def test_capture_all_takes_ordinary_topics() -> None:
    """Everything but the machinery."""
    assert taken(selector(capture="all"), "/r1/a", "/b/c") == ["/r1/a", "/b/c"]


def test_options_of_a_topic_are_found_by_name_or_glob() -> None:
    """An exact name is stronger than a pattern."""
    slow, small = TopicOptions(max_rate_hz=1.0), TopicOptions(depth=5)
    chosen = selector(capture="all", topics={"**/scan": slow, "front/scan": small})
    front, rear = chosen.select("/r1/front/scan", ()), chosen.select("/r1/rear/scan", ())
    assert front is not None
    assert rear is not None
    assert front.options == small
    assert rear.options == slow
