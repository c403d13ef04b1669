"""From played groups to rows for the learner: rewards, advantages, diagnosis weights, minibatches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import compress
from typing import Any, TypeVar

import numpy as np

from envs.task import JSON
from policies.plain_view import PlainView
from policies.trajectory import Trajectory
from seal_ray.algorithm.sampling.groups import Member, PlayedGroup
from seal_ray.config.sections import Reweighting, Training
from seal_ray.grpo.advantages import GroupAdvantages
from seal_ray.grpo.rewards import Reward
from seal_ray.grpo.reweighting import DynamicWeights, ReweightingSettings, labels_of, reweighted, rho_table
from seal_ray.grpo.rows import Minibatch, Row, row_of
from seal_ray.grpo.schedule import faded

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
    dropped_unseen: int
    """Groups of which no dialogue gives a row: guided ones that succeeded without a plain view, or failed."""
    anchored: int
    anchor_share: float
    weight_mean: float
    weight_max: float

    @property
    def measured(self) -> dict[str, float]:
        """What was counted, by the names of metrics."""
        return {
            "solver/groups_kept": self.groups_kept,
            "solver/groups_dropped_equal": self.dropped_equal,
            "solver/groups_dropped_short": self.dropped_short,
            "solver/groups_dropped_unseen": self.dropped_unseen,
            "solver/anchored_rows": self.anchored,
            "solver/anchor_share": self.anchor_share,
            "solver/weight_mean": self.weight_mean,
            "solver/weight_max": self.weight_max,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ComparedGroup:
    """The dialogues of a group that are learnt from, with their group-relative advantages."""

    members: Sequence[Member]
    advantages_G: np.ndarray

    @property
    def trajectories(self) -> list[Trajectory]:
        return [each.trajectory for each in self.members]


class Dropped(Enum):
    """Why a group is not learnt from."""

    EQUAL = auto()
    """All rewards are the same."""
    SHORT = auto()
    """Faults left it too few dialogues."""
    UNSEEN = auto()
    """No dialogue of it gives a row."""


@dataclass(frozen=True)
class GroupScorer:
    """How the dialogues of a group are compared, and whether that teaches anything.

    `floor` is the share of a group's dialogues that must have been played; of a pair's, the share of each half.
    """

    reward: Reward
    advantages_of: GroupAdvantages
    floor: float

    def __call__(self, group: PlayedGroup) -> ComparedGroup | Dropped:
        played = [each for each in group.members if any(each.trajectory.mask_T)]
        arms = [each.arm.number for each in played]
        planned = Counter(arm.number for arm in group.plan.arms)
        few = len(played) < min(2, len(group.plan.arms))
        if few or any(arms.count(arm) < self.floor * members for arm, members in planned.items()):
            return Dropped.SHORT
        if len(played) < 2:
            return Dropped.EQUAL
        advantages = self.advantages_of([self.reward(each.trajectory) for each in played], arms)
        return Dropped.EQUAL if advantages is None else ComparedGroup(played, advantages)

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
        """Label → weight as it stands; 1 for all where nothing is reweighted."""
        if self.settings.mode == "none":
            return dict.fromkeys(self._rho, 1.0)
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


@dataclass(frozen=True, slots=True)
class RowSelector:
    """What of a compared group becomes rows in a round, by `training.view`.

    On the plain view a dialogue under an interface becomes an anchored row where its advantage is positive and it has a
    view: its advantage is then held by a `cap`, and multiplied by `share`.
    """

    plain: bool
    share: float
    cap: float | None

    @classmethod
    def of(cls, training: Training, round_number: int) -> RowSelector:
        """That of a round, counted from 0."""

        def now(start: float, end: float | None) -> float:
            return faded(start, end, begin=training.anchor_fade_from, round_number=round_number, rounds=training.rounds)

        cap = training.anchor_cap
        return cls(
            training.view == "plain",
            now(training.anchor_share, training.anchor_share_end),
            None if cap is None else now(cap, training.anchor_cap_end),
        )

    def __call__(self, group: ComparedGroup | Dropped) -> ComparedGroup | Dropped:
        """The group with the members that give a row."""
        if isinstance(group, Dropped) or not self.plain:
            return group
        found = zip(group.members, group.advantages_G, strict=True)
        kept = np.array([each.arm.plain or self._is_anchored(each, float(advantage)) for each, advantage in found])
        if not kept.any():
            return Dropped.UNSEEN
        return ComparedGroup(list(compress(group.members, kept)), group.advantages_G[kept])

    def row(self, member: Member, advantage: float, *, compare_arms: bool) -> Row:
        """The row of a member, whose weighted advantage this is."""
        number = member.arm.number
        arm = number if compare_arms else None
        if member.arm.plain or not self.plain:
            return row_of(member.trajectory, advantage, arm=arm)
        assert isinstance(member.view, PlainView), "what has no view gives no row"
        held = advantage if self.cap is None else min(advantage, self.cap)
        return row_of(member.view, self.share * held, arm=arm, anchored=number)

    def _is_anchored(self, member: Member, advantage: float) -> bool:
        return advantage > 0 and self.share > 0 and isinstance(member.view, PlainView)


def make_rows(
    groups: Sequence[PlayedGroup],
    *,
    compare: GroupScorer,
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
    taught = RowSelector.of(training, round_number)
    compared = [taught(compare(group)) for group in groups]
    kept = [group for group in compared if isinstance(group, ComparedGroup)]
    weighted, weights = reweighter.weigh(kept, round_number)
    groups_of_rows = [
        [
            taught.row(each, float(advantage), compare_arms=compare_arms)
            for each, advantage in zip(group.members, advantages_G, strict=True)
        ]
        for group, advantages_G in zip(kept, weighted, strict=True)
    ]
    minibatches = [Minibatch.of(part) for part in even_parts(groups_of_rows, most=training.minibatch_groups)]
    return RoundRows(
        minibatches=minibatches * training.epochs,
        groups_kept=len(kept),
        dropped_equal=compared.count(Dropped.EQUAL),
        dropped_short=compared.count(Dropped.SHORT),
        dropped_unseen=compared.count(Dropped.UNSEEN),
        anchored=sum(row.anchored is not None for rows in groups_of_rows for row in rows),
        anchor_share=taught.share,
        weight_mean=float(weights.mean()) if len(weights) else 1.0,
        weight_max=float(weights.max()) if len(weights) else 1.0,
    )


def even_parts(items: Sequence[Item], *, most: int) -> Iterator[Sequence[Item]]:
    """`items` in their order, in as few parts of at most `most` as hold them, whose lengths differ by at most one."""
    parts = math.ceil(len(items) / most)
    for place in range(parts):
        yield items[len(items) * place // parts : len(items) * (place + 1) // parts]
