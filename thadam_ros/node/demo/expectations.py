# SPDX-License-Identifier: Apache-2.0
"""What the demo's robot sends and what must become of it: one pure module for both (spec 7.7).

The robot is deterministic by count. A :class:`RobotPlan` says for every stream how many messages
it has and which message carries which defect; the robot publishes exactly these, the demo checks
exactly these. What must come out is computed by :func:`expect` from the messages that *arrived*
(the write-ahead log knows their numbers and order): without loss these are the plan's own figures,
with loss the figures of the lost messages are missing, each in its own kind.

Nothing here imports ROS or the datasets' implementation: the few rules below say a second time
what ``config/demo.yaml`` declares.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Shortest run in which everything that the demo breaks has time to heal.
SECONDS_MIN = 12.0
#: The battery falls silent for this long; ``stale`` in the configuration is shorter.
BATTERY_PAUSE_S = 5.0
#: When the late topic appears.
LATE_TOPIC_S = 5.0
#: Every n-th message of the Imu carries NaN, or an acceleration that no robot survives.
IMU_NAN_EVERY = 400
IMU_RANGE_EVERY = 500
#: Every n-th battery message is its predecessor again, byte for byte.
BATTERY_REPEAT_EVERY = 10
#: Every n-th temperature is taken while the sensor sleeps, and is filtered out.
TEMPERATURE_ASLEEP_EVERY = 10
#: Infinite ranges of one scan.
SCAN_INFINITIES = 12
SCAN_RANGES = 360
#: How far one stamp of the Imu lies in the future.
AHEAD_NS = 3_600_000_000_000
JOINTS = ("base", "shoulder", "elbow", "wrist_1", "wrist_2", "wrist_3")
CLOUD_POINTS = 65_536
CLOUD_POINT_BYTES = 16

# Kinds of messages; a message may have several.
NAN = "nan"
RANGE = "range"
STAMP_ZERO = "stamp_zero"
STAMP_AHEAD = "stamp_ahead"
SWAPPED = "swapped"
REPEAT = "repeat"
FIVE_POSITIONS = "five_positions"
ZERO_QUATERNION = "zero_quaternion"
TRUNCATED = "truncated"
ASLEEP = "asleep"

#: Kind -> reject code; such a message is quarantined whole.
REJECT_OF_KIND: Mapping[str, str] = {
    TRUNCATED: "decode.truncated",
    FIVE_POSITIONS: "schema.explode_length",
    ZERO_QUATERNION: "quality.quaternion_norm",
}
#: Kind -> flag on the row, independent of other messages.
FLAG_OF_KIND: Mapping[str, str] = {
    NAN: "INVALID",
    RANGE: "OUT_OF_RANGE",
    STAMP_ZERO: "MISSING_TIME",
}


@dataclass(frozen=True, slots=True)
class Stream:
    """One publisher of the robot.

    Attributes:
        key: Names the stream; the robot's message factories are found by it.
        topic: Relative or absolute topic name.
        dataset: The dataset that takes it, None when it is only captured.
        rows: Rows of one good message.
        node: Name of the node that publishes.
        first_s: When the first message is due, seconds after the start.
        pause_after: Number of the message after which the stream is silent for a while; 0 = never.
        singles: Message number (from 1) -> kinds that occur once.
        every: Kind -> n; every n-th message is of that kind.
    """

    key: str
    topic: str
    type_name: str
    dataset: str | None
    rate_hz: float
    count: int
    rows: int = 1
    reliable: bool = True
    latched: bool = False
    node: str = "robot"
    first_s: float = 0.0
    pause_after: int = 0
    pause_s: float = 0.0
    singles: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    every: Mapping[str, int] = field(default_factory=dict)

    def kinds(self, number: int) -> tuple[str, ...]:
        """Return the kinds of message ``number`` (from 1)."""
        periodic = tuple(kind for kind, n in self.every.items() if number % n == 0)
        return periodic + tuple(self.singles.get(number, ()))

    def due_s(self, number: int) -> float:
        """Return when message ``number`` is due, seconds after the start."""
        pause = self.pause_s if self.pause_after and number > self.pause_after else 0.0
        return self.first_s + (number - 1) / self.rate_hz + pause

    def stamp_number(self, number: int) -> int:
        """Return the number whose due time stands in the header of message ``number``."""
        if {SWAPPED, REPEAT} & set(self.kinds(number)):
            return number - 1
        if SWAPPED in self.kinds(number + 1):
            return number + 1
        return number

    def planned_stamp_ns(self, number: int) -> int:
        """Return what the header of message ``number`` says, ns after the stream's start."""
        kinds = self.kinds(number)
        if STAMP_ZERO in kinds:
            return 0
        ahead_ns = AHEAD_NS if STAMP_AHEAD in kinds else 0
        return int(self.due_s(self.stamp_number(number)) * 1e9) + ahead_ns


@dataclass(frozen=True, slots=True)
class RobotPlan:
    """Everything the robot will publish."""

    seconds: float
    seed: int
    streams: tuple[Stream, ...]

    def stream(self, key: str) -> Stream:
        """Return the stream named ``key``."""
        return next(stream for stream in self.streams if stream.key == key)


def make_plan(seconds: float, seed: int) -> RobotPlan:
    """Plan a run of about ``seconds``; the seed moves the defects that occur once.

    Raises:
        ValueError: If ``seconds`` is below :data:`SECONDS_MIN`.
    """
    if not seconds >= SECONDS_MIN:
        raise ValueError(f"a run of {seconds:g} s is too short; it takes {SECONDS_MIN:g} s or more")
    draw = random.Random(seed)

    def count(rate_hz: float, silent_s: float = 0.0) -> int:
        return int(rate_hz * (seconds - 0.5 - silent_s))

    def once(total: int, *kinds: str) -> dict[int, tuple[str, ...]]:
        """Spread kinds over the first part of a run, before the process is killed."""
        slots = range(max(4, total // 20), max(8, total * 2 // 5), 3)
        numbers = sorted(draw.sample(slots, len(kinds)))
        return dict(zip(numbers, ((kind,) for kind in kinds), strict=True))

    imu = count(200.0)
    joints = count(50.0)
    odometry = count(50.0)
    battery_pause_after = int(10.0 * 0.15 * seconds)
    return RobotPlan(
        seconds,
        seed,
        (
            Stream("tf_static", "/tf_static", "tf2_msgs/msg/TFMessage", "tf", 1.0, 1, rows=3,
                   latched=True),
            Stream("description", "robot_description", "std_msgs/msg/String", None, 1.0, 1,
                   latched=True),
            Stream("imu", "imu/data", "sensor_msgs/msg/Imu", "imu", 200.0, imu,
                   singles=once(imu, STAMP_ZERO, STAMP_AHEAD, SWAPPED),
                   every={NAN: IMU_NAN_EVERY, RANGE: IMU_RANGE_EVERY}),
            Stream("battery", "battery", "sensor_msgs/msg/BatteryState", "battery", 10.0,
                   count(10.0, BATTERY_PAUSE_S), pause_after=battery_pause_after,
                   pause_s=BATTERY_PAUSE_S, every={REPEAT: BATTERY_REPEAT_EVERY}),
            Stream("joints", "joint_states", "sensor_msgs/msg/JointState", "joint_state", 50.0,
                   joints, rows=len(JOINTS), singles=once(joints, FIVE_POSITIONS)),
            Stream("gripper", "joint_states", "sensor_msgs/msg/JointState", "joint_state", 20.0,
                   count(20.0), reliable=False, node="gripper"),
            Stream("odometry", "odom", "nav_msgs/msg/Odometry", "odometry", 50.0, odometry,
                   singles=once(odometry, ZERO_QUATERNION, TRUNCATED)),
            Stream("scan", "scan", "sensor_msgs/msg/LaserScan", "scan", 10.0, count(10.0)),
            Stream("diagnostics", "diagnostics", "diagnostic_msgs/msg/DiagnosticArray",
                   "diagnostics", 2.0, count(2.0), rows=3),
            Stream("tf", "/tf", "tf2_msgs/msg/TFMessage", "tf", 100.0, count(100.0), rows=2),
            Stream("cloud", "points", "sensor_msgs/msg/PointCloud2", "cloud", 10.0, count(10.0),
                   reliable=False, node="camera"),
            Stream("temperature", "temperature", "sensor_msgs/msg/Temperature", "temperature", 5.0,
                   count(5.0, LATE_TOPIC_S), first_s=LATE_TOPIC_S,
                   every={ASLEEP: TEMPERATURE_ASLEEP_EVERY}),
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message in the write-ahead log, in its order.

    Attributes:
        number: Number of the message in its stream, from 1.
        stamp_ns: Stamp in the message's header.
        is_numbered: The log knows the publication sequence number.
    """

    stream: str
    number: int
    ingest_ns: int
    stamp_ns: int
    is_numbered: bool = True


@dataclass(frozen=True, slots=True)
class DatasetRules:
    """The rules of a dataset whose result depends on times or on earlier messages."""

    max_skew_ns: int = 5_000_000_000
    is_ordered: bool = False
    has_gaps: bool = False
    stale_ns: int | None = None
    is_deduplicated: bool = False


#: What ``config/demo.yaml`` declares, once more.
RULES: Mapping[str, DatasetRules] = {
    "imu": DatasetRules(is_ordered=True, has_gaps=True),
    "battery": DatasetRules(stale_ns=2_000_000_000, is_deduplicated=True),
    "joint_state": DatasetRules(),
    "odometry": DatasetRules(),
    "scan": DatasetRules(),
    "diagnostics": DatasetRules(),
    "tf": DatasetRules(),
    "cloud": DatasetRules(),
    "temperature": DatasetRules(),
}


@dataclass(slots=True)
class Expected:
    """Figures of one chain over all its datasets.

    Attributes:
        messages: Topic (as in the plan) -> outcome name -> messages.
        rows: Dataset -> rows.
        flagged: ``<dataset>.<FLAG>`` -> rows.
        rejects: Code -> rejects.
    """

    messages: dict[str, Counter[str]] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Memory:
    """What a dataset remembers of earlier messages."""

    keys: set[int] = field(default_factory=set)
    newest_stamp_ns: int | None = None
    last_number: dict[str, int] = field(default_factory=dict)
    last_ingest_ns: int | None = None


def expect(plan: RobotPlan, arrivals: Iterable[Arrival], datasets: Sequence[str]) -> Expected:
    """Compute what a chain that takes ``datasets`` must make of the arrivals."""
    expected = Expected()
    streams = {stream.key: stream for stream in plan.streams}
    memories = {name: _Memory() for name in datasets}
    for arrival in arrivals:
        stream = streams[arrival.stream]
        outcome = _outcome(stream, arrival, memories, expected)
        expected.messages.setdefault(stream.topic, Counter())[outcome] += 1
    return expected


def _outcome(
    stream: Stream, arrival: Arrival, memories: Mapping[str, _Memory], expected: Expected
) -> str:
    dataset = stream.dataset
    if dataset is None or dataset not in memories:
        return "unmatched"
    kinds = stream.kinds(arrival.number)
    rules, memory = RULES[dataset], memories[dataset]
    for kind in kinds:
        if kind in REJECT_OF_KIND:
            expected.rejects[REJECT_OF_KIND[kind]] += 1
            return "quarantined"
    if rules.is_deduplicated:
        if arrival.stamp_ns in memory.keys:
            return "deduplicated"
        memory.keys.add(arrival.stamp_ns)
    if ASLEEP in kinds:
        return "filtered"
    expected.rows[dataset] += stream.rows
    for flag in sorted(_flags(rules, memory, arrival, kinds)):
        expected.flagged[f"{dataset}.{flag}"] += stream.rows
    return "delivered"


def _flags(
    rules: DatasetRules, memory: _Memory, arrival: Arrival, kinds: tuple[str, ...]
) -> set[str]:
    flags = {FLAG_OF_KIND[kind] for kind in kinds if kind in FLAG_OF_KIND}
    age_ns = arrival.ingest_ns - arrival.stamp_ns
    has_time = STAMP_ZERO not in kinds
    if has_time and abs(age_ns) > rules.max_skew_ns:
        flags.add("CLOCK_SKEW")
    # A row without a credible time is neither judged nor remembered by `order`.
    if rules.is_ordered and has_time and "CLOCK_SKEW" not in flags:
        newest = memory.newest_stamp_ns
        if newest is not None and arrival.stamp_ns < newest:
            flags.add("OUT_OF_ORDER")
        memory.newest_stamp_ns = max(arrival.stamp_ns, newest or 0)
    if rules.has_gaps and arrival.is_numbered:
        last = memory.last_number.get(arrival.stream)
        if last is not None and arrival.number > last + 1:
            flags.add("SEQUENCE_GAP")
        memory.last_number[arrival.stream] = max(arrival.number, last or 0)
    if rules.stale_ns is not None:
        last_ns = memory.last_ingest_ns
        pause_ns = 0 if last_ns is None else arrival.ingest_ns - last_ns
        if pause_ns > rules.stale_ns or (has_time and age_ns > rules.stale_ns):
            flags.add("STALE")
        memory.last_ingest_ns = arrival.ingest_ns
    return flags


def figures_without_loss(plan: RobotPlan, datasets: Sequence[str]) -> Expected:
    """Return what the plan gives when every message arrives when it is due."""
    due = sorted(
        (int(stream.due_s(number) * 1e9), index, number)
        for index, stream in enumerate(plan.streams)
        for number in range(1, stream.count + 1)
    )
    streams = plan.streams
    arrivals = (
        Arrival(streams[index].key, number, due_ns, streams[index].planned_stamp_ns(number))
        for due_ns, index, number in due
    )
    return expect(plan, arrivals, datasets)
