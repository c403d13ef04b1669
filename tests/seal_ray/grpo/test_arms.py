"""What arms were worth, and which stays: by hand, and over random rounds."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seal_ray.algorithm.curation.rewards import CURATOR_REWARDS, CuratorReward
from seal_ray.grpo.arms import ArmGroup, choose_incumbent


def values_of(reward: str, played: list[ArmGroup]) -> Mapping[int, float]:
    made: CuratorReward = CURATOR_REWARDS.make(reward)
    return made(played, {})


def groups(*played: tuple[int, str, float]) -> list[ArmGroup]:
    return [ArmGroup(*each) for each in played]


def test_gains_are_differences_within_categories() -> None:
    # The arm played the easy category more often: by plain means it would be 0.5 ahead.
    found = values_of(
        "gain",
        groups(
            *((0, "easy", 0.9), (0, "hard", 0.1), (0, "hard", 0.1), (0, "hard", 0.1)),
            *((1, "easy", 1.0), (1, "easy", 1.0), (1, "easy", 1.0), (1, "hard", 0.2)),
        ),
    )
    assert found[0] == 0
    assert found[1] == pytest.approx(0.1)


def test_gains_are_plain_differences_where_all_play_the_same() -> None:
    found = values_of(
        "gain", groups((0, "a", 0.25), (0, "b", 0.75), (1, "a", 0.5), (1, "b", 0.75), (2, "a", 0.0), (2, "b", 0.5))
    )
    assert found == pytest.approx({0: 0.0, 1: 0.125, 2: -0.25})


def test_there_are_no_gains_without_the_plain_arm() -> None:
    assert values_of("gain", groups((1, "a", 1.0))) == {}
    assert values_of("gain", []) == {}


def test_frontier_and_alpha_are_best_at_one_half() -> None:
    of_four = [(0, "a", 0.5), (1, "a", 0.25), (1, "b", 0.75), (2, "a", 0.0), (2, "a", 1.0)]
    played = [ArmGroup(*each, rollouts=4) for each in of_four]
    assert values_of("frontier", played) == pytest.approx({0: 4 / 3, 1: 1.0, 2: 0.0})
    assert values_of("frontier", groups((0, "a", 1.0))) == {}
    # GenEnv: exp(-2 (p - 1/2)^2).
    assert values_of("alpha", played) == pytest.approx({0: 1.0, 1: math.exp(-0.125), 2: math.exp(-0.5)})


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8])
def test_frontier_is_the_same_for_groups_of_all_sizes(chance: float) -> None:
    """The mean over what the rollouts of a group may come to is 4p(1 - p), whatever their number."""
    for size in (2, 4, 8):
        outcomes = [math.comb(size, k) * chance**k * (1 - chance) ** (size - k) for k in range(size + 1)]
        values = [values_of("frontier", [ArmGroup(1, "a", k / size, rollouts=size)])[1] for k in range(size + 1)]
        assert sum(map(math.prod, zip(outcomes, values, strict=True))) == pytest.approx(4 * chance * (1 - chance))


def test_the_incumbent_stays_unless_something_is_worth_clearly_more() -> None:
    values = {0: 0.0, 1: 0.2, 2: 0.24, 3: 0.4}
    assert choose_incumbent({0: 0.0, 1: 0.2, 2: 0.24}, 1, 0.05) == 1
    assert choose_incumbent(values, 1, 0.05) == 3
    assert choose_incumbent({0: 0.0, 1: -0.2}, 1, 0.05) == 0
    assert choose_incumbent({0: 0.1, 2: 0.1}, 2, 0.0) == 2
    assert choose_incumbent({0: 1.0}, 1, 0.05) == 1  # as much as the plain arm
    assert choose_incumbent({0: 0.0, 2: 0.2}, 1, 0.05) == 2
    assert choose_incumbent({2: 0.2}, 1, 0.05) == 2
    assert choose_incumbent({2: 0.04}, 1, 0.05) == 1
    assert choose_incumbent({}, 0, 0.05) == 0


ROUND = st.lists(st.builds(ArmGroup, st.integers(0, 4), st.sampled_from("abcd"), st.floats(0, 1)), min_size=1)


@given(ROUND, st.integers(0, 4), st.floats(0, 0.5))
def test_values_are_bounded_and_order_changes_nothing(played: list[ArmGroup], incumbent: int, margin: float) -> None:
    shuffled = random.Random(0).sample(played, len(played))
    for name in ("gain", "frontier", "alpha"):
        values = values_of(name, played)
        assert values_of(name, shuffled) == pytest.approx(values, abs=1e-9)
        assert all(CURATOR_REWARDS.make(name).worst <= value <= 1.0 for value in values.values())
        kept = choose_incumbent(values, incumbent, margin)
        assert kept == incumbent or values[kept] > values.get(incumbent, values.get(0, 0.0)) + margin
