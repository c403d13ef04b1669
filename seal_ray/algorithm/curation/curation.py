"""`Curation`: the curator's side of a run. It asks for proposals, compares their arms, and has the curator learn.

A window is `curator.update_every` rounds. At its start the curator proposes; its proposals, the incumbent and the plain
interface are the window's arms. At its end each arm has a value, the best may become the incumbent, and a curator that
learns takes one GRPO step on its proposals, whose rewards are compared with each other: all answer the same profile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.interface.guard import LeakGuard
from envs.profile import FailureProfile
from envs.task import JSON, Task
from policies.curator import Curator, Proposal
from policies.curator.choice import CURATORS
from policies.curator.llm import LLMCurator, Writing
from policies.engine.choice import default_kind
from policies.model_folder import ModelFolder
from policies.prompting import ChatFormat
from policies.sample import Sample
from policies.trajectory import interface_id
from seal_ray.algorithm.agent import Agent
from seal_ray.algorithm.objects import make_curator_reward, make_plain_curator
from seal_ray.algorithm.sampling.dispatch import while_healing
from seal_ray.algorithm.sampling.groups import PLAIN_ARM, Arm, PlayedGroup, number_arms
from seal_ray.config import sections
from seal_ray.config.agents import Settings
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.arms import ArmGroup, choose_incumbent
from seal_ray.grpo.rows import Minibatch, Row, row_of

LEARNT = ("loss", "kl", "ratio_first_error", "gradient_norm", "learning_rate")
"""What is logged of the curator's update."""


@dataclass
class Window:
    """The arms of a window, the plain one first, and the groups that were played under them."""

    arms: tuple[Arm, ...] = (PLAIN_ARM,)
    proposals: tuple[Proposal, ...] = ()
    groups: list[ArmGroup] = field(default_factory=list)
    alignments: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Number of an arm → cosine of its policy gradient with the plain arm's, for each round in which it played."""

    def arm_of(self, interface: Interface) -> Arm:
        return next(arm for arm in self.arms if arm.interface == interface)

    def observe(self, groups: Sequence[PlayedGroup], alignments: Mapping[int, float]) -> None:
        """Adds a round of the window. A pair counts for both of its arms."""
        for group in groups:
            for arm, played in group.by_arm().items():
                rate = sum(each.reward for each in played) / len(played)
                self.groups.append(ArmGroup(arm, played[0].category, rate))
        for arm, value in alignments.items():
            self.alignments[arm].append(value)

    def to_dict(self) -> dict[str, JSON]:
        return {
            "interfaces": [interface_to_dict(arm.interface) for arm in self.arms],
            "proposals": [
                {
                    "interface": interface_to_dict(each.interface),
                    "rejection": each.rejection,
                    "sample": None if each.sample is None else asdict(each.sample),
                }
                for each in self.proposals
            ],
            "groups": [[group.arm, group.category, group.success] for group in self.groups],
            "alignments": [[arm, list(values)] for arm, values in self.alignments.items()],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, JSON]) -> Window:
        return cls(
            number_arms(map(interface_from_dict, value["interfaces"])),
            tuple(
                Proposal(interface_from_dict(each["interface"]), each["rejection"], _sample_from(each["sample"]))
                for each in value["proposals"]
            ),
            [ArmGroup(*group) for group in value["groups"]],
            defaultdict(list, {arm: list(values) for arm, values in value["alignments"]}),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a window: each proposal's reward, and the rows that the curator learns from."""

    rewards: tuple[float | None, ...]
    """One a proposal; None where its arm was not played."""
    rows: list[Row]
    promoted: bool


def proposals_as_rows(window: Window, verdict: Verdict | None) -> list[dict[str, JSON]]:
    """The window's proposals for people to read: the interface, the reason of a rejection, and the reward."""
    rewards = verdict.rewards if verdict else (None,) * len(window.proposals)
    return [
        {
            "id": interface_id(each.interface),
            **interface_to_dict(each.interface),
            "rejection": each.rejection,
            "reward": reward,
        }
        for each, reward in zip(window.proposals, rewards, strict=True)
    ]


def _sample_from(value: Mapping[str, JSON] | None) -> Sample | None:
    if value is None:
        return None
    tuples = {key: tuple(each) for key, each in value.items() if key != "seed"}
    # Checkpoints of earlier versions have the log-probs under a shorter name.
    logprobs = tuples.pop("logprobs_T", ())
    return Sample(**{"sampled_logprobs_T": logprobs, **tuples}, seed=value["seed"])


class RunGuard:
    """Checks proposals against the tasks of the whole run, and against those of the window that they are for.

    Where training tasks have no end, those that are over are not played again. `most_tokens` is what a proposal may add
    to the prompt of `solver`.
    """

    def __init__(self, tasks: Iterable[Task], solver: ModelFolder, *, most_tokens: int) -> None:
        self._form = ChatFormat.load(solver.path, solver.dialect)
        self._most_tokens = most_tokens
        self._always = self._guard(tasks)
        self._window = self._guard(())

    def start_window(self, tasks: Iterable[Task]) -> None:
        """Forgets the tasks of the last window."""
        self._window = self._guard(tasks)

    def check(self, interface: Interface) -> str | None:
        """Why the interface may not be shown, in one sentence; None where it may."""
        return self._always.check(interface) or self._window.check(interface)

    def _guard(self, tasks: Iterable[Task]) -> LeakGuard:
        return LeakGuard(tasks, max_tokens=self._most_tokens, count_tokens=lambda text: len(self._form.tokens(text)))


class Curation:
    """Owns the curator, the incumbent and the window. `incumbent` is the interface with the best value so far.

    A curator that is a language model is an `agent` of the run, and has a `guard` against leaks.
    `last_proposals` are those of the window that the last round belongs to, for people to read.
    """

    def __init__(
        self, settings: sections.Curator, curator: Curator, *, agent: Agent | None = None, guard: RunGuard | None = None
    ) -> None:
        self.settings = settings
        self.curator = curator
        self.agent = agent
        self.reward = make_curator_reward(settings)
        self.incumbent = Interface.plain()
        self.window = Window()
        self.last_proposals: list[dict[str, JSON]] = []
        self._guard = guard

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that this window's groups play, the plain one first."""
        return self.window.arms

    @property
    def compares_gradients(self) -> bool:
        """Whether the curator's reward is about an arm's gradient and that of the plain arm."""
        return self.agent is not None and self.reward.needs_gradients

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
        heal: Callable[[], None],
    ) -> bool:
        """Begins a window with the curator's proposals. Returns whether the incumbent is another than before.

        A curator without a model proposes what is shown from now on. The proposals of a model are tried out first; the
        guard holds them against the `upcoming` tasks of the window. `heal` is called while it writes.
        """
        if self._guard is not None:
            self._guard.start_window(upcoming)
        before = self.incumbent
        work = self.curator.propose(
            profile,
            incumbent=before,
            n=1 if self.agent is None else self.settings.proposals,
            round_number=round_number,
            seed=seed,
        )
        proposals: tuple[Proposal, ...] = while_healing(lambda: asyncio.run(work), heal)
        accepted = [each.interface for each in proposals if each.rejection is None]
        if self.agent is None:
            self.incumbent, accepted = (accepted or [before])[0], []
        self.window = Window(number_arms([self.incumbent, *accepted]), proposals)
        return self.incumbent != before

    def close_round(
        self, round_number: int, groups: Sequence[PlayedGroup], alignments: Mapping[int, float]
    ) -> dict[str, float]:
        """Adds a round to the window, and ends the window where it is time. Returns what was counted.

        At a window's end a curator that learns takes its step, and its engines get the new weights.
        """
        self.window.observe(groups, alignments)
        begun, proposals = self.begins_at(round_number), self.window.proposals
        counted: dict[str, float] = {
            "curator/proposals": len(proposals) * begun,
            "curator/rejections": sum(each.rejection is not None for each in proposals) * begun,
        }
        verdict = self.judge() if self.begins_at(round_number + 1) else None
        self.last_proposals = proposals_as_rows(self.window, verdict)
        if verdict is None or self.agent is None:
            return counted
        rewards = [reward for reward in verdict.rewards if reward is not None]
        counted["curator/promoted"] = int(verdict.promoted)
        if rewards:
            counted |= {"curator/reward": sum(rewards) / len(rewards), "curator/reward_best": max(rewards)}
        if verdict.rows and self.agent.learns:
            learnt = self.agent.learn([Minibatch.of([verdict.rows])])
            counted |= {f"curator/{key}": learnt[key] for key in LEARNT}
            self.agent.deliver()
        return counted

    def judge(self) -> Verdict:
        """Ends the window. The incumbent is replaced where a proposal's value is enough above it."""
        if self.agent is None:
            return Verdict((None,) * len(self.window.proposals), [], promoted=False)
        window, settings = self.window, self.settings
        values = self.reward(window.groups, window.alignments)
        rewards = tuple(
            self.reward.worst if each.rejection is not None else values.get(window.arm_of(each.interface).number)
            for each in window.proposals
        )
        kept = choose_incumbent(values, window.arm_of(self.incumbent).number, settings.margin)
        promoted = window.arms[kept].interface != self.incumbent
        self.incumbent = window.arms[kept].interface
        return Verdict(rewards, _rows(window.proposals, rewards), promoted)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "curator": self.curator.get_state(),
            "incumbent": interface_to_dict(self.incumbent),
            **self.window.to_dict(),
        }

    def set_state(self, state: Mapping[str, JSON]) -> None:
        self.curator.set_state(state["curator"])
        self.incumbent = interface_from_dict(state["incumbent"])
        self.window = Window.from_dict(state)


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
    return [row_of(sample, float(advantage)) for (sample, _), advantage in zip(found, advantages, strict=True)]


def start_curation(
    config: Settings, agent: Agent | None, *, solver: ModelFolder, guarded: Callable[[], Iterable[Task]]
) -> Curation:
    """The curation of a run. `agent` is the curator where it is a language model, else None.

    The guard of such a curator holds its proposals against the `guarded` tasks, counted in tokens of the `solver`.
    """
    settings = config.section(sections.Curator)
    if agent is None:
        return Curation(settings, make_plain_curator(settings))
    guard = RunGuard(guarded(), solver, most_tokens=settings.guideline_tokens)
    kind = settings.engine if agent.owns else config.section(sections.Engine).kind
    host = agent.settings if agent.owns else config.section(sections.Solver)
    kind_class: Any = CURATORS.find(settings.kind)
    writer: LLMCurator = kind_class(
        agent.connect,
        ChatFormat.load(agent.model.path, agent.model.dialect),
        Writing(
            context=min(settings.context, host.context),
            max_tokens=settings.response,
            temperature=settings.temperature,
            constrained=(default_kind() if kind == "auto" else kind) == "vllm",
            retries=settings.retries,
        ),
        check=guard.check,
        kind=settings.kind,
        policy=agent.policy,
    )
    return Curation(settings, writer, agent=agent, guard=guard)
