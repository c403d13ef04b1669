"""`ArmMemory`: what is known of the arms of all windows, and what is decided with it.

The statistics are those of `seal_ray/grpo/posterior.py`; arms are known by the id of their interface, so that one that
is shown again goes on where it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.task import JSON
from policies.curator.base import Tried
from policies.trajectory import interface_id
from seal_ray.algorithm.curation.rewards import CuratorReward, by_rounds, needs_internalised
from seal_ray.algorithm.curation.rewards.gain import GainReward
from seal_ray.algorithm.curation.window import CuratorWindow
from seal_ray.config.sections import Curator
from seal_ray.grpo.arms import PLAIN, ArmGroup
from seal_ray.grpo.posterior import NOISE, Cell, Posterior, choose_by_posterior, max_distinguishable_arms

PLAIN_ID = interface_id(Interface.plain())
_NEVER_PLAYED = "never played"


class ArmMemory:
    """The posterior over the arms of a run, and their interfaces."""

    def __init__(self, settings: Curator, reward: CuratorReward) -> None:
        self._settings = settings
        self._reward = reward
        noise = NOISE if isinstance(reward, GainReward) else settings.prior**2
        self.posterior = Posterior(
            PLAIN_ID,
            prior=settings.prior,
            discount=settings.discount,
            noise=noise,
            own_noise=settings.noise == "by_category",
        )
        self.interfaces: dict[str, Interface] = {}
        """Id → interface, of the arms that the posterior knows."""

    def observe(self, window: CuratorWindow) -> None:
        """Takes in a window that has ended."""
        self.posterior = self.posterior.after(cells_of(window, self._reward))
        found = self.interfaces | {interface_id(arm.interface): arm.interface for arm in window.arms}
        self.interfaces = {name: found[name] for name in self.posterior.arms}

    def values(self, window: CuratorWindow) -> dict[int, float]:
        """Number of an arm → posterior mean, for the plain arm and those that are known."""
        names = {arm.number: interface_id(arm.interface) for arm in window.arms}
        known = [number for number, name in names.items() if number == PLAIN or self.posterior.knows(name)]
        means_A, _ = self.posterior.moments([names[number] for number in known])
        return dict(zip(known, map(float, means_A), strict=True))

    def value(self, interface: Interface) -> tuple[float, float]:
        """Mean and standard deviation of what an interface is worth."""
        means_A, covariances_AA = self.posterior.moments([interface_id(interface)])
        return float(means_A[0]), float(covariances_AA[0, 0]) ** 0.5

    def choose(self, window: CuratorWindow, incumbent: Interface) -> tuple[Interface, float]:
        """The interface that stays, and the largest probability with which one is better than the incumbent."""
        names = {interface_id(arm.interface): arm.interface for arm in window.arms}
        before, settings = interface_id(incumbent), self._settings
        others = [name for name in names if name != before]
        likely = [self.posterior.probability_above(name, before, settings.margin) for name in others]
        kept = choose_by_posterior(
            self.posterior, list(names), before, margin=settings.margin, promote_at=settings.promote_at
        )
        return names.get(kept, incumbent), max(likely, default=0.0)

    def challenger(self, incumbent: Interface) -> Interface | None:
        """An earlier arm that is worth another window: more likely to be better than one that was never played."""
        before, margin = interface_id(incumbent), self._settings.margin
        bar = self.posterior.probability_above(_NEVER_PLAYED, before, margin)
        likely = {
            name: self.posterior.probability_above(name, before, margin) for name in self.interfaces if name != before
        }
        best = max(likely, key=lambda name: likely[name], default=None)
        return self.interfaces[best] if best is not None and likely[best] > bar else None

    def room(self, rollouts: int, most: int, *, beside: int) -> int:
        """How many new arms a window with that many rollouts under arms can tell apart, at most `most`."""
        settings = self._settings
        return max_distinguishable_arms(
            self.posterior,
            rollouts,
            most,
            beside=beside,
            margin=settings.margin,
            promote_at=settings.promote_at,
        )

    def share_out(self, window: CuratorWindow, slots: int, seed: int) -> list[int]:
        """How many of `slots` groups each arm but the plain one gets, from all that was seen, in this window too."""
        seen = self.posterior.after(cells_of(window, self._reward))
        names = [interface_id(arm.interface) for arm in window.arms if not arm.plain]
        return seen.share_out(names, slots, np.random.default_rng(seed))

    def arms_for(self, window: CuratorWindow, categories: Sequence[str], seed: int) -> list[int]:
        """The arm, beside the plain one, that plays each task of these categories, by what arms do for a category."""
        seen = self.posterior.after(cells_of(window, self._reward))
        shown = [arm for arm in window.arms if not arm.plain]
        names = [interface_id(arm.interface) for arm in shown]
        places = seen.share_by_stratum(names, categories, np.random.default_rng(seed))
        return [shown[place].number for place in places]

    def tried(self) -> list[Tried]:
        """The arms that are known, the best first, for the curator to read."""
        known = [each for name, each in self.interfaces.items() if self.posterior.knows(name)]
        found = [Tried(interface, *self.value(interface)) for interface in known]
        return sorted(found, key=lambda each: -each.gain)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        interfaces = {name: interface_to_dict(interface) for name, interface in self.interfaces.items()}
        return {"posterior": self.posterior.to_dict(), "interfaces": interfaces}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. Nothing is known in checkpoints of earlier versions."""
        if state:
            self.posterior = self.posterior.with_state(state["posterior"])
            self.interfaces = {name: interface_from_dict(each) for name, each in state["interfaces"].items()}


def cells_of(window: CuratorWindow, reward: CuratorReward) -> list[Cell]:
    """What each arm did on each task, or in each round where the reward is by rounds; all groups of a task together."""
    names = {arm.number: interface_id(arm.interface) for arm in window.arms}
    if by_rounds(reward):
        values = window.internalised if needs_internalised(reward) else window.alignments
        rounds = sorted({number for found in values.values() for number in found})
        plain = [Cell(PLAIN_ID, f"round {number}", "", 0.0, 1) for number in rounds]
        return plain + [
            Cell(names[arm], f"round {number}", "", value, 1)
            for arm, found in values.items()
            if arm != PLAIN
            for number, value in found.items()
        ]
    by_task: dict[str, list[ArmGroup]] = defaultdict(list)
    for group in window.groups:
        if group.task:
            by_task[group.task].append(group)
    return [cell for task, groups in by_task.items() for cell in _cells_of_task(task, groups, names, reward)]


def _cells_of_task(
    task: str, groups: Sequence[ArmGroup], names: Mapping[int, str], reward: CuratorReward
) -> list[Cell]:
    rollouts: dict[int, int] = defaultdict(int)
    successes: dict[int, float] = defaultdict(float)
    for group in groups:
        rollouts[group.arm] += group.rollouts
        successes[group.arm] += group.success * group.rollouts
    category = groups[0].category
    if not isinstance(reward, GainReward):
        values = reward(groups, {})
        return [Cell(names[arm], task, category, value, rollouts[arm]) for arm, value in values.items()]
    found = []
    for arm, n in rollouts.items():
        rate = successes[arm] / n
        variance = rate * (1 - rate) * n / (n - 1) if n > 1 else None
        found.append(Cell(names[arm], task, category, rate, n, variance))
    return found
