"""Statistics of arms: windows, the cells that the posterior compares, and the rewards."""

import json
import math

import pytest

from seal_ray.proposing.arms import ArmGroup, ArmStatistics, CuratorWindow, cells
from seal_ray.proposing.curator_rewards import CURATOR_REWARDS, CuratorReward, frontier_value
from seal_ray.rollout.types import PLAIN, PLAIN_ARM, Arm, Group, arms_of
from tests.seal_ray.proposing.proposers import A, B, played_group

ARMS = arms_of([A, B])
FIRST, SECOND = ARMS[1].id, ARMS[2].id


def reward_of(name: str) -> CuratorReward:
    made: CuratorReward = CURATOR_REWARDS.make(name)
    return made


def window(*groups: ArmGroup) -> CuratorWindow:
    return CuratorWindow(ARMS, list(groups))


def on_tasks(count: int, rates: dict[str, float], *, start: int = 0) -> list[ArmGroup]:
    return [
        ArmGroup(arm, "base", rate, f"task {task}", 8)
        for task in range(start, start + count)
        for arm, rate in rates.items()
    ]


def test_a_window_observes_each_arms_part_of_a_group() -> None:
    pair = Group(
        played_group("t", PLAIN_ARM, [1.0, 0.0]).plan,
        (*played_group("t", PLAIN_ARM, [1.0, 0.0]).members, *played_group("t", ARMS[1], [1.0, 1.0, 0.0]).members),
    )
    observed = CuratorWindow(ARMS)
    observed.observe([pair])
    observed.observe([])
    assert observed.groups == [ArmGroup(PLAIN, "base", 0.5, "t", 2), ArmGroup(FIRST, "base", 2 / 3, "t", 3)]
    assert observed.rounds == 2
    assert CuratorWindow.from_dict(json.loads(json.dumps(observed.to_dict()))) == observed


def test_cells_are_the_success_of_an_arm_on_a_task() -> None:
    groups = [
        ArmGroup(PLAIN, "base", 0.25, "t", 4),
        ArmGroup(PLAIN, "base", 1.0, "t", 4),
        ArmGroup(FIRST, "base", 0.5, "t", 2),
    ]
    plain, first = cells(window(*groups, ArmGroup(FIRST, "long_context", 0.0, "u", 1)), reward_of("gain"))[:2]
    assert (plain.arm, plain.block, plain.stratum, plain.value, plain.rollouts) == (PLAIN, "t", "base", 0.625, 8)
    assert plain.variance == pytest.approx(0.625 * 0.375 * 8 / 7)
    assert (first.value, first.rollouts) == (0.5, 2)
    (single,) = cells(window(ArmGroup(FIRST, "base", 0.0, "u", 1)), reward_of("gain"))
    assert single.variance is None


def test_frontier_and_alpha_are_best_at_one_half() -> None:
    played = window(
        ArmGroup(PLAIN, "a", 0.5, "t", 4), ArmGroup(FIRST, "a", 0.25, "t", 4), ArmGroup(SECOND, "a", 1.0, "t", 4)
    )
    values = {name: {cell.arm: cell.value for cell in cells(played, reward_of(name))} for name in ("frontier", "alpha")}
    assert values["frontier"] == pytest.approx({PLAIN: 4 / 3, FIRST: 1.0, SECOND: 0.0})
    # GenEnv: exp(-2 (p - 1/2)^2).
    assert values["alpha"] == pytest.approx({PLAIN: 1.0, FIRST: math.exp(-0.125), SECOND: math.exp(-0.5)})
    assert cells(window(ArmGroup(PLAIN, "a", 1.0, "t", 1)), reward_of("frontier")) == []


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8])
def test_frontier_is_the_same_for_groups_of_all_sizes(chance: float) -> None:
    """Its mean over the successes of a group is 4p(1 - p), whatever the number of rollouts."""
    for size in (2, 4, 8):
        outcomes = [math.comb(size, k) * chance**k * (1 - chance) ** (size - k) for k in range(size + 1)]
        values = [frontier_value(k / size, size) for k in range(size + 1)]
        mean = sum(share * value for share, value in zip(outcomes, values, strict=True) if value is not None)
        assert mean == pytest.approx(4 * chance * (1 - chance))


def test_the_incumbent_stays_unless_an_arm_is_probably_better() -> None:
    for gain, tasks, kept in ((0.2, 20, A), (0.2, 1, B), (0.03, 60, B), (-0.2, 20, B)):
        statistics = ArmStatistics(reward_of("gain"), by_category=False)
        played = window(*on_tasks(tasks, {PLAIN: 0.3, FIRST: 0.3 + gain, SECOND: 0.3}))
        statistics.observe(played)
        incumbent, probability = statistics.choose(played, Arm(B))
        assert incumbent == Arm(kept)
        assert (probability > 0.8) == (kept == A)


def test_values_are_those_of_arms_that_played() -> None:
    statistics = ArmStatistics(reward_of("gain"), by_category=False)
    played = window(*on_tasks(12, {PLAIN: 0.2, FIRST: 0.5}), ArmGroup(SECOND, "base", 1.0, "alone", 8))
    statistics.observe(played)
    values = statistics.values(played)
    assert values.keys() == {PLAIN, FIRST}, "a task that one arm alone played compares nothing"
    assert values[PLAIN] == 0.0
    assert values[FIRST] == statistics.value(FIRST)[0] > 0.15
    assert [each.interface for each in statistics.tried()] == [A]
