"""Rounds without engines: a solver that succeeds with a given probability, so that plans and draws can be followed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seal_ray.grpo.rewards.success import SuccessReward
from seal_ray.rollout.groups import Arm, GroupPlan, PlayedGroup, number_arms
from seal_ray.training.advantages_to_rows import GroupScorer

from envs.diagnosis import Label
from envs.interface import Interface
from envs.trace import Trace
from policies.trajectory import End, Trajectory
from seal_ray.algorithm.config import SealConfig
from seal_ray.config.sections import Training
from seal_ray.grpo.advantages import group_advantages
from seal_ray.rollout.planner import Planner
from seal_ray.rollout.waves import play_waves
from tests.seal_ray.grpo.diagnoses import diagnosed

ARMS = number_arms((Interface(guidelines=("Ask.",)), Interface(guidelines=("Abstain.",))))
COMPARE = GroupScorer(SuccessReward(), group_advantages, 0.5)


def sparse_config(
    *, seed: int = 3, environment: dict[str, Any] | None = None, plain_share: float = 0.25, **training: Any
) -> SealConfig:
    """A config for rounds of 8 groups of 3."""
    found = (
        SealConfig()
        .environment(**(environment or {}))
        .curator(plain_share=plain_share)
        .training(**{"groups": 8, "group_size": 3, "minibatch_groups": 4, **training})
    )
    found.seed = seed
    return found


@dataclass(frozen=True)
class Solver:
    """Succeeds at a task with the probability `skill`; the seed of a dialogue decides."""

    skill: Callable[[str], float]

    def play(self, plans: Sequence[GroupPlan]) -> list[PlayedGroup]:
        return [PlayedGroup(plan, tuple(self._dialogue(plan, seed) for seed in plan.seeds)) for plan in plans]

    def _dialogue(self, plan: GroupPlan, seed: int) -> Trajectory:
        return Trajectory(
            seed=seed,
            token_ids_T=(1, 2),
            mask_T=(False, True),
            sampled_logprobs_T=(0.0, -1.0),
            versions_T=(-1, 0),
            task=plan.task,
            category="base",
            interface="plain",
            protocol="seal",
            policy="base",
            sampled=(),
            reward=float(random.Random(seed).random() < self.skill(plan.task)),
            diagnosis=diagnosed(Label.PASS),
            trace=Trace(plan.task, ()),
            end=End.FINISHED,
        )


def play_round(
    config: SealConfig, planner: Planner, number: int, solver: Solver, arms: Sequence[Arm] = ARMS
) -> list[list[PlayedGroup]]:
    """The waves of a round, as `Seal` plays them."""
    waves = play_waves(
        planner.plan(arms, number),
        play=solver.play,
        is_equal=COMPARE.is_equal,
        replace=planner.replace,
        most=config.section(Training).most_groups,
    )
    planner.observe([group for wave in waves for group in wave])
    return waves


def plans_of(waves: Sequence[Sequence[PlayedGroup]]) -> list[GroupPlan]:
    return [group.plan for wave in waves for group in wave]
