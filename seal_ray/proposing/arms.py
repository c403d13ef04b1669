"""`ArmStatistics`: the posterior (`seal_ray/grpo/posterior.py`) over the arms of all windows, and its decisions.

Statistics belong to the id of an arm, so that an arm that is played again continues them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

import numpy as np

from envs.interface import Interface
from envs.interface.json_form import interface_from_dict, interface_to_dict
from envs.task import JSON
from policies.curator.base import Tried
from seal_ray.grpo.posterior import NOISE, PRIOR, Cell, Posterior, choose_by_posterior, max_distinguishable_arms
from seal_ray.proposing.curator_rewards import CuratorReward
from seal_ray.rollout.types import PLAIN, PLAIN_ARM, Arm, Group, arms_of

MARGIN = 0.05
"""Difference of an arm's value to the incumbent's that a promotion needs."""
PROMOTE_AT = 0.8
"""Probability of that difference above which the arm is promoted."""
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
    """The arms of a window, the plain one first, and the results of its rounds."""

    arms: tuple[Arm, ...] = (PLAIN_ARM,)
    groups: list[ArmGroup] = field(default_factory=list)
    rounds: int = 0

    def observe(self, groups: Sequence[Group]) -> None:
        """Adds a round. A pair counts for both of its arms."""
        for group in groups:
            for arm, trajectories in group.by_arm().items():
                rate = sum(each.reward for each in trajectories) / len(trajectories)
                self.groups.append(ArmGroup(arm, group.plan.category, rate, group.plan.task, len(trajectories)))
        self.rounds += 1

    def to_dict(self) -> dict[str, JSON]:
        return {
            "interfaces": [interface_to_dict(arm.interface) for arm in self.arms],
            "groups": [[each.arm, each.category, each.success, each.task, each.rollouts] for each in self.groups],
            "rounds": self.rounds,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        groups = [ArmGroup(*group) for group in value["groups"]]
        return cls(arms_of(map(interface_from_dict, value["interfaces"])), groups, value["rounds"])


class ArmStatistics:
    """The posterior over the arms of a run, and their interfaces by id."""

    def __init__(self, reward: CuratorReward, *, by_category: bool) -> None:
        self._reward = reward
        noise = NOISE if reward.of_group is None else PRIOR**2
        self.posterior = Posterior(PLAIN, noise=noise, own_noise=by_category)
        self.interfaces: dict[str, Interface] = {}

    def observe(self, window: CuratorWindow) -> None:
        """Adds a window that has ended."""
        self.posterior = self.posterior.after(cells(window, self._reward))
        interfaces = self.interfaces | {arm.id: arm.interface for arm in window.arms}
        self.interfaces = {name: interfaces[name] for name in self.posterior.arms}

    def values(self, window: CuratorWindow) -> dict[str, float]:
        """Arm → posterior mean, for arms that played in the window and have information."""
        played = {group.arm for group in window.groups}
        known = [arm.id for arm in window.arms if arm.id == PLAIN or self.posterior.knows(arm.id)]
        means_A, _ = self.posterior.moments(known)
        return {arm: value for arm, value in zip(known, map(float, means_A), strict=True) if arm in played}

    def value(self, arm: str) -> tuple[float, float]:
        """Mean and standard deviation of an arm's value."""
        means_A, covariances_AA = self.posterior.moments([arm])
        return float(means_A[0]), float(covariances_AA[0, 0]) ** 0.5

    def choose(self, window: CuratorWindow, incumbent: Arm) -> tuple[Arm, float]:
        """The next incumbent, and the largest probability with which an arm is better than the incumbent."""
        names = {arm.id: arm for arm in window.arms}
        kept = choose_by_posterior(self.posterior, list(names), incumbent.id, margin=MARGIN, promote_at=PROMOTE_AT)
        return names.get(kept, incumbent), max(self._better(names, incumbent).values(), default=0.0)

    def challenger(self, incumbent: Arm) -> Interface | None:
        """The best earlier arm, if it is more likely to replace the incumbent than an arm that never played."""
        better = self._better(self.interfaces, incumbent)
        best = max(better, key=lambda name: better[name], default=None)
        threshold = self.posterior.probability_above(_NEVER_PLAYED, incumbent.id, MARGIN)
        return self.interfaces[best] if best is not None and better[best] > threshold else None

    def _better(self, names: Iterable[str], incumbent: Arm) -> dict[str, float]:
        """Arm → probability that it is better than the incumbent by the margin."""
        others = [name for name in names if name != incumbent.id]
        return {name: self.posterior.probability_above(name, incumbent.id, MARGIN) for name in others}

    def room(self, rollouts: int, most: int, *, others: int) -> int:
        """Number of new arms, at most `most`, that a window with so many rollouts under arms can distinguish."""
        return max_distinguishable_arms(
            self.posterior, rollouts, most, others=others, margin=MARGIN, promote_at=PROMOTE_AT
        )

    def allocate(self, window: CuratorWindow, slots: int, seed: int) -> list[int]:
        """Groups of each arm that is not plain, `slots` in all, by Thompson sampling with the window so far."""
        seen = self.posterior.after(cells(window, self._reward))
        return seen.share_out([arm.id for arm in window.arms if not arm.plain], slots, np.random.default_rng(seed))

    def arms_for(self, window: CuratorWindow, categories: Sequence[str], seed: int) -> list[Arm]:
        """The arm that is not plain for each task of these categories, by Thompson sampling within the category."""
        seen = self.posterior.after(cells(window, self._reward))
        shown = [arm for arm in window.arms if not arm.plain]
        places = seen.share_by_stratum([arm.id for arm in shown], categories, np.random.default_rng(seed))
        return [shown[place] for place in places]

    def tried(self) -> list[Tried]:
        """The arms with information, the best first, for the curator's prompt."""
        known = [name for name in self.interfaces if self.posterior.knows(name)]
        tried = [Tried(self.interfaces[name], *self.value(name)) for name in known]
        return sorted(tried, key=lambda each: -each.gain)

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        interfaces = {name: interface_to_dict(interface) for name, interface in self.interfaces.items()}
        return {"posterior": self.posterior.to_dict(), "interfaces": interfaces}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.posterior = self.posterior.with_state(state["posterior"])
        self.interfaces = {name: interface_from_dict(each) for name, each in state["interfaces"].items()}


def cells(window: CuratorWindow, reward: CuratorReward) -> list[Cell]:
    """The results of each arm on each task."""
    by_task: dict[str, dict[str, list[ArmGroup]]] = defaultdict(lambda: defaultdict(list))
    for group in window.groups:
        by_task[group.task][group.arm].append(group)
    return [cell for by_arm in by_task.values() for cell in _task_cells(by_arm, reward)]


def _task_cells(by_arm: Mapping[str, Sequence[ArmGroup]], reward: CuratorReward) -> list[Cell]:
    """The cells of one task."""
    first = next(iter(by_arm.values()))[0]
    cells_of_arms = []
    for arm, played in by_arm.items() if reward.of_group is None else sorted(by_arm.items()):
        rollouts = sum(group.rollouts for group in played)
        if reward.of_group is None:
            rate = sum(group.success * group.rollouts for group in played) / rollouts
            variance = rate * (1 - rate) * rollouts / (rollouts - 1) if rollouts > 1 else None
            cells_of_arms.append(Cell(arm, first.task, first.category, rate, rollouts, variance))
            continue
        values = [reward.of_group(group.success, group.rollouts) for group in played]
        if given := [value for value in values if value is not None]:
            cells_of_arms.append(Cell(arm, first.task, first.category, fmean(given), rollouts))
    return cells_of_arms
