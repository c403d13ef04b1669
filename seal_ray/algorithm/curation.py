"""`Curation`: the curator's side of a run. It asks for proposals, keeps what came of them, and pays the curator.

A window is `curator.update_every` rounds. At its begin the curator proposes; its proposals, the incumbent and the plain
interface are the window's arms. At its end each arm has a value, the best may become the incumbent, and a curator that
learns takes one GRPO step on its proposals, whose rewards are compared with each other: all answer the same profile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator import Curator, Proposal
from policies.curator.base import CuratorSample
from policies.curator.llm import LLMCurator
from policies.trajectory import interface_id
from seal_ray.algorithm.dispatch import while_healing
from seal_ray.algorithm.runner import PlayedGroup
from seal_ray.config import sections
from seal_ray.config.objects import make_curator_reward
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.arms import ArmGroup, choose_incumbent
from seal_ray.grpo.rows import Row, make_row


@dataclass
class Window:
    """The arms of a window, the plain one first, and what was played under them."""

    interfaces: tuple[Interface, ...] = (Interface.plain(),)
    proposals: tuple[Proposal, ...] = ()
    groups: list[ArmGroup] = field(default_factory=list)
    alignments: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Arm → cosine of its policy gradient with that of the plain arm, for each round in which it played."""

    def arm(self, interface: Interface) -> int:
        """The arm of an interface."""
        return self.interfaces.index(interface)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A window's end: each proposal's reward, and the rows that the curator learns from."""

    rewards: tuple[float | None, ...]
    """One a proposal; None where its arm was not played."""
    rows: list[Row]
    promoted: bool


class Curation:
    """Owns the curator, the incumbent and the window. `incumbent` is what it holds for the best interface so far."""

    def __init__(self, settings: sections.Curator, curator: Curator) -> None:
        self.settings = settings
        self.curator = curator
        self.reward = make_curator_reward(settings)
        self.incumbent = Interface.plain()
        self.window = Window()

    @property
    def _is_model(self) -> bool:
        return isinstance(self.curator, LLMCurator)

    @property
    def interfaces(self) -> list[Interface]:
        """What is shown in this window, in the order of the arms, without the plain interface."""
        return list(self.window.interfaces[1:])

    def begins_at(self, round_number: int) -> bool:
        """Whether a window begins with this round, counted from 0."""
        return round_number % self.settings.update_every == 0

    def ends_at(self, round_number: int) -> bool:
        """Whether a window ends with this round."""
        return self.begins_at(round_number + 1)

    def propose(self, profile: FailureProfile, *, round_number: int, seed: int, heal: Callable[[], None]) -> bool:
        """Begins a window with the curator's proposals. Returns whether the incumbent is another than before.

        A curator without a model proposes what is shown from now on. The proposals of a model are tried out first.
        `heal` is called while it writes.
        """
        before = self.incumbent
        work = self.curator.propose(
            profile,
            incumbent=before,
            n=self.settings.proposals if self._is_model else 1,
            round_number=round_number,
            seed=seed,
        )
        proposals: tuple[Proposal, ...] = while_healing(lambda: asyncio.run(work), heal)
        accepted = [each.interface for each in proposals if each.rejection is None]
        if not self._is_model:
            self.incumbent, accepted = (accepted or [before])[0], []
        arms = dict.fromkeys([Interface.plain(), self.incumbent, *accepted])
        self.window = Window(tuple(arms), proposals)
        return self.incumbent != before

    def observe(self, groups: Sequence[PlayedGroup], alignments: Mapping[int, float]) -> None:
        """Takes note of a round of the window."""
        for group in groups:
            played = group.trajectories
            if played:
                rate = sum(each.reward for each in played) / len(played)
                self.window.groups.append(ArmGroup(group.plan.arm, played[0].category, rate))
        for arm, value in alignments.items():
            self.window.alignments[arm].append(value)

    def judge(self) -> Verdict:
        """Ends the window. The incumbent is replaced where the value of an arm lies far enough above it."""
        if not self._is_model:
            return Verdict((None,) * len(self.window.proposals), [], promoted=False)
        window, settings = self.window, self.settings
        values = self.reward(window.groups, window.alignments)
        rewards = tuple(
            self.reward.worst if each.rejection is not None else values.get(window.arm(each.interface))
            for each in window.proposals
        )
        kept = choose_incumbent(values, window.arm(self.incumbent), settings.margin)
        promoted = window.interfaces[kept] != self.incumbent
        self.incumbent = window.interfaces[kept]
        return Verdict(rewards, _rows(window.proposals, rewards), promoted)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        window = self.window
        return {
            "curator": self.curator.get_state(),
            "incumbent": interface_to_dict(self.incumbent),
            "interfaces": [interface_to_dict(each) for each in window.interfaces],
            "proposals": [
                {
                    "interface": interface_to_dict(each.interface),
                    "rejection": each.rejection,
                    "sample": None if each.sample is None else asdict(each.sample),
                }
                for each in window.proposals
            ],
            "groups": [[group.arm, group.category, group.success] for group in window.groups],
            "alignments": [[arm, list(values)] for arm, values in window.alignments.items()],
        }

    def set_state(self, state: Mapping[str, JSON]) -> None:
        """The inverse."""
        self.curator.set_state(state["curator"])
        self.incumbent = interface_from_dict(state["incumbent"])
        proposals = tuple(
            Proposal(
                interface_from_dict(each["interface"]),
                each["rejection"],
                None if each["sample"] is None else _sample(each["sample"]),
            )
            for each in state["proposals"]
        )
        self.window = Window(
            tuple(map(interface_from_dict, state["interfaces"])),
            proposals,
            [ArmGroup(*group) for group in state["groups"]],
            defaultdict(list, {arm: list(values) for arm, values in state["alignments"]}),
        )

    def as_rows(self, verdict: Verdict | None) -> list[dict[str, JSON]]:
        """The window's proposals for people to read: what was proposed or why not, and what it was worth."""
        rewards = verdict.rewards if verdict else (None,) * len(self.window.proposals)
        return [
            {
                "id": interface_id(each.interface),
                **interface_to_dict(each.interface),
                "rejection": each.rejection,
                "reward": reward,
            }
            for each, reward in zip(self.window.proposals, rewards, strict=True)
        ]


def _rows(proposals: Sequence[Proposal], rewards: Sequence[float | None]) -> list[Row]:
    """Rows with group-relative advantages; none where all rewards are the same."""
    found = [
        (each.sample, reward)
        for each, reward in zip(proposals, rewards, strict=True)
        if each.sample is not None and reward is not None and any(each.sample.mask_T)
    ]
    advantages = group_advantages([reward for _, reward in found]) if len(found) > 1 else None
    if advantages is None:
        return []
    return [
        make_row(sample.token_ids_T, sample.mask_T, sample.logprobs_T, float(advantage))
        for (sample, _), advantage in zip(found, advantages, strict=True)
    ]


def _sample(value: Mapping[str, JSON]) -> CuratorSample:
    return CuratorSample(
        tuple(value["token_ids_T"]),
        tuple(value["mask_T"]),
        tuple(value["logprobs_T"]),
        tuple(value["versions_T"]),
        value["seed"],
    )
