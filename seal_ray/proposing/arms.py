"""`ArmStatistics`: what is known of the arms of all windows, and the decisions that follow from it.

The posterior is that of `seal_ray/grpo/posterior.py`. An arm is known by its id, so that one that is played again
continues its statistics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.task import JSON
from policies.curator.base import Tried
from seal_ray.grpo.posterior import (
    DISCOUNT,
    NOISE,
    PRIOR,
    Cell,
    Posterior,
    choose_by_posterior,
    max_distinguishable_arms,
)
from seal_ray.proposing.curator_rewards import CuratorReward
from seal_ray.rollout.types import PLAIN, PLAIN_ARM, Arm, Group, arms_of

MARGIN = 0.05
"""How far the value of an arm must lie above the incumbent's to replace it."""
PROMOTE_AT = 0.8
"""Probability that it does, above which the incumbent is replaced."""
_NEVER_PLAYED = "never played"


@dataclass(frozen=True, slots=True)
class ArmGroup:
    """One arm's part of a group: success rate (0 to 1) of its rollouts on a task."""

    arm: str
    category: str
    success: float
    task: str
    rollouts: int


@dataclass
class CuratorWindow:
    """The arms of a window, the plain one first, and what was played under them."""

    arms: tuple[Arm, ...] = (PLAIN_ARM,)
    groups: list[ArmGroup] = field(default_factory=list)
    measured: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """Arm → round of the window, from 0 → the cosine or the gap that the curator's reward is by."""
    rounds: int = 0

    def observe(self, groups: Sequence[Group], measured: Mapping[str, float]) -> None:
        """Adds a round. A pair counts for both of its arms."""
        for group in groups:
            for arm, trajectories in group.by_arm().items():
                rate = sum(each.reward for each in trajectories) / len(trajectories)
                self.groups.append(ArmGroup(arm, group.plan.category, rate, group.plan.task, len(trajectories)))
        for arm, value in measured.items():
            self.measured[arm][self.rounds] = value
        self.rounds += 1

    def to_dict(self) -> dict[str, JSON]:
        return {
            "interfaces": [interface_to_dict(arm.interface) for arm in self.arms],
            "groups": [[each.arm, each.category, each.success, each.task, each.rollouts] for each in self.groups],
            "measured": [[arm, list(values.items())] for arm, values in self.measured.items()],
            "rounds": self.rounds,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> CuratorWindow:
        """The inverse of `to_dict`."""
        measured: dict[str, dict[int, float]] = defaultdict(dict)
        measured |= {arm: dict(map(tuple, values)) for arm, values in value["measured"]}
        return cls(
            arms_of(map(interface_from_dict, value["interfaces"])),
            [ArmGroup(*group) for group in value["groups"]],
            measured,
            value["rounds"],
        )


class ArmStatistics:
    """The posterior over the arms of a run, and their interfaces."""

    def __init__(self, reward: CuratorReward, *, by_category: bool) -> None:
        self._reward = reward
        is_gain = reward.by == "success" and reward.of_group is None
        noise = NOISE if is_gain else PRIOR**2
        self.posterior = Posterior(PLAIN, prior=PRIOR, discount=DISCOUNT, noise=noise, own_noise=by_category)
        self.interfaces: dict[str, Interface] = {}
        """Id → interface, of the arms that the posterior has."""

    def observe(self, window: CuratorWindow) -> None:
        """Adds a window that has ended."""
        self.posterior = self.posterior.after(cells(window, self._reward))
        interfaces = self.interfaces | {arm.id: arm.interface for arm in window.arms}
        self.interfaces = {name: interfaces[name] for name in self.posterior.arms}

    def values(self, window: CuratorWindow) -> dict[str, float]:
        """Arm → posterior mean, for arms that played in the window and are known."""
        played = {group.arm for group in window.groups}
        known = [arm.id for arm in window.arms if arm.id == PLAIN or self.posterior.knows(arm.id)]
        means_A, _ = self.posterior.moments(known)
        return {arm: value for arm, value in zip(known, map(float, means_A), strict=True) if arm in played}

    def value(self, arm: str) -> tuple[float, float]:
        """Mean and standard deviation of an arm's value."""
        means_A, covariances_AA = self.posterior.moments([arm])
        return float(means_A[0]), float(covariances_AA[0, 0]) ** 0.5

    def choose(self, window: CuratorWindow, incumbent: Arm) -> tuple[Arm, float]:
        """The arm that stays, and the largest probability with which one is better than the incumbent."""
        names = {arm.id: arm for arm in window.arms}
        others = [name for name in names if name != incumbent.id]
        likely = [self.posterior.probability_above(name, incumbent.id, MARGIN) for name in others]
        kept = choose_by_posterior(self.posterior, list(names), incumbent.id, margin=MARGIN, promote_at=PROMOTE_AT)
        return names.get(kept, incumbent), max(likely, default=0.0)

    def challenger(self, incumbent: Arm) -> Interface | None:
        """An earlier arm that deserves another window: more likely to be better than one that never played."""
        bar = self.posterior.probability_above(_NEVER_PLAYED, incumbent.id, MARGIN)
        likely = {
            name: self.posterior.probability_above(name, incumbent.id, MARGIN)
            for name in self.interfaces
            if name != incumbent.id
        }
        best = max(likely, key=lambda name: likely[name], default=None)
        return self.interfaces[best] if best is not None and likely[best] > bar else None

    def room(self, rollouts: int, most: int, *, beside: int) -> int:
        """How many new arms, at most `most`, a window with that many rollouts under arms can tell apart."""
        return max_distinguishable_arms(
            self.posterior, rollouts, most, beside=beside, margin=MARGIN, promote_at=PROMOTE_AT
        )

    def allocate(self, window: CuratorWindow, slots: int, seed: int) -> list[int]:
        """Groups of each arm that is not plain, `slots` in all, by Thompson sampling; the window so far counts."""
        seen = self.posterior.after(cells(window, self._reward))
        return seen.share_out([arm.id for arm in window.arms if not arm.plain], slots, np.random.default_rng(seed))

    def arms_for(self, window: CuratorWindow, categories: Sequence[str], seed: int) -> list[Arm]:
        """The arm that is not plain for each task of these categories, by Thompson sampling within the category."""
        seen = self.posterior.after(cells(window, self._reward))
        shown = [arm for arm in window.arms if not arm.plain]
        places = seen.share_by_stratum([arm.id for arm in shown], categories, np.random.default_rng(seed))
        return [shown[place] for place in places]

    def tried(self) -> list[Tried]:
        """The known arms, the best first, for the curator to read."""
        known = [
            Tried(interface, *self.value(name))
            for name, interface in self.interfaces.items()
            if self.posterior.knows(name)
        ]
        return sorted(known, key=lambda each: -each.gain)

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        interfaces = {name: interface_to_dict(interface) for name, interface in self.interfaces.items()}
        return {"posterior": self.posterior.to_dict(), "interfaces": interfaces}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.posterior = self.posterior.with_state(state["posterior"])
        self.interfaces = {name: interface_from_dict(each) for name, each in state["interfaces"].items()}


def cells(window: CuratorWindow, reward: CuratorReward) -> list[Cell]:
    """What each arm did on each task, or in each round if the reward is by rounds."""
    if reward.by != "success":
        rounds = sorted({number for values in window.measured.values() for number in values})
        plain = [Cell(PLAIN, f"round {number}", "", 0.0, 1) for number in rounds]
        return plain + [
            Cell(arm, f"round {number}", "", value, 1)
            for arm, values in window.measured.items()
            if arm != PLAIN
            for number, value in values.items()
        ]
    by_task: dict[str, list[ArmGroup]] = defaultdict(list)
    for group in window.groups:
        by_task[group.task].append(group)
    return [cell for task, groups in by_task.items() for cell in _cells_of_task(task, groups, reward)]


def _cells_of_task(task: str, groups: Sequence[ArmGroup], reward: CuratorReward) -> list[Cell]:
    by_arm: dict[str, list[ArmGroup]] = defaultdict(list)
    for group in groups:
        by_arm[group.arm].append(group)
    category = groups[0].category
    found = []
    for arm, played in by_arm.items() if reward.of_group is None else sorted(by_arm.items()):
        rollouts = sum(group.rollouts for group in played)
        if reward.of_group is None:
            rate = sum(group.success * group.rollouts for group in played) / rollouts
            variance = rate * (1 - rate) * rollouts / (rollouts - 1) if rollouts > 1 else None
            found.append(Cell(arm, task, category, rate, rollouts, variance))
            continue
        values = [reward.of_group(group.success, group.rollouts) for group in played]
        given = [value for value in values if value is not None]
        if given:
            found.append(Cell(arm, task, category, fmean(given), rollouts))
    return found
