"""Whether a curator can distinguish arms, by simulation on measured success rates: few mistakes, and few misses."""

from dataclasses import replace

import pytest

from tests.seal_ray.proposing.simulation import (
    EFFECTS,
    PAIRED,
    QUARTER,
    Effect,
    promoted_within_two,
    replaced_without_effect,
)

SETTINGS = {"a quarter plain": QUARTER, "pairs": PAIRED}


@pytest.mark.parametrize("name", SETTINGS)
def test_without_an_effect_the_incumbent_is_replaced_in_few_windows(name: str) -> None:
    assert replaced_without_effect(SETTINGS[name], runs=100, windows=5) <= 0.05


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_an_arm_that_is_better_is_promoted_within_two_windows(name: str, effect: Effect) -> None:
    assert promoted_within_two(replace(SETTINGS[name], effect=effect), runs=100) >= 0.85
