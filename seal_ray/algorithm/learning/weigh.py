"""From played groups to rows for the learner: rewards, advantages, diagnosis weights, minibatches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

import numpy as np

from envs.task import JSON
from policies.trajectory import Trajectory
from seal_ray.algorithm.sampling.groups import PlayedGroup
from seal_ray.config.sections import Reweighting, Training
from seal_ray.grpo.advantages import GroupAdvantages
from seal_ray.grpo.rewards import Reward
from seal_ray.grpo.reweighting import DynamicWeights, ReweightingSettings, labels_of, reweighted, rho_table
from seal_ray.grpo.rows import Minibatch, row_of

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RoundRows:
    """The minibatches of a round, each for one gradient step, and what was counted."""

    minibatches: list[Minibatch]
    groups_kept: int
    dropped_equal: int
    """Groups in which all rewards were the same."""
    dropped_short: int
    """Groups that lost too many dialogues to faults."""
    weight_mean: float
    weight_max: float


@dataclass(frozen=True, slots=True, eq=False)
class ComparedGroup:
    """The trajectories of a group that are learnt from, with their group-relative advantages."""

    arm: int
    trajectories: Sequence[Trajectory]
    advantages_G: np.ndarray


class Dropped(Enum):
    """Why a group is not learnt from."""

    EQUAL = auto()
    """All rewards are the same."""
    SHORT = auto()
    """Faults left it too few dialogues."""


@dataclass(frozen=True)
class Comparison:
    """How the dialogues of a group are compared, and whether that teaches anything.

    `floor` is the share of a group's dialogues that must have been played.
    """

    reward: Reward
    advantages_of: GroupAdvantages
    floor: float

    def __call__(self, group: PlayedGroup) -> ComparedGroup | Dropped:
        played = [each for each in group.trajectories if any(each.mask_T)]
        if len(played) < max(2, self.floor * len(group.plan.seeds)):
            return Dropped.SHORT
        arm = group.plan.arm.number
        advantages = self.advantages_of([self.reward(each) for each in played], [arm] * len(played))
        return Dropped.EQUAL if advantages is None else ComparedGroup(arm, played, advantages)

    def is_equal(self, group: PlayedGroup) -> bool:
        """Whether the group teaches nothing since its rewards are all the same."""
        return self(group) is Dropped.EQUAL


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

    def weigh(self, groups: Sequence[ComparedGroup], round_number: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Each group's advantages times the weights of its trajectories, and the weights of all trajectories.

        A round has one budget of weight, so that its groups are weighed together.
        """
        advantages = np.concatenate([group.advantages_G for group in groups]) if groups else np.empty(0)
        weighted, weights = self._weighed(advantages, groups, round_number)
        ends = np.cumsum([len(group.trajectories) for group in groups])
        return np.split(weighted, ends)[:-1], weights

    def _weighed(
        self, advantages_J: np.ndarray, groups: Sequence[ComparedGroup], round_number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.settings.mode == "none":
            return advantages_J, np.ones(len(advantages_J))
        labels = [labels_of(each.diagnosis, self.settings.rho) for group in groups for each in group.trajectories]
        settings = ReweightingSettings(
            self.settings.low,
            self.settings.high,
            self.settings.budget,
            self.settings.apply_to,
            self.settings.warm_up,
        )
        return reweighted(advantages_J, labels, settings, self.rho, round_number)

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
    compare: Comparison,
    training: Training,
    reweighter: Reweighter,
    round_number: int,
    compare_arms: bool = False,
) -> RoundRows:
    """The rows of a round's groups, in their order, in as few minibatches of `training.minibatch_groups` as hold them.

    Groups whose rewards are all the same teach nothing and are left out before minibatches are cut, as are groups of
    which too little was played. What is left is shared out evenly: AdamW moves as far for a
    minibatch of one left-over group as for a full one.
    """
    compared = [compare(group) for group in groups]
    kept = [group for group in compared if isinstance(group, ComparedGroup)]
    weighted, weights = reweighter.weigh(kept, round_number)
    groups_of_rows = [
        [
            row_of(each, float(advantage), arm=group.arm if compare_arms else None)
            for each, advantage in zip(group.trajectories, advantages_G, strict=True)
        ]
        for group, advantages_G in zip(kept, weighted, strict=True)
    ]
    minibatches = [Minibatch.of(part) for part in even_parts(groups_of_rows, most=training.minibatch_groups)]
    return RoundRows(
        minibatches=minibatches * training.epochs,
        groups_kept=len(kept),
        dropped_equal=compared.count(Dropped.EQUAL),
        dropped_short=compared.count(Dropped.SHORT),
        weight_mean=float(weights.mean()) if len(weights) else 1.0,
        weight_max=float(weights.max()) if len(weights) else 1.0,
    )


def even_parts(items: Sequence[Item], *, most: int) -> Iterator[Sequence[Item]]:
    """`items` in their order, in as few parts of at most `most` as hold them, whose lengths differ by at most one."""
    parts = math.ceil(len(items) / most)
    for place in range(parts):
        yield items[len(items) * place // parts : len(items) * (place + 1) // parts]
