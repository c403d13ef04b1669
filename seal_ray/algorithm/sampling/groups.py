"""The data of a round's sampling: an arm, the plan of a group, and the group as it was played."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envs.dialogue import Protocol
from envs.interface import Interface
from policies.rollouts import Fault
from policies.trajectory import Trajectory
from seal_ray.grpo.arms import PLAIN


@dataclass(frozen=True, slots=True)
class Arm:
    """An interface that groups of a window are played under, by its number in the window. Number 0 is the plain one."""

    number: int
    interface: Interface

    @property
    def plain(self) -> bool:
        """Whether it is the plain interface."""
        return self.number == PLAIN


PLAIN_ARM = Arm(PLAIN, Interface.plain())


def number_arms(interfaces: Iterable[Interface]) -> tuple[Arm, ...]:
    """The arms of a window: the plain interface first, then these in their order, each once."""
    return tuple(Arm(*pair) for pair in enumerate(dict.fromkeys([Interface.plain(), *interfaces])))


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group: a task, the arm that all its members play, and a seed for each of them.

    `number` counts a run's groups from 0.
    """

    number: int
    task: str
    arm: Arm
    protocol: Protocol
    seeds: tuple[int, ...]
    temperature: float


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """A group with the outcome of each of its dialogues, in the order of its seeds."""

    plan: GroupPlan
    outcomes: tuple[Trajectory | Fault, ...]

    @property
    def trajectories(self) -> list[Trajectory]:
        """The dialogues that were played."""
        return [each for each in self.outcomes if isinstance(each, Trajectory)]

    @property
    def faults(self) -> list[Fault]:
        """The dialogues that were lost."""
        return [each for each in self.outcomes if isinstance(each, Fault)]
