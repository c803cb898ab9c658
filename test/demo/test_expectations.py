# SPDX-License-Identifier: Apache-2.0
"""The robot's plan and what must become of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thadam_ros.node.demo import expectations as exp
from thadam_ros.node.demo.expectations import Arrival, expect, figures_without_loss, make_plan

DATASETS = tuple(exp.RULES)


def in_order(plan: exp.RobotPlan, *keys: str) -> list[Arrival]:
    """Every message of some streams, each arriving when it is due."""
    return [
        Arrival(key, n, int(plan.stream(key).due_s(n) * 1e9), plan.stream(key).planned_stamp_ns(n))
        for key in keys
        for n in range(1, plan.stream(key).count + 1)
    ]


def test_plan_is_the_same_for_the_same_seed_and_another_for_another_seed() -> None:
    """The robot is deterministic and seedable."""
    assert make_plan(25, 1) == make_plan(25, 1)
    assert make_plan(25, 1) != make_plan(25, 2)
    counts = [{s.key: s.count for s in make_plan(25, seed).streams} for seed in (1, 2)]
    assert counts[0] == counts[1]


def test_plan_refuses_a_run_in_which_nothing_could_heal() -> None:
    """The message names both lengths."""
    with pytest.raises(ValueError, match=r"3 s is too short; it takes 12 s"):
        make_plan(3, 1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [12.0, 25.0, 60.0])
def test_single_defects_all_occur_before_the_kill(seconds: float, seed: int) -> None:
    """A defect that was lost with the process would show nothing."""
    plan = make_plan(seconds, seed)
    kinds: list[str] = []
    for stream in plan.streams:
        for number, found in stream.singles.items():
            assert 1 < number <= stream.count
            assert stream.due_s(number) < 0.55 * seconds
            kinds.extend(found)
    assert sorted(kinds) == sorted(
        [
            exp.STAMP_ZERO,
            exp.STAMP_AHEAD,
            exp.SWAPPED,
            exp.FIVE_POSITIONS,
            exp.ZERO_QUATERNION,
            exp.TRUNCATED,
        ]
    )


def test_figures_without_loss_are_those_worked_out_by_hand() -> None:
    """25 s, worked out from the rates: nothing here repeats the module's own arithmetic."""
    found = figures_without_loss(make_plan(25, 1), DATASETS)
    assert found.rows == {
        "imu": 4900,  # 200 Hz for 24.5 s
        "battery": 176,  # 10 Hz for 19.5 s, every tenth is a repetition
        "joint_state": 1224 * 6 + 490,  # one message has five positions
        "odometry": 1223,  # 1225, one quaternion, one truncated
        "scan": 245,
        "diagnostics": 49 * 3,
        "tf": 2450 * 2 + 3,
        "cloud": 245,
        "temperature": 88,  # 5 Hz for 19.5 s, every tenth asleep
    }
    assert found.flagged == {
        "imu.INVALID": 12,
        "imu.OUT_OF_RANGE": 9,
        "imu.MISSING_TIME": 1,
        "imu.CLOCK_SKEW": 1,
        "imu.OUT_OF_ORDER": 1,
        "battery.STALE": 1,
    }
    assert found.rejects == {
        "schema.explode_length": 1,
        "quality.quaternion_norm": 1,
        "decode.truncated": 1,
    }
    assert found.messages["battery"] == {"delivered": 176, "deduplicated": 19}
    assert found.messages["robot_description"] == {"unmatched": 1}
    assert found.messages["temperature"] == {"delivered": 88, "filtered": 9}
    assert found.messages["joint_states"] == {"delivered": 1224 + 490, "quarantined": 1}


def test_lost_messages_take_their_own_figures_with_them() -> None:
    """Losing a NaN message costs one INVALID, and leaves a gap."""
    plan = make_plan(25, 1)
    everything = in_order(plan, "imu")
    without = [a for a in everything if a.number != exp.IMU_NAN_EVERY]
    before, after = expect(plan, everything, DATASETS), expect(plan, without, DATASETS)
    assert after.flagged["imu.INVALID"] == before.flagged["imu.INVALID"] - 1
    assert after.flagged["imu.SEQUENCE_GAP"] == 1
    assert after.rows["imu"] == before.rows["imu"] - 1


def test_repetition_is_delivered_when_the_original_was_lost() -> None:
    """Deduplication knows only what arrived."""
    plan = make_plan(25, 1)
    arrivals = [a for a in in_order(plan, "battery") if a.number != exp.BATTERY_REPEAT_EVERY - 1]
    found = expect(plan, arrivals, DATASETS)
    assert found.messages["battery"]["deduplicated"] == 18


def test_chain_without_a_dataset_counts_its_messages_as_unmatched() -> None:
    """The mirror takes three datasets only."""
    plan = make_plan(12, 1)
    found = expect(plan, in_order(plan, "scan"), ("imu",))
    assert found.messages["scan"] == {"unmatched": plan.stream("scan").count}
    assert not found.rows


def test_swapped_neighbours_carry_each_others_stamp() -> None:
    """Only the second of them is out of order."""
    plan = make_plan(25, 3)
    imu = plan.stream("imu")
    number = next(n for n, kinds in imu.singles.items() if exp.SWAPPED in kinds)
    assert imu.planned_stamp_ns(number) == int(imu.due_s(number - 1) * 1e9)
    assert imu.planned_stamp_ns(number - 1) == int(imu.due_s(number) * 1e9)


def test_gap_is_not_expected_where_the_log_has_no_numbers() -> None:
    """A distribution without sequence numbers cannot flag what it does not see."""
    plan = make_plan(25, 1)
    arrivals = [replace(a, is_numbered=False) for a in in_order(plan, "imu") if a.number != 7]
    assert "imu.SEQUENCE_GAP" not in expect(plan, arrivals, DATASETS).flagged
