"""Groups that teach nothing and are replaced: how many, by which, in which order, up to which bound."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from seal_ray.rollout.groups import GroupPlan, PlayedGroup, TaskStream
from seal_ray.training.advantages_to_rows import GroupScorer, Reweighter, RoundRows, make_rows

from policies.rollouts import Fault
from policies.trajectory import derive_seed
from seal_ray.config.sections import Environment, Reweighting, Training
from seal_ray.grpo.advantages import group_advantages
from seal_ray.rollout.planner import Planner
from seal_ray.rollout.waves import play_waves
from tests.seal_ray.algorithm.rounds import ARMS, COMPARE, Solver, plans_of, play_round, sparse_config

SOMETIMES = Solver(lambda _: 0.1)
"""About a quarter of its groups of three teach."""
PLANNED: dict[str, tuple[dict[str, Any], str]] = {
    "endless": ({}, "0551b28de8862bc0"),
    "finite": ({"tasks": 12}, "3227ed8b7248b9f2"),
    "benchmark": ({"source": "bfcl"}, "539602b7a26bdd37"),
}
"""Settings of the environment, and a digest of what was planned for three rounds before groups could be replaced."""


def digest(plans: Sequence[GroupPlan]) -> str:
    values = [(p.number, p.task, p.arm.number, p.seeds, str(p.protocol), p.temperature) for p in plans]
    return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()


def rows_of(groups: Sequence[PlayedGroup], compare: GroupScorer = COMPARE) -> RoundRows:
    return make_rows(
        groups, compare=compare, training=Training(), reweighter=Reweighter(Reweighting(mode="none")), round_number=0
    )


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("training", [{}, {"fill_limit": 9}, {"fill": "resample", "fill_limit": 1}])
def test_without_replacements_plans_are_what_they_always_were(name: str, training: dict[str, Any]) -> None:
    environment, expected = PLANNED[name]
    config = sparse_config(environment=environment, **training)
    planner = Planner(config)
    rounds = [play_round(config, planner, number, SOMETIMES) for number in range(3)]
    assert [len(waves) for waves in rounds] == [1, 1, 1]
    assert digest([plan for waves in rounds for plan in plans_of(waves)]) == expected


def test_a_wave_replaces_what_the_one_before_it_lacked() -> None:
    config = sparse_config(fill="resample", fill_limit=20)
    planner, stream = Planner(config), TaskStream(Environment(), 3)
    first = 0
    for number in range(4):
        waves = play_round(config, planner, number, SOMETIMES)
        plans = plans_of(waves)
        assert len(waves) > 2
        # Numbers, tasks and seeds go on as if all groups had been planned from the start.
        assert [plan.number for plan in plans] == list(range(first, first + len(plans)))
        assert [plan.task for plan in plans] == [stream.task_id(plan.number) for plan in plans]
        for plan in plans:
            assert plan.seeds == tuple(derive_seed(3, "rollout", plan.number, member) for member in range(3))
        # Each takes the arm of the one that it replaces, in order.
        for before, after in pairwise(waves):
            equal = [group.plan.arm for group in before if COMPARE.is_equal(group)]
            assert [group.plan.arm for group in after] == equal
        assert not any(map(COMPARE.is_equal, waves[-1]))
        rows = rows_of([group for wave in waves for group in wave])
        assert rows.groups_kept == 8
        assert rows.dropped_equal == len(plans) - 8
        teaching = [group.plan.arm for wave in waves for group in wave if not COMPARE.is_equal(group)]
        assert Counter(teaching) == Counter(group.plan.arm for group in waves[0])
        assert Counter(arm.number for arm in teaching) == {0: 2, 1: 3, 2: 3}
        first += len(plans)


def test_no_more_groups_are_played_than_the_limit_allows() -> None:
    hopeless = Solver(lambda _: 0.0)
    config = sparse_config(fill="resample", fill_limit=3)
    waves = play_round(config, Planner(config), 0, hopeless)
    assert [len(wave) for wave in waves] == [8, 8, 8]
    assert rows_of([group for wave in waves for group in wave]).minibatches == []
    for number, limit in enumerate((2, 3, 4)):
        config = sparse_config(fill="resample", fill_limit=limit, seed=number)
        waves = play_round(config, Planner(config), 0, SOMETIMES)
        groups = [group for wave in waves for group in wave]
        assert len(groups) <= 8 * limit
        assert rows_of(groups).groups_kept == 8 or len(groups) == 8 * limit


def test_where_there_is_room_for_fewer_the_first_are_replaced() -> None:
    plans = Planner(sparse_config()).plan(ARMS, 0)
    asked: list[list[int]] = []

    def replace(found: Sequence[GroupPlan]) -> list[GroupPlan]:
        asked.append([plan.number for plan in found])
        return list(found)

    play_waves(plans, play=Solver(lambda _: 1.0).play, is_equal=COMPARE.is_equal, replace=replace, most=11)
    assert asked == [[0, 1, 2]]


def test_equal_is_what_the_reward_of_the_run_calls_so() -> None:
    groups = Solver(lambda _: 0.0).play(Planner(sparse_config()).plan(ARMS, 0))
    by_seed = GroupScorer(lambda trajectory: float(trajectory.seed % 1000), group_advantages, 0.5)
    for compare, equal in ((COMPARE, 8), (by_seed, 0)):
        assert sum(map(compare.is_equal, groups)) == rows_of(groups, compare).dropped_equal == equal


def test_groups_that_faults_made_too_short_are_not_replaced() -> None:
    config = sparse_config(fill="resample")
    planner = Planner(config)

    def broken(plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        return [
            PlayedGroup(plan, tuple(Fault(plan.task, seed, "EnvironmentFault", "broken") for seed in plan.seeds))
            for plan in plans
        ]

    plans = planner.plan(ARMS, 0)
    (wave,) = play_waves(plans, play=broken, is_equal=COMPARE.is_equal, replace=planner.replace, most=24)
    assert rows_of(wave).dropped_short == 8


@pytest.mark.parametrize("fill", ["drop", "resample"])
@pytest.mark.parametrize(
    "environment", [{}, {"tasks": 12}, {"sampler": "success"}, {"sampler": "success", "tasks": 12}]
)
def test_a_run_that_goes_on_plans_what_an_undisturbed_one_plans(fill: str, environment: dict[str, Any]) -> None:
    config = sparse_config(environment=environment, fill=fill)
    planner = Planner(config)
    states, rounds = [], []
    for number in range(6):
        states.append(json.dumps(planner.get_state()))
        rounds.append(play_round(config, planner, number, SOMETIMES))
    for begin in (1, 4):
        other = Planner(config)
        other.set_state(json.loads(states[begin]))
        assert [play_round(config, other, number, SOMETIMES) for number in range(begin, 6)] == rounds[begin:]
        assert other.get_state() == planner.get_state()


def test_what_is_played_next_follows_from_rewards() -> None:
    """The same rewards give the same plans; other rewards give other ones from the next wave or round on."""
    config = sparse_config(fill="resample", environment={"tasks": 12, "sampler": "success"})

    def played(solver: Solver) -> list[list[GroupPlan]]:
        planner = Planner(config)
        return [plans_of(play_round(config, planner, number, solver)) for number in range(3)]

    often = Solver(lambda _: 0.5)
    assert played(often) == played(often)
    assert played(often)[0][:8] == played(SOMETIMES)[0][:8]
    assert played(often)[1] != played(SOMETIMES)[1]
