"""`CuratorLoop`: the curator's side of a run. It requests proposals, compares their arms, and has the curator learn.

A window is `curator.update_every` rounds. At its start the curator proposes; its proposals, the incumbent and the plain
interface are the window's arms. At its end each arm has a value, the best may become the incumbent, and a curator that
learns takes one GRPO step on its proposals, whose rewards are compared with each other: all answer the same profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON, Task
from policies.curator import Curator, Proposal
from policies.curator.choice import CURATORS
from policies.curator.llm import LLMCurator
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.trajectory import interface_id
from seal_ray.algorithm.agent import Agent, writing_of
from seal_ray.algorithm.curation.guard import RunGuard
from seal_ray.algorithm.curation.memory import ArmMemory
from seal_ray.algorithm.curation.rewards import by_rounds, needs_internalised
from seal_ray.algorithm.curation.rewards.gain import GainReward
from seal_ray.algorithm.curation.window import (
    CuratorWindow,
    Verdict,
    arms_as_rows,
    first_distinct,
    likeliest_first,
    most_varied,
    proposals_as_rows,
)
from seal_ray.algorithm.objects import make_curator_reward, make_plain_curator
from seal_ray.algorithm.sampling.dispatch import while_healing
from seal_ray.algorithm.sampling.groups import Arm, PlayedGroup, number_arms
from seal_ray.config import sections
from seal_ray.config.agents import Settings
from seal_ray.grpo.arms import choose_incumbent
from seal_ray.grpo.rows import Row, row_of
from seal_ray.grpo.writer_updates.grpo import GRPOUpdate


class CuratorLoop:
    """Owns the curator, the incumbent and the window. `incumbent` is the interface with the best value so far.

    A curator that is a language model is an `agent` of the run, and has a `guard` against leaks.
    `last_proposals` are those of the window that the last round belongs to, for people to read, and `last_arms` what is
    known of its arms where that round ended it. `memory` is what is known of the arms of all windows.
    """

    def __init__(
        self, settings: sections.Curator, curator: Curator, *, agent: Agent | None = None, guard: RunGuard | None = None
    ) -> None:
        self.settings = settings
        self.curator = curator
        self.agent = agent
        self.reward = make_curator_reward(settings)
        self.incumbent = Interface.plain()
        self.window = CuratorWindow()
        self.memory = ArmMemory(settings, self.reward)
        self.last_proposals: list[dict[str, JSON]] = []
        self.last_arms: list[dict[str, JSON]] = []
        self._guard = guard
        self._update = GRPOUpdate(
            GRPOUpdate.Settings(advantage=settings.advantage, rejection_step=settings.rejection_step)
        )

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that this window's groups play, the plain one first."""
        return self.window.arms

    @property
    def compares_gradients(self) -> bool:
        """Whether the curator's reward is about an arm's gradient and that of the plain arm."""
        return self.agent is not None and self.reward.needs_gradients

    @property
    def needs_internalised(self) -> bool:
        """Whether the curator's reward is about what training on an arm's views did."""
        return self.agent is not None and needs_internalised(self.reward)

    @property
    def _by_posterior(self) -> bool:
        return self.agent is not None and self.settings.choose == "posterior"

    def share_out(self, slots: int, seed: int) -> list[int] | None:
        """How many of a round's groups each arm but the plain one plays; None where they take turns."""
        if not self._by_posterior or self.settings.share_out != "thompson":
            return None
        return self.memory.share_out(self.window, slots, seed)

    @property
    def tasks_choose(self) -> bool:
        """Whether there are arms to choose from, and half of a round's tasks choose theirs by their category."""
        return self._by_posterior and self.settings.share_out == "by_category" and len(self.window.arms) > 1

    def arms_for(self, categories: Sequence[str], seed: int) -> list[int] | None:
        """The arm for each task of these categories; None where tasks do not choose their arms."""
        if not self.tasks_choose:
            return None
        return self.memory.arms_for(self.window, categories, seed)

    def begins_at(self, round_number: int) -> bool:
        """Whether a window begins with this round, counted from 0."""
        return round_number % self.settings.update_every == 0

    def propose(
        self,
        profile: FailureProfile,
        *,
        round_number: int,
        seed: int,
        upcoming: Iterable[Task] = (),
        rollouts: int | None = None,
        heal: Callable[[], None],
    ) -> bool:
        """Begins a window with the curator's proposals. Returns whether the incumbent is another than before.

        A curator without a model proposes what is shown from now on. The proposals of a model are tried out first; the
        guard holds them, and the incumbent, against the `upcoming` tasks of the window. `heal` is called while it
        writes. With the posterior one of the arms may be of an earlier window, and where success is compared there are
        no more new ones than `rollouts`, those that the window has for all arms but the plain one, can tell apart;
        where there is none, nothing is proposed.
        """
        shown = self.incumbent
        if self._guard is not None:
            self._guard.start_window(upcoming)
            if self._guard.check(shown) is not None:
                self.incumbent = Interface.plain()
        before = self.incumbent
        earlier, new = self._room(rollouts)
        work = self.curator.propose(profile, incumbent=before, n=self._asked(new), round_number=round_number, seed=seed)
        proposals: tuple[Proposal, ...] = while_healing(lambda: asyncio.run(work), heal)
        accepted = [each.interface for each in proposals if each.rejection is None]
        if self.agent is None:
            self.incumbent, accepted = (accepted or [before])[0], []
        elif self._by_posterior or self.settings.played is not None:
            accepted = self._picked(proposals, [Interface.plain(), before, *earlier], new)
        self.window = CuratorWindow(number_arms([self.incumbent, *earlier, *accepted]), proposals)
        return self.incumbent != shown

    def _room(self, rollouts: int | None) -> tuple[list[Interface], int]:
        """The arm of an earlier window that plays again, if any, and how many new ones can play beside it."""
        most = self.settings.played or self.settings.proposals
        if not self._by_posterior:
            return [], most
        if isinstance(self.curator, LLMCurator):
            self.curator.tried = self.memory.tried()
        if rollouts is not None and not by_rounds(self.reward):
            most = self.memory.room(rollouts, most, beside=int(not self.incumbent.is_plain))
        earlier = self.memory.challenger(self.incumbent) if most else None
        if earlier is None or (self._guard is not None and self._guard.check(earlier) is not None):
            return [], most
        return [earlier], most - 1

    def _picked(self, proposals: Sequence[Proposal], known: Sequence[Interface], most: int) -> list[Interface]:
        match self.settings.pick:
            case "first":
                return first_distinct(proposals, known, most)
            case "likeliest":
                return first_distinct(likeliest_first(proposals), known, most)
            case "varied":
                return most_varied(proposals, known, most, tried=[*self.memory.interfaces.values()])

    def _asked(self, new: int) -> int:
        if self.agent is None:
            return 1
        return self.settings.proposals if new else 0

    def close_round(
        self,
        round_number: int,
        groups: Sequence[PlayedGroup],
        alignments: Mapping[int, float],
        internalised: Mapping[int, float] | None = None,
    ) -> dict[str, float]:
        """Adds a round to the window, and ends the window where it is time. Returns what was counted.

        `internalised` has arm → what the round's training on its views did, where that was measured. At a window's end
        a curator that learns takes its step, and its engines get the new weights.
        """
        self.window.observe(groups, alignments, internalised)
        begun, proposals = self.begins_at(round_number), self.window.proposals
        counted: dict[str, float] = {
            "curator/proposals": len(proposals) * begun,
            "curator/rejections": sum(each.rejection is not None for each in proposals) * begun,
            "curator/arms": (len(self.window.arms) - 1) * begun,
        }
        incumbent = self.incumbent
        verdict = self.judge() if self.begins_at(round_number + 1) else None
        self.last_proposals = proposals_as_rows(self.window, verdict)
        self.last_arms = []
        if verdict is not None:
            known = {
                arm.number: self.memory.value(arm.interface)
                for arm in self.window.arms
                if self.memory.posterior.knows(interface_id(arm.interface))
            }
            self.last_arms = arms_as_rows(self.window, known, before=incumbent, after=self.incumbent)
        if verdict is None or self.agent is None:
            return counted
        rewards = [reward for reward in verdict.rewards if reward is not None]
        counted["curator/promoted"] = int(verdict.promoted)
        if self._by_posterior:
            gain, error = self.memory.value(self.incumbent)
            counted |= {"curator/gain": gain, "curator/gain_error": error, "curator/better": verdict.probability}
        if rewards:
            counted |= {"curator/reward": sum(rewards) / len(rewards), "curator/reward_best": max(rewards)}
        return counted | self.agent.learn_documents(verdict.rows)

    def judge(self) -> Verdict:
        """Ends the window. The incumbent is replaced where an arm is enough above it (`curator.choose`)."""
        window, settings = self.window, self.settings
        if self._by_posterior or isinstance(self.reward, GainReward):
            self.memory.observe(window)
        if self.agent is None:
            return Verdict((None,) * len(window.proposals), [], promoted=False)
        before, probability = self.incumbent, 0.0
        if self._by_posterior:
            played = {group.arm for group in window.groups}
            values: Mapping[int, float] = {
                arm: value for arm, value in self.memory.values(window).items() if arm in played
            }
            self.incumbent, probability = self.memory.choose(window, before)
        else:
            measured = window.internalised if self.needs_internalised else window.alignments
            values = self.reward(window.groups, {arm: list(found.values()) for arm, found in measured.items()})
            self.incumbent = window.arms[
                choose_incumbent(values, window.arm_of(before).number, settings.margin)
            ].interface
        rewards = self._rewards(values)
        return Verdict(rewards, self._rows(rewards), self.incumbent != before, probability)

    def _rewards(self, values: Mapping[int, float]) -> tuple[float | None, ...]:
        """Those of the window's proposals: a rejected one gets the least, one that shows what no arm did gets none."""
        arms = [self.window.arm_that_shows(each.interface) for each in self.window.proposals]
        found = [None if arm is None else values.get(arm.number) for arm in arms]
        worst = self.reward.worst
        if self.settings.advantage == "centred":
            accepted = [
                value
                for each, value in zip(self.window.proposals, found, strict=True)
                if each.rejection is None and value is not None
            ]
            worst = min(accepted, default=0.0) - self.settings.rejection_step
        return tuple(
            worst if each.rejection is not None else value
            for each, value in zip(self.window.proposals, found, strict=True)
        )

    def _rows(self, rewards: Sequence[float | None]) -> list[Row]:
        """What the curator learns from; nothing where all proposals are worth the same."""
        found = [
            (each, reward)
            for each, reward in zip(self.window.proposals, rewards, strict=True)
            if each.sample is not None and reward is not None and any(each.sample.mask_T)
        ]
        advantages = self._update([reward for _, reward in found], [each.rejection is not None for each, _ in found])
        if advantages is None:
            return []
        return [
            row_of(each.sample, float(advantage))
            for (each, _), advantage in zip(found, advantages, strict=True)
            if each.sample is not None
        ]

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "curator": self.curator.get_state(),
            "incumbent": interface_to_dict(self.incumbent),
            "memory": self.memory.get_state(),
            **self.window.to_dict(),
        }

    def set_state(self, state: Mapping[str, JSON]) -> None:
        self.curator.set_state(state["curator"])
        self.incumbent = interface_from_dict(state["incumbent"])
        self.memory.set_state(state.get("memory", {}))
        self.window = CuratorWindow.from_dict(state)


def start_curator_loop(
    config: Settings, agent: Agent | None, *, solver: ModelFolder, guarded: Callable[[], Iterable[Task]]
) -> CuratorLoop:
    """The curation of a run. `agent` is the curator where it is a language model, else None.

    The guard of such a curator holds its proposals against the `guarded` tasks, counted in tokens of the `solver`.
    """
    settings = config.section(sections.Curator)
    if agent is None:
        return CuratorLoop(settings, make_plain_curator(settings))
    guard = RunGuard(guarded(), solver, most_tokens=settings.guideline_tokens)
    kind_class: Any = CURATORS.find(settings.kind)
    writer: LLMCurator = kind_class(
        agent.connect,
        ChatFormat.load(agent.model.path, agent.model.dialect),
        writing_of(config, agent, settings),
        check=guard.check,
        kind=settings.kind,
        policy=agent.policy,
        extends=settings.extends,
    )
    return CuratorLoop(settings, writer, agent=agent, guard=guard)
