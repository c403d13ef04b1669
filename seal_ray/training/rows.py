"""From played groups to rows for the learner: advantages, diagnosis weights, minibatches."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import compress
from typing import TypeVar

import numpy as np

from policies.plain_view import PlainView
from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.advantages import Advantage, group_advantages
from seal_ray.grpo.reweighting import Reweighter
from seal_ray.grpo.rows import Minibatch, Row, row_of
from seal_ray.rollout.types import Group, Member

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RowWeight:
    """The advantage of a rollout that gave a row, and its diagnosis weight, which multiplied the advantage."""

    advantage: float
    weight: float


@dataclass(frozen=True, slots=True)
class RoundRows:
    """The minibatches of a round, one for each gradient step, its metrics, and the weights of its rows."""

    minibatches: list[Minibatch]
    metrics: dict[str, float]
    weighted: Mapping[int, RowWeight]
    """Seed of a rollout → its advantage and weight, for rollouts that give a row."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredGroup:
    """The selected members of a group, with their advantages."""

    members: Sequence[Member]
    advantages_G: np.ndarray


class Dropped(Enum):
    """The reason why a group gives no rows."""

    EQUAL = auto()
    """All rewards are equal."""
    SHORT = auto()
    """Faults left too few rollouts."""
    UNSEEN = auto()
    """No member gives a row: they are guided, and failed or have no plain view."""


@dataclass(frozen=True)
class GroupScorer:
    """Compares the rewards of a group's members.

    `min_completion` is the share of a group's members, or of each half of a pair, that must have been played.
    """

    advantage: Advantage
    min_completion: float

    def __call__(self, group: Group) -> ScoredGroup | Dropped:
        played = [member for member in group.played if any(member.trajectory.mask_T)]
        arms = [member.arm.id for member in played]
        planned = Counter(arm.id for arm in group.plan.arms)
        few = len(played) < min(2, len(group.plan.arms))
        if few or any(arms.count(arm) < self.min_completion * members for arm, members in planned.items()):
            return Dropped.SHORT
        if len(played) < 2:
            return Dropped.EQUAL
        advantages_G = group_advantages(
            [member.reward for member in played],
            [int(not member.arm.plain) for member in played],
            advantage=self.advantage,
        )
        return Dropped.EQUAL if advantages_G is None else ScoredGroup(played, advantages_G)

    def is_equal(self, group: Group) -> bool:
        """Whether all rewards of the group are equal."""
        return self(group) is Dropped.EQUAL


def select_members(group: ScoredGroup | Dropped, *, view: str) -> ScoredGroup | Dropped:
    """The group with the members that give a row under this `training.view`.

    With view=plain, a rollout under an interface gives a row if its advantage is positive and it has a plain view.
    """
    if isinstance(group, Dropped) or view == "shown":
        return group
    has_view = np.array([isinstance(member.view, PlainView) for member in group.members])
    kept = np.array([member.arm.plain for member in group.members]) | (has_view & (group.advantages_G > 0))
    if not kept.any():
        return Dropped.UNSEEN
    return ScoredGroup(list(compress(group.members, kept)), group.advantages_G[kept])


def member_row(member: Member, advantage: float, *, view: str) -> Row:
    """The row of a member with its weighted advantage."""
    if member.arm.plain or view == "shown":
        return row_of(member.trajectory, advantage)
    assert isinstance(member.view, PlainView), "members without a view give no row"
    return row_of(member.view, advantage, stripped_of=member.arm.id)


def make_rows(
    groups: Sequence[Group], *, score: GroupScorer, training: TrainingSection, reweighter: Reweighter
) -> RoundRows:
    """The rows of a round's groups in order, in as few minibatches of `training.minibatch_groups` as possible.

    Groups without rows are dropped first, and the others are distributed evenly: AdamW's step for a minibatch of one
    left-over group would be as large as for a full one.
    """
    scored = [select_members(score(group), view=training.view) for group in groups]
    kept = [group for group in scored if isinstance(group, ScoredGroup)]
    advantages_J = np.concatenate([group.advantages_G for group in kept]) if kept else np.empty(0)
    diagnoses = [member.trajectory.diagnosis for group in kept for member in group.members]
    weighted_J, weights_J = reweighter.weigh(advantages_J, diagnoses)
    ends = np.cumsum([len(group.members) for group in kept])
    groups_of_rows = [
        [
            member_row(member, float(advantage), view=training.view)
            for member, advantage in zip(group.members, advantages_G, strict=True)
        ]
        for group, advantages_G in zip(kept, np.split(weighted_J, ends)[:-1], strict=True)
    ]
    seeds = [member.trajectory.seed for group in kept for member in group.members]
    minibatches = [Minibatch.of(part) for part in even_parts(groups_of_rows, most=training.minibatch_groups)]
    return RoundRows(
        minibatches * training.epochs,
        {
            "solver/groups_kept": len(kept),
            "solver/groups_dropped_equal": scored.count(Dropped.EQUAL),
            "solver/groups_dropped_short": scored.count(Dropped.SHORT),
            "solver/groups_dropped_unseen": scored.count(Dropped.UNSEEN),
            "solver/hint_stripped_rows": sum(row.stripped_of is not None for rows in groups_of_rows for row in rows),
            "solver/weight_mean": float(weights_J.mean()) if len(weights_J) else 1.0,
            "solver/weight_max": float(weights_J.max()) if len(weights_J) else 1.0,
        },
        dict(zip(seeds, map(RowWeight, advantages_J.tolist(), weights_J.tolist()), strict=True)),
    )


def even_parts(items: Sequence[Item], *, most: int) -> Iterator[Sequence[Item]]:
    """`items` in order, in as few parts of at most `most` as possible, whose lengths differ by at most one."""
    parts = math.ceil(len(items) / most)
    for place in range(parts):
        yield items[len(items) * place // parts : len(items) * (place + 1) // parts]
