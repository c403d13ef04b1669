"""A round's groups: their arms, which task each plays under which arm with which seeds, and each as it was played."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envs.dialogue import Protocol
from envs.interface import Interface
from policies.rollouts import Fault
from policies.trajectory import Trajectory, derive_seed
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


def plan_round(
    tasks: Sequence[str],
    arms: Sequence[Arm],
    *,
    first_number: int,
    plain_share: float,
    group_size: int,
    protocol: Protocol,
    temperature: float,
    seed: int,
) -> list[GroupPlan]:
    """The groups of one round, one for each of `tasks`.

    `plain_share` of them, rounded and at least one, play the first arm, which is the plain one; the others take the
    other arms in turn. Arms vary between groups and never within one, so that a group's prompts share a prefix.
    """
    plain_arm, *shown = arms
    plain = max(1, round(plain_share * len(tasks))) if shown else len(tasks)
    drawn = [plain_arm] * plain + [shown[place % len(shown)] for place in range(len(tasks) - plain)]
    random.Random(f"arms {seed} {first_number}").shuffle(drawn)
    return [
        GroupPlan(
            number=number,
            task=task,
            arm=arm,
            protocol=protocol,
            seeds=tuple(derive_seed(seed, "rollout", number, member) for member in range(group_size)),
            temperature=temperature,
        )
        for number, task, arm in zip(range(first_number, first_number + len(tasks)), tasks, drawn, strict=True)
    ]


def plain_share_at(round_number: int, *, rounds: int, start: float, end: float | None, fade_from: float) -> float:
    """The share of groups on the plain interface in a round, counted from 0: constant, then linear to `end`.

    A fade-out shows whether what the interface unlocked stays without it.
    """
    if end is None:
        return start
    begin = fade_from * rounds
    done = (round_number - begin) / max(1.0, rounds - 1 - begin)
    return start + (end - start) * min(1.0, max(0.0, done))
