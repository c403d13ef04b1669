"""Arms, the plan of a group, and the group as it was played.

arm = Arm(Interface(guidelines=("Ask if a value is missing.",)))
plan = GroupPlan(number=0, task="miss_param-7", category="miss_param", arm=arm, protocol=Protocol.SEAL,
                 seeds=(1, 2, 3, 4), temperature=1.0, plain_members=2)
group = Group(plan, tuple(Member(arm, trajectory) for arm, trajectory in zip(plan.arms, trajectories)))
group.by_arm()  # {PLAIN_ARM.id: [two trajectories], arm.id: [the other two]}
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from envs.dialogue import Protocol
from envs.errors import EnvironmentFault
from envs.interface import Interface
from policies.plain_view import NoView, PlainView
from policies.rollouts import Fault
from policies.trajectory import Trajectory, interface_id
from policies.turn_start import TurnStart
from seal_ray.grpo.rewards import Reward

REWARD_FAULT, LEFT_OUT = "RewardFault", "LeftOut"
"""Kinds of the faults of rollouts whose reward failed, or is None."""


@dataclass(frozen=True)
class Arm:
    """An interface that groups are played under. Its `id` is a hash of what it shows."""

    interface: Interface

    @cached_property
    def id(self) -> str:
        return interface_id(self.interface)

    @property
    def plain(self) -> bool:
        return self.interface == Interface.plain()


PLAIN_ARM = Arm(Interface.plain())
PLAIN = PLAIN_ARM.id


def arms_of(interfaces: Iterable[Interface]) -> tuple[Arm, ...]:
    """The arms of a window: the plain one first, then the different arms of these interfaces in their order."""
    return tuple(Arm(interface) for interface in dict.fromkeys([Interface.plain(), *interfaces]))


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The plan of one group: a task, an arm, and a seed for each member.

    `number` counts a run's groups from 0. The first `plain_members` play the plain interface, the others the arm; a
    group with both is a pair. With a `start` the members play that turn alone: a turn probe.
    """

    number: int
    task: str
    category: str
    arm: Arm
    protocol: Protocol
    seeds: tuple[int, ...]
    temperature: float
    plain_members: int = 0
    start: TurnStart | None = None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arm of each member."""
        return (PLAIN_ARM,) * self.plain_members + (self.arm,) * (len(self.seeds) - self.plain_members)

    @property
    def plain(self) -> bool:
        """Whether all members play the plain interface."""
        return self.arm.plain or self.plain_members == len(self.seeds)


@dataclass(frozen=True, slots=True)
class Member:
    """A rollout of a group: its arm, its trajectory or the fault that it was lost to, its plain view, its reward.

    `view` is None on the plain interface, and if views were not requested. `reward` is nan for a fault, and until the
    group is scored.
    """

    arm: Arm
    outcome: Trajectory | Fault
    view: PlainView | NoView | None = None
    reward: float = float("nan")

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory of a member that was played."""
        assert isinstance(self.outcome, Trajectory)
        return self.outcome


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it was played, its members in the order of the plan's seeds."""

    plan: GroupPlan
    members: tuple[Member, ...]

    @property
    def played(self) -> list[Member]:
        """The members that were not lost to faults."""
        return [member for member in self.members if isinstance(member.outcome, Trajectory)]

    @property
    def trajectories(self) -> list[Trajectory]:
        return [member.trajectory for member in self.played]

    @property
    def faults(self) -> list[Fault]:
        faults = [member.outcome for member in self.members if isinstance(member.outcome, Fault)]
        return [fault for fault in faults if fault.kind != LEFT_OUT]

    @property
    def left_out(self) -> int:
        """The number of members that the reward left out."""
        return len(self.members) - len(self.played) - len(self.faults)

    def by_arm(self) -> dict[str, list[Trajectory]]:
        """Id of an arm → its trajectories, for arms with trajectories: two in a pair."""
        by_arm: dict[str, list[Trajectory]] = {}
        for member in self.played:
            by_arm.setdefault(member.arm.id, []).append(member.trajectory)
        return by_arm

    def scored(self, reward: Reward) -> Self:
        """The group with the reward of each member that was played, computed once.

        A reward that faults, or is None, takes the place of its trajectory.
        """
        return replace(self, members=tuple(_scored(member, reward) for member in self.members))


def _scored(member: Member, reward: Reward) -> Member:
    if not isinstance(member.outcome, Trajectory):
        return member
    task, seed = member.outcome.task, member.outcome.seed
    try:
        value = reward(member.outcome)
    except EnvironmentFault as error:
        return replace(member, outcome=Fault(task, seed, REWARD_FAULT, str(error)), view=None)
    if value is None:
        return replace(member, outcome=Fault(task, seed, LEFT_OUT, "the reward is None"), view=None)
    return replace(member, reward=value)


def played_trajectories(groups: Sequence[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]
