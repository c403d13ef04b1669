"""Rounds without engines: a solver that succeeds with a given probability, so that plans and draws can be followed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.diagnosis import Label
from envs.interface import Interface
from envs.trace import Trace
from policies.trajectory import End, Trajectory
from seal_ray.algorithm.config import SealConfig
from seal_ray.config.resolve import RunSpec
from seal_ray.grpo.advantages import grpo
from seal_ray.grpo.rewards import success
from seal_ray.rollout.planner import Planner, play_waves
from seal_ray.rollout.types import Arm, Group, GroupPlan, Member, arms_of
from seal_ray.training.rows import GroupScorer
from tests.seal_ray.grpo.diagnoses import diagnosed

ARMS = arms_of((Interface(guidelines=("Ask.",)), Interface(guidelines=("Abstain.",))))
SCORE = GroupScorer(grpo, 0.5)


@dataclass
class Allocator:
    """Allocates these `counts`, or equal numbers; by a category if there is an arm for it. Stores its calls."""

    counts: list[int] | None = None
    by_category: dict[str, Arm] | None = None
    calls: list[tuple[int, int]] = field(default_factory=list)

    def allocate(self, slots: int, seed: int) -> list[int] | None:
        self.calls.append((slots, seed))
        return self.counts

    @property
    def tasks_choose(self) -> bool:
        return self.by_category is not None

    def arms_for(self, categories: Sequence[str], seed: int) -> list[Arm]:
        del seed
        assert self.by_category is not None
        return [self.by_category.get(category, ARMS[1]) for category in categories]


def sparse_spec(
    *,
    seed: int = 3,
    environment: dict[str, Any] | None = None,
    curator: dict[str, Any] | None = None,
    **training: Any,
) -> RunSpec:
    """Rounds of 8 groups of 3, a quarter of them plain, without pairs."""
    config = (
        SealConfig()
        .environment(**(environment or {}))
        .curator(**{"plain_share": 0.25, "pairs": False, **(curator or {})})
        .training(**{"groups": 8, "group_size": 3, "minibatch_groups": 4, **training})
    )
    config.seed = seed
    return config.spec


@dataclass(frozen=True)
class Solver:
    """Succeeds at a task with the probability `skill`; the seed of a dialogue decides."""

    skill: Callable[[str], float]

    def play(self, plans: Sequence[GroupPlan]) -> list[Group]:
        return [
            Group(
                plan,
                tuple(Member(arm, self._dialogue(plan, seed)) for seed, arm in zip(plan.seeds, plan.arms, strict=True)),
            ).scored(success)
            for plan in plans
        ]

    def _dialogue(self, plan: GroupPlan, seed: int) -> Trajectory:
        succeeds = random.Random(seed).random() < self.skill(plan.task)
        sample: dict[str, Any] = {"token_ids_T": (1, 2), "mask_T": (False, True), "sampled_logprobs_T": (0.0, -1.0)}
        played = {"interface": "plain", "protocol": "seal", "policy": "base", "sampled": (), "end": End.FINISHED}
        return Trajectory(
            **{**sample, **played, "seed": seed, "versions_T": (-1, 0), "task": plan.task, "category": plan.category},
            reward=float(succeeds),
            diagnosis=diagnosed(Label.PASS if succeeds else Label.STATE_MISMATCH),
            trace=Trace(plan.task, ((),)),
        )


def play_round(
    spec: RunSpec,
    planner: Planner,
    number: int,
    solver: Solver,
    arms: Sequence[Arm] = ARMS,
    allocator: Allocator | None = None,
) -> list[list[Group]]:
    """The waves of a round, as `CoEvolution` plays them."""
    waves = play_waves(
        planner.plan(arms, number, allocator or Allocator()),
        play=solver.play,
        is_equal=SCORE.is_equal,
        replace=planner.replace,
        max_groups=spec.training.max_groups,
    )
    planner.observe([group for wave in waves for group in wave])
    return waves


def plans_of(waves: Sequence[Sequence[Group]]) -> list[GroupPlan]:
    return [group.plan for wave in waves for group in wave]
