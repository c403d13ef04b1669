"""From played groups to rows for the learner: rewards, advantages, diagnosis weights, minibatches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from envs.task import JSON
from policies.trajectory import Trajectory
from seal_ray.algorithm.runner import PlayedGroup
from seal_ray.config.sections import Reweighting, Training
from seal_ray.grpo.advantages import GroupAdvantages
from seal_ray.grpo.rewards import Reward
from seal_ray.grpo.reweighting import DynamicWeights, ReweightingSettings, labels_of, reweighted, rho_table
from seal_ray.grpo.rows import Row, make_row

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RoundRows:
    """What a round gives the learner: `minibatches` of rows, each for one gradient step, and what was counted."""

    minibatches: list[list[Row]]
    groups_kept: int
    dropped_equal: int
    """Groups in which all rewards were the same."""
    dropped_short: int
    """Groups that lost too many dialogues to faults."""
    weight_mean: float
    weight_max: float


@dataclass
class Reweighter:
    """Label weights over a run: the table, and its dynamic version with the window that it follows."""

    settings: Reweighting
    _rho: dict[str, float] = field(init=False)
    _dynamic: DynamicWeights = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self._rho = rho_table(settings.rho, settings.overrides)
        self._dynamic = DynamicWeights(
            self._rho,
            alpha=settings.alpha,
            beta=settings.beta,
            n_conf=settings.confidence,
            w_min=settings.low,
            w_max=settings.high,
        )
        self.start_window()

    @property
    def rho(self) -> dict[str, float]:
        """Label → weight as it stands."""
        return self._dynamic.rho if self.settings.mode == "dynamic" else dict(self._rho)

    def weigh(
        self, advantages: Sequence[float], trajectories: Sequence[Trajectory], round_number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The advantages times their trajectories' weights, and the weights."""
        if self.settings.mode == "none":
            return np.asarray(advantages), np.ones(len(advantages))
        labels = [labels_of(each.diagnosis, self.settings.rho) for each in trajectories]
        settings = ReweightingSettings(
            self.settings.low,
            self.settings.high,
            self.settings.budget,
            self.settings.apply_to,
            self.settings.warm_up,
        )
        return reweighted(advantages, labels, settings, self.rho, round_number)

    def observe(self, trajectory: Trajectory, reward: float) -> None:
        """Adds a trajectory to the window."""
        labels = labels_of(trajectory.diagnosis, self.settings.rho)
        self._turns.update(labels)
        for label in set(labels):
            self._rewards[label].append(reward)

    def follow(self) -> None:
        """Moves the dynamic weights by the window, and starts a new one."""
        means = {label: sum(rewards) / len(rewards) for label, rewards in self._rewards.items()}
        self._dynamic.update(self._turns, means)
        self.start_window()

    def start_window(self) -> None:
        """Forgets what was observed."""
        self._turns: Counter[str] = Counter()
        self._rewards: dict[str, list[float]] = defaultdict(list)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {"dynamic": self._dynamic.state_dict(), "turns": dict(self._turns), "rewards": dict(self._rewards)}

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        self._dynamic.load_state_dict(state["dynamic"])
        self._turns = Counter(state["turns"])
        self._rewards = defaultdict(list, {label: list(rewards) for label, rewards in state["rewards"].items()})


def make_rows(
    groups: Sequence[PlayedGroup],
    *,
    reward: Reward,
    advantages_of: GroupAdvantages,
    training: Training,
    reweighter: Reweighter,
    round_number: int,
    compare_arms: bool = False,
) -> RoundRows:
    """The rows of a round's groups, in their order, in as few minibatches of `training.minibatch_groups` as hold them.

    Groups whose rewards are all the same teach nothing and are left out before minibatches are cut, as are groups of
    which less than `training.group_floor` was played. What is left is shared out evenly: AdamW moves as far for a
    minibatch of one left-over group as for a full one.
    """
    kept: list[tuple[list[Trajectory], np.ndarray]] = []
    arms: list[int | None] = []
    equal = short = 0
    for group in groups:
        played = [each for each in group.trajectories if any(each.mask_T)]
        if len(played) < max(2, training.group_floor * len(group.plan.seeds)):
            short += 1
            continue
        advantages = advantages_of([reward(each) for each in played], [group.plan.arm] * len(played))
        if advantages is None:
            equal += 1
            continue
        kept.append((played, advantages))
        arms += [group.plan.arm if compare_arms else None] * len(played)
    trajectories = [each for played, _ in kept for each in played]
    raw = [float(advantage) for _, advantages in kept for advantage in advantages]
    weighted, weights = reweighter.weigh(raw, trajectories, round_number)
    rows = iter(
        make_row(each.token_ids_T, each.mask_T, each.logprobs_T, float(advantage), arm=arm)
        for each, advantage, arm in zip(trajectories, weighted, arms, strict=True)
    )
    by_group = [[next(rows) for _ in played] for played, _ in kept]
    minibatches = [list(chain.from_iterable(part)) for part in even_parts(by_group, most=training.minibatch_groups)]
    return RoundRows(
        minibatches=minibatches * training.epochs,
        groups_kept=len(kept),
        dropped_equal=equal,
        dropped_short=short,
        weight_mean=float(weights.mean()) if len(weights) else 1.0,
        weight_max=float(weights.max()) if len(weights) else 1.0,
    )


def even_parts(items: Sequence[Item], *, most: int) -> Iterator[Sequence[Item]]:
    """`items` in their order, in as few parts of at most `most` as hold them, whose lengths differ by at most one."""
    parts = math.ceil(len(items) / most)
    for place in range(parts):
        yield items[len(items) * place // parts : len(items) * (place + 1) // parts]
