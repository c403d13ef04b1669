"""Dynamic sampling: which groups are replaced, by which, in which order, up to which bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from policies.rollouts import Fault
from policies.trajectory import Trajectory, derive_seed
from seal_ray.config.schema import EnvironmentSection, ReweightingSection, TrainingSection
from seal_ray.grpo.reweighting import Reweighter
from seal_ray.rollout.planner import Planner
from seal_ray.rollout.tasks import TaskStream
from seal_ray.rollout.types import Group, GroupPlan, Member
from seal_ray.rollout.waves import play_waves
from seal_ray.training.rows import RoundRows, make_rows
from tests.seal_ray.rollout.rounds import ARMS, SCORE, Allocator, Solver, plans_of, play_round, sparse_spec

SOMETIMES = Solver(lambda _: 0.1)
"""About a quarter of its groups of three teach."""


def rows_of(groups: Sequence[Group]) -> RoundRows:
    return make_rows(
        groups,
        score=SCORE,
        training=TrainingSection(view="shown"),
        reweighter=Reweighter(ReweightingSection(mode="none")),
    )


def test_without_dynamic_sampling_nothing_is_replaced() -> None:
    spec = sparse_spec()
    planner = Planner(spec)
    rounds = [play_round(spec, planner, number, SOMETIMES) for number in range(3)]
    assert [[len(wave) for wave in waves] for waves in rounds] == [[8]] * 3
    assert any(SCORE.is_equal(group) for waves in rounds for group in waves[0])


def test_a_wave_replaces_what_the_one_before_it_lacked() -> None:
    spec = sparse_spec(dynamic_sampling=True)
    planner, stream = Planner(spec), TaskStream(EnvironmentSection(), 3)
    often, first = Solver(lambda _: 0.25), 0
    for number in range(4):
        waves = play_round(spec, planner, number, often)
        plans = plans_of(waves)
        assert len(waves) > 1
        # Numbers, tasks and seeds are those of a plan that had all groups from the start.
        assert [plan.number for plan in plans] == list(range(first, first + len(plans)))
        assert [plan.task for plan in plans] == [stream.task_id(plan.number) for plan in plans]
        for plan in plans:
            assert plan.seeds == tuple(derive_seed(3, "rollout", plan.number, member) for member in range(3))
        # Each has the arm of the one that it replaces, in order.
        for before, after in pairwise(waves):
            assert [group.plan.arm for group in after] == [group.plan.arm for group in before if SCORE.is_equal(group)]
        rows = rows_of([group for wave in waves for group in wave])
        assert rows.metrics["solver/groups_kept"] == 8
        assert rows.metrics["solver/groups_dropped_equal"] == len(plans) - 8
        teaching = [group.plan.arm for wave in waves for group in wave if not SCORE.is_equal(group)]
        assert (
            Counter(teaching)
            == Counter(group.plan.arm for group in waves[0])
            == dict(zip(ARMS, (2, 3, 3), strict=True))
        )
        first += len(plans)


@pytest.mark.parametrize("skill", [0.0, 0.1, 1.0])
def test_no_more_than_three_times_the_groups_are_played(skill: float) -> None:
    for seed in range(3):
        spec = sparse_spec(dynamic_sampling=True, seed=seed)
        groups = [group for wave in play_round(spec, Planner(spec), 0, Solver(lambda _: skill)) for group in wave]
        kept = rows_of(groups).metrics["solver/groups_kept"]
        assert len(groups) <= 24
        assert kept == 8 or len(groups) == 24
        assert skill == 0.1 or kept == 0


def test_if_there_is_room_for_fewer_the_first_are_replaced() -> None:
    plans = Planner(sparse_spec()).plan(ARMS, 0, Allocator())
    replaced: list[list[int]] = []

    def replace(equal: Sequence[GroupPlan]) -> list[GroupPlan]:
        replaced.append([plan.number for plan in equal])
        return list(equal)

    play_waves(plans, play=Solver(lambda _: 1.0).play, is_equal=SCORE.is_equal, replace=replace, max_groups=11)
    assert replaced == [[0, 1, 2]]


def test_groups_are_equal_by_the_reward_of_the_run() -> None:
    def by_seed(trajectory: Trajectory) -> float:
        return float(trajectory.seed % 1000)

    groups = Solver(lambda _: 0.0).play(Planner(sparse_spec()).plan(ARMS, 0, Allocator()))
    assert sum(map(SCORE.is_equal, groups)) == 8
    scored = [group.scored(by_seed) for group in groups]
    assert sum(map(SCORE.is_equal, scored)) == rows_of(scored).metrics["solver/groups_dropped_equal"] == 0


def test_groups_that_faults_made_too_short_are_not_replaced() -> None:
    spec = sparse_spec(dynamic_sampling=True)
    planner = Planner(spec)

    def broken(plans: Sequence[GroupPlan]) -> list[Group]:
        return [
            Group(
                plan,
                tuple(
                    Member(arm, Fault(plan.task, seed, "EnvironmentFault", "broken"))
                    for seed, arm in zip(plan.seeds, plan.arms, strict=True)
                ),
            )
            for plan in plans
        ]

    plans = planner.plan(ARMS, 0, Allocator())
    (wave,) = play_waves(plans, play=broken, is_equal=SCORE.is_equal, replace=planner.replace, max_groups=24)
    assert rows_of(wave).metrics["solver/groups_dropped_short"] == 8


def test_the_same_rewards_give_the_same_plans_and_other_rewards_others() -> None:
    spec = sparse_spec(dynamic_sampling=True, environment={"tasks": 12})

    def played(solver: Solver) -> list[list[GroupPlan]]:
        planner = Planner(spec)
        return [plans_of(play_round(spec, planner, number, solver)) for number in range(3)]

    often = Solver(lambda _: 0.5)
    assert played(often) == played(often)
    assert played(often)[0][:8] == played(SOMETIMES)[0][:8]
    assert played(often)[1] != played(SOMETIMES)[1]
