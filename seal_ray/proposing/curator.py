"""`CuratorLoop`: the curator of a run. Its proposals become arms, and the best arm becomes the incumbent."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envs.interface import Interface
from envs.interface.guard import LeakGuard
from envs.interface.json_form import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.roles import CURATOR
from envs.task import JSON, Task
from policies.curator import Curator
from policies.curator.base import CURATORS
from policies.curator.llm import LLMCurator
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.proposer import Proposal
from policies.trajectory import interface_id
from seal_ray.agent import Agent
from seal_ray.config.resolve import RunSpec
from seal_ray.config.schema import CuratorSection, LLMCuratorSection
from seal_ray.grpo.advantages import REJECTION_STEP, centred_advantages
from seal_ray.grpo.rows import Row
from seal_ray.proposing.arms import ArmStatistics, CuratorWindow
from seal_ray.proposing.curator_rewards import CURATOR_REWARDS, CuratorReward
from seal_ray.proposing.loop import ProposalLoop
from seal_ray.proposing.part_values import shown_text, words_of
from seal_ray.proposing.probed import ProbedProposals
from seal_ray.proposing.turn_probes import TurnProber
from seal_ray.rollout.planner import Play
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, arms_of


def likeliest_first(proposals: Sequence[Proposal[Interface]]) -> list[Proposal[Interface]]:
    """The proposals by decreasing mean log-prob (nats) of their tokens; proposals without a sample first."""

    def mean(proposal: Proposal[Interface]) -> float:
        sample = proposal.sample
        return 0.0 if sample is None else sum(sample.sampled_logprobs_T) / max(1, sample.sampled_tokens)

    return sorted(proposals, key=mean, reverse=True)


def first_distinct(proposals: Sequence[Proposal[Interface]], known: Sequence[Interface], most: int) -> list[Interface]:
    """The first accepted interfaces, at most `most`, that differ from each other and from `known`."""
    seen = {shown_text(interface) for interface in known}
    picked: list[Interface] = []
    for each in proposals:
        if each.value is None or each.rejection is not None or len(picked) >= most:
            continue
        if shown_text(each.value) not in seen:
            seen.add(shown_text(each.value))
            picked.append(each.value)
    return picked


def most_varied(
    proposals: Sequence[Proposal[Interface]], known: Sequence[Interface], most: int, *, tried: Sequence[Interface] = ()
) -> list[Interface]:
    """At most `most` accepted interfaces that differ most from each other and from those `tried`, none as in `known`.

    The less likely half is left out first, if enough are left. The next one is farthest from its nearest neighbour by
    the Jaccard index of the words, and the likelier one of equally far ones.
    """
    distinct = first_distinct(likeliest_first(proposals), known, len(proposals))
    left = distinct[: max(most, (len(distinct) + 1) // 2)]
    met = [words_of(interface) for interface in (*known, *tried)]
    picked: list[Interface] = []
    while left and len(picked) < most:
        likeness = [
            max((len(own & words) / max(1, len(own | words)) for words in met), default=0.0)
            for own in map(words_of, left)
        ]
        picked.append(left.pop(likeness.index(min(likeness))))
        met.append(words_of(picked[-1]))
    return picked


GUIDELINE_TOKENS = 256
"""Largest number of tokens that a proposal may add to the solver's prompt."""


class RunGuard:
    """Checks proposals against the tasks of the whole run and of their window, and their length for the `solver`."""

    def __init__(self, tasks: Iterable[Task], solver: ModelFolder) -> None:
        self._form = ChatFormat.load(solver.path, solver.dialect)
        self._always = self._guard(tasks)
        self._window = self._guard(())

    def start_window(self, tasks: Iterable[Task]) -> None:
        """Replaces the tasks of the last window."""
        self._window = self._guard(tasks)

    def check(self, interface: Interface) -> str | None:
        """The reason why the interface is rejected, in one sentence; None if it is not."""
        return self._always.check(interface) or self._window.check(interface)

    def _guard(self, tasks: Iterable[Task]) -> LeakGuard:
        return LeakGuard(tasks, max_tokens=GUIDELINE_TOKENS, count_tokens=lambda text: len(self._form.tokens(text)))


_log = logging.getLogger("seal_ray")


class CuratorLoop(ProposalLoop[Interface]):
    """The curator, the incumbent arm and the window.

    The proposal of a curator without a model becomes the incumbent at once. The proposals of a language model are
    checked by the `guard` against leaks, and played as arms; `statistics` compares all arms. `probed` scores them
    by turn probes, if the run has any: the best become arms, and all learn from their credits.
    """

    name = CURATOR
    update = staticmethod(centred_advantages)

    def __init__(
        self,
        section: CuratorSection,
        curator: Curator,
        *,
        agent: Agent | None = None,
        guard: RunGuard | None = None,
        probed: ProbedProposals | None = None,
    ) -> None:
        super().__init__(curator, agent, section.update_every)
        self.curator = curator
        self.incumbent = PLAIN_ARM
        self.window = CuratorWindow()
        self._llm = section if isinstance(section, LLMCuratorSection) else None
        reward = CuratorReward() if self._llm is None else CURATOR_REWARDS.make(self._llm.reward)
        self.statistics = ArmStatistics(reward, by_category=self.tasks_may_choose)
        self._guard = guard
        self.probed = probed
        if isinstance(curator, LLMCurator):
            curator.reads_interfaces = probed is None

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that this window's groups play, the plain one first."""
        return self.window.arms

    @property
    def tasks_may_choose(self) -> bool:
        """Whether `curator.allocation` lets half of the tasks choose their arms."""
        return self._llm is not None and self._llm.allocation == "by_category"

    @property
    def tasks_choose(self) -> bool:
        """Whether half of a round's tasks choose their arms by their category."""
        return self.tasks_may_choose and len(self.window.arms) > 1

    def allocate(self, slots: int, seed: int) -> list[int] | None:
        """Number of a round's groups of each arm that is not plain; None for equal numbers."""
        if self._llm is None or self.tasks_may_choose:
            return None
        return self.statistics.allocate(self.window, slots, seed)

    def arms_for(self, categories: Sequence[str], seed: int) -> list[Arm]:
        """The arm for each task of these categories."""
        return self.statistics.arms_for(self.window, categories, seed)

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
        """Begins a window with the curator's proposals. Returns whether the incumbent has changed.

        Args:
            profile: The failure profile.
            round_number: The window's first round.
            seed: Seed of the sampling.
            upcoming: Tasks of the window, against which the guard checks proposals and the incumbent.
            rollouts: Rollouts of the window under arms that are not plain, which limit the number of new arms.
            heal: Called while the curator writes.
        """
        shown = self.incumbent
        if self._guard is not None:
            self._guard.start_window(upcoming)
            if self._guard.check(shown.interface) is not None:
                self.incumbent = PLAIN_ARM
        before = self.incumbent.interface
        earlier, room = self._room(rollouts) if self._llm is not None else ([], 1)
        written = 1 if self._llm is None else self._llm.proposals if room or self.probed is not None else 0
        read = profile if self.probed is None else self.probed.unrepaired(profile)
        work = self.curator.propose(read, incumbent=before, n=written, round_number=round_number, seed=seed)
        self.proposals = self.write(work, heal)
        chosen: Sequence[Interface] = ()
        if self._llm is not None:
            self._probe(seed)
            if self._helping:
                self.incumbent, earlier = Arm(self._helping[0]), []
                chosen = self._helping[1 : self._llm.played]
            else:
                chosen = self._pick(self._llm.pick, [Interface.plain(), before, *earlier], room)
        else:
            accepted = [each.value for each in self.proposals if each.value is not None and each.accepted]
            self.incumbent = Arm((accepted or [before])[0])
        self.window = CuratorWindow(arms_of([self.incumbent.interface, *earlier, *chosen]))
        return self.incumbent != shown

    def _room(self, rollouts: int | None) -> tuple[list[Interface], int]:
        """The arm of an earlier window that plays again, if any, and the number of new arms."""
        assert self._llm is not None
        assert isinstance(self.curator, LLMCurator)
        self.curator.tried = self.statistics.tried()
        room = self._llm.played
        if rollouts is not None:
            room = self.statistics.room(rollouts, room, others=int(not self.incumbent.plain))
            if not room:
                _log.warning("no new arm is played: %d rollouts under arms cannot distinguish one", rollouts)
        earlier = self.statistics.challenger(self.incumbent) if room else None
        if earlier is None or (self._guard is not None and self._guard.check(earlier) is not None):
            return [], room
        return [earlier], room - 1

    @property
    def _helping(self) -> list[Interface]:
        """The texts that help by the window's probes, the best first: they are the incumbent and the new arms."""
        kept = self.probed.archive if self.probed is not None and self.probed.has_probes else []
        return [each.value for each, _ in kept if each.value is not None]

    def _probe(self, seed: int) -> None:
        """Scores the proposals by turn probes."""
        if self.probed is None:
            return
        assert self._guard is not None
        self.probed.score(self.proposals, seed, self._guard.check)

    def _pick(self, pick: str, known: Sequence[Interface], most: int) -> list[Interface]:
        if self.probed is not None:
            # Without probes, garbled texts must not be played: the next prompt would quote them.
            has_probes = self.probed.has_probes
            ranked = self.probed.ranked(self.proposals) if has_probes else likeliest_first(self.proposals)
            return first_distinct(ranked, known, most)
        if pick == "varied":
            return most_varied(self.proposals, known, most, tried=[*self.statistics.interfaces.values()])
        proposals = likeliest_first(self.proposals) if pick == "likeliest" else self.proposals
        return first_distinct(proposals, known, most)

    def observe(self, round_number: int, groups: Sequence[Group]) -> dict[str, float]:
        self.window.observe(groups)
        metrics: dict[str, float] = {"curator/arms": (len(self.window.arms) - 1) * self.begins_at(round_number)}
        if self.begins_at(round_number):
            metrics |= self._text_metrics() | ({} if self.probed is None else self.probed.metrics())
        if self.probed is not None:
            self.probed.observe(groups)
        return metrics

    def _text_metrics(self) -> dict[str, float]:
        samples = [each.sample for each in self.proposals if each.sample is not None]
        tokens = sum(sample.sampled_tokens for sample in samples)
        return {"curator/entropy": -sum(sum(each.sampled_logprobs_T) for each in samples) / tokens} if tokens else {}

    def end_window(self, round_number: int) -> tuple[list[float | None], list[dict[str, JSON]], dict[str, float]]:
        del round_number
        window, before = self.window, self.incumbent
        self.statistics.observe(window)
        metrics: dict[str, float] = {}
        values: Mapping[str, float] = {}
        if self._llm is not None:
            values = self.statistics.values(window)
            chosen, probability = self.statistics.choose(window, before)
            self.incumbent = before if self._helping else chosen
            gain, error = self.statistics.value(self.incumbent.id)
            metrics = {
                "curator/promoted": int(self.incumbent != before),
                "curator/gain": gain,
                "curator/gain_error": error,
                "curator/better": probability,
            }
        rows = [self._arm_row(arm, before) for arm in window.arms]
        if self.probed is not None:
            return self.probed.rewards(self.proposals), rows, metrics
        arms = [self._arm_that_shows(each.value) for each in self.proposals]
        return [None if arm is None else values.get(arm.id) for arm in arms], rows, metrics

    def rejected_reward(self, values: Sequence[float]) -> float:
        return min(values, default=0.0) - REJECTION_STEP

    def _arm_that_shows(self, interface: Interface | None) -> Arm | None:
        """The arm of the window that shows the same as this interface, if any."""
        if interface is None:
            return None
        alike = [arm for arm in self.window.arms if shown_text(arm.interface) == shown_text(interface)]
        return next((arm for arm in alike if arm.interface == interface), next(iter(alike), None))

    def _arm_row(self, arm: Arm, before: Arm) -> dict[str, JSON]:
        """An arm of a window that has ended as a row for a file. `before` was the incumbent."""
        played = [group for group in self.window.groups if group.arm == arm.id]
        rollouts = sum(group.rollouts for group in played)
        gain = error = 0.0 if arm.plain else None
        if self.statistics.posterior.knows(arm.id):
            gain, error = self.statistics.value(arm.id)
        return {
            **_interface_row(arm.interface),
            "groups": len(played),
            "rollouts": rollouts,
            "success": sum(each.success * each.rollouts for each in played) / rollouts if rollouts else None,
            "gain": gain,
            "error": error,
            "incumbent": arm == before,
            "promoted": arm == self.incumbent != before,
        }

    @property
    def learns_earlier(self) -> bool:
        return self.probed is not None and self.probed.learns_earlier

    def training_rows(self, rewards: Sequence[float | None]) -> list[Row]:
        return super().training_rows(rewards) if self.probed is None else self.probed.training_rows(self.proposals)

    def rows(self, rewards: Sequence[float | None] | None) -> list[dict[str, JSON]]:
        rows = super().rows(rewards)
        if self.probed is None:
            return rows
        return [{**row, **credit} for row, credit in zip(rows, self.probed.rows(), strict=True)]

    def value_row(self, proposal: Proposal[Interface]) -> dict[str, JSON]:
        return {} if proposal.value is None else _interface_row(proposal.value)

    def dump(self, value: Interface) -> JSON:
        return interface_to_dict(value)

    def load(self, value: Any) -> Interface:
        return interface_from_dict(value)

    def get_state(self) -> dict[str, JSON]:
        return {
            **super().get_state(),
            "incumbent": interface_to_dict(self.incumbent.interface),
            "statistics": self.statistics.get_state(),
            "window": self.window.to_dict(),
            "probed": None if self.probed is None else self.probed.get_state(),
            "archive": [] if self.probed is None else [self.dump_proposal(text) for text, _ in self.probed.archive],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.incumbent = Arm(interface_from_dict(state["incumbent"]))
        self.statistics.set_state(state["statistics"])
        self.window = CuratorWindow.from_dict(state["window"])
        if self.probed is not None and state.get("probed") is not None:
            self.probed.set_state(state["probed"], [self.load_proposal(text) for text in state["archive"]])


def _interface_row(interface: Interface) -> dict[str, JSON]:
    return {"id": interface_id(interface), **interface_to_dict(interface)}


def start_curator_loop(
    spec: RunSpec, agent: Agent | None, *, solver: ModelFolder, guarded: Callable[[], Iterable[Task]], play: Play
) -> CuratorLoop:
    """The curator of a run. `agent` is its language model, if any, whose proposals are checked for leaks.

    The guard checks them against the `guarded` tasks, and counts tokens of the `solver`. Turn probes `play` groups.
    """
    kind = spec.curator.kind
    if agent is None:
        return CuratorLoop(spec.curator, CURATORS.make(kind, dict(spec.curator)))
    guard = RunGuard(guarded(), solver)
    curator: Curator = agent.make_proposer(CURATORS.find(kind), check=guard.check)
    probing = isinstance(spec.curator, LLMCuratorSection) and spec.curator.probe_points > 0
    probed = ProbedProposals(TurnProber(spec, play)) if probing else None
    return CuratorLoop(spec.curator, curator, agent=agent, guard=guard, probed=probed)
