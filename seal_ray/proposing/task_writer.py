"""`TaskWriterLoop`: the task writer of a run. Its specifications become tasks of a pool, which replace drawn tasks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from envs.profile import FailureProfile
from envs.roles import TASK_WRITER
from envs.sources import get_source
from envs.specifications import Apart, CategoryFilter, Rejected, Specification, Writable, writable
from envs.task import JSON, Task
from policies.proposer import Proposal
from policies.task_writer import Known, TaskWriter
from policies.task_writer.base import TASK_WRITERS
from policies.trajectory import derive_seed
from seal_ray.agent import Agent
from seal_ray.config.resolve import RunSpec
from seal_ray.config.schema import LLMTaskWriterSection, WritingTaskWriterSection
from seal_ray.grpo.advantages import regression_weights
from seal_ray.proposing import task_rewards
from seal_ray.proposing.loop import ProposalLoop
from seal_ray.proposing.recorded import recorded_windows
from seal_ray.proposing.task_pool import IN_POOL, Provenance, WrittenTaskPool, written_slots
from seal_ray.proposing.task_rewards import HeldOut, HeldOutOutcome, PlainRollouts, TaskOutcome, WindowOutcomes
from seal_ray.rollout.planner import Play
from seal_ray.rollout.types import PLAIN, Group

_SEEDS = 10**9
"""Upper bound of the seeds of written tasks."""


class TaskWriterLoop(ProposalLoop[Specification]):
    """The task writer, the pool of its tasks and the window.

    Its tasks share nothing with the `tested` ones. `play` plays held-out tasks and probes of new tasks with the present
    weights. `make` makes the writer for this loop.
    """

    name = TASK_WRITER
    update = staticmethod(regression_weights)

    def __init__(
        self,
        spec: RunSpec,
        section: WritingTaskWriterSection,
        make: Callable[["TaskWriterLoop"], TaskWriter],
        agent: Agent | None = None,
        *,
        tested: Iterable[Task] = (),
        play: Play | None = None,
    ) -> None:
        self.section = section
        self._environment = spec.environment
        self._seed = spec.seed
        source = writable(spec.environment.source)
        categories = spec.environment.categories
        self.source: Writable = source if categories is None else CategoryFilter(source, categories)
        self.pool = WrittenTaskPool()
        reward = section.reward if isinstance(section, LLMTaskWriterSection) else "alpha"
        self.reward: task_rewards.TaskReward = task_rewards.TASK_REWARDS.make(reward)
        self._apart: Apart = self.source.apart(tested)
        self._round = 0
        self._drawn: set[str] = set()
        self._composed: dict[str, Task] = {}
        self._earlier: dict[str, tuple[float, float]] = {}
        self._window: dict[str, list[float]] = {}
        self._held_out_before: list[float | None] | None = None
        self._held_out: HeldOut | None = None
        self._plain = None if play is None else PlainRollouts(spec, play)
        if self.reward.needs_held_out:
            assert self._plain is not None, "held-out tasks need a function that plays them"
            self._held_out = HeldOut(spec, self.source, section.depth, apart=self._apart, plain=self._plain)
        self.task_writer = make(self)
        super().__init__(self.task_writer, agent, section.update_every)

    def check(self, specification: Specification) -> str | None:
        """Composes the task of a specification. Returns the reason if that is impossible or it cannot be added."""
        depth = self.section.depth
        if depth is not None and specification.depth > depth:
            return f"specification: {specification.depth} turns are more than the {depth} that this run has."
        categories = self._environment.categories
        if categories is not None and specification.category not in categories:
            return f"specification: the category {specification.category} is none of those that this run plays."
        held_out = () if self._held_out is None else self._held_out.specifications
        if self.pool.known(specification) is not None or specification in held_out:
            return IN_POOL
        seed = derive_seed(self._seed, "written task", self._round) % _SEEDS
        task = self.source.compose(specification, seed, part=self._environment.split, apart=self._apart)
        if isinstance(task, Rejected):
            return task.reason
        self._composed[specification.key] = task
        return None

    def propose(self, profile: FailureProfile, *, round_number: int, heal: Callable[[], None]) -> None:
        """Begins a window with the task writer's specifications. `heal` is called while it writes."""
        self._round, self._composed = round_number, {}
        if self._held_out is not None and self._held_out_before is None:
            self._held_out_before = self._held_out.success(round_number)
        self._earlier = {entry.task: (entry.successes, entry.counted) for entry in self.pool.entries}
        self._window = {}
        seed = derive_seed(self._seed, "writer", round_number)
        work = self.task_writer.propose(profile, known=self._known(), n=self.section.specifications, seed=seed)
        digest = blake2b(profile.render().encode(), digest_size=4).hexdigest()
        provenance = Provenance(self.section.kind, digest, round_number + 1)
        self.proposals = tuple(self._added(proposal, provenance) for proposal in self.write(work, heal))
        if self.section.probe_rollouts and self._plain is not None:
            self._probe(self._plain)

    def _probe(self, plain: PlainRollouts) -> None:
        """Plays each new task, so that each has a value before it is drawn."""
        tasks = [(task.id, str(task.category)) for task in self._composed.values() if task.id in self.pool]
        for (task, _), rewards in zip(
            tasks, plain.rewards(tasks, self.section.probe_rollouts, "task probe", self._round), strict=True
        ):
            self._window[task] = [sum(rewards), float(len(rewards))]
            self.pool.observe(task, successes=sum(rewards), rollouts=len(rewards), round_number=self._round + 1)

    def replace_drawn(self, numbers: range, drawn: Sequence[str]) -> list[str]:
        """The `drawn` tasks of these numbers, with written ones at the `written_slots` of the share.

        A written task is played once a round; if there are too few, drawn ones stay.
        """
        pool = self.pool.draw(len(self.pool), seed=f"{self._seed} {numbers.start}")
        tasks = [task for task in pool if task not in self._drawn]
        taken = dict(zip(written_slots(self.section.share, numbers), tasks, strict=False))
        self._drawn.update(taken.values())
        return [taken.get(number, task) for number, task in zip(numbers, drawn, strict=True)]

    def tasks(self) -> Iterator[Task]:
        """The tasks of the pool."""
        source = get_source(self._environment.source)
        composed = {task.id: task for task in self._composed.values()}
        for entry in self.pool.entries:
            yield composed[entry.task] if entry.task in composed else source.task(entry.task)

    def observe(self, round_number: int, groups: Sequence[Group]) -> dict[str, float]:
        self._drawn.clear()
        self._round = round_number + 1
        written = [group for group in groups if group.plan.task in self.pool]
        for group in written:
            task, by_arm = group.plan.task, group.by_arm()
            plain = by_arm.get(PLAIN, [])
            successes = float(sum(each.reward for each in plain))
            if by_arm:
                self.pool.observe(task, successes=successes, rollouts=len(plain), round_number=self._round)
            counts = self._window.setdefault(task, [0.0, 0.0])
            counts[0] += successes
            counts[1] += len(plain)
        metrics: dict[str, float] = {
            "task_writer/groups": len(written),
            "task_writer/share": len(written) / max(1, len(groups)),
        }
        return metrics if self.begins_at(round_number + 1) else metrics | self._more()

    def end_window(self, round_number: int) -> tuple[list[float | None], list[dict[str, JSON]], dict[str, float]]:
        values = iter(self.reward(self._outcomes(round_number + 1)))
        by_proposal = [next(values) if each.accepted else None for each in self.proposals]
        self.pool.age()
        return by_proposal, self.pool.rows(), self._more()

    def _more(self) -> dict[str, float]:
        """Metrics of the pool, and the tokens that were sampled apart from the round."""
        tokens = 0
        if self._plain is not None:
            tokens, self._plain.tokens = self._plain.tokens, 0
        return {"task_writer/probe_tokens": tokens, **self.pool.metrics()}

    def rejected_reward(self, values: Sequence[float]) -> float:
        del values
        return self.reward.worst

    def value_row(self, proposal: Proposal[Specification]) -> dict[str, JSON]:
        value = proposal.value
        entry = self.pool.known(value) if value is not None and proposal.accepted else None
        return {
            "specification": None if value is None else value.dump(),
            "task": None if entry is None else entry.task,
        }

    def dump(self, value: Specification) -> JSON:
        return value.dump()

    def load(self, value: Any) -> Specification:
        return self.source.read(value)

    def get_state(self) -> dict[str, JSON]:
        return {
            **super().get_state(),
            "pool": self.pool.get_state(),
            "round": self._round,
            "earlier": {task: list(counts) for task, counts in self._earlier.items()},
            "window": self._window,
            "held_out": self._held_out_before,
            "tokens": 0 if self._plain is None else self._plain.tokens,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.pool.set_state(state["pool"], self.source)
        self._round = state["round"]
        self._earlier = {task: (counts[0], counts[1]) for task, counts in state["earlier"].items()}
        self._window = {task: list(counts) for task, counts in state["window"].items()}
        self._held_out_before = state["held_out"]
        if self._plain is not None:
            self._plain.tokens = state["tokens"]
        self._composed, self._drawn = {}, set()

    def _added(self, proposal: Proposal[Specification], provenance: Provenance) -> Proposal[Specification]:
        """The proposal after its task was added to the pool, or rejected."""
        if proposal.value is None or not proposal.accepted:
            return proposal
        rejection = self.pool.add(self._composed[proposal.value.key], proposal.value, provenance)
        return replace(proposal, rejection=rejection)

    def _known(self) -> list[Known]:
        return [
            Known(entry.specification, entry.successes / entry.counted, entry.counted)
            for entry in self.pool.entries
            if entry.counted > 0
        ]

    def _outcomes(self, round_number: int) -> WindowOutcomes:
        def now(task: str, specification: Specification) -> TaskOutcome:
            return TaskOutcome(specification, *self._window.get(task, (0.0, 0.0)))

        entries = {entry.task: entry.specification for entry in self.pool.entries}
        accepted = [each.value for each in self.proposals if each.value is not None and each.accepted]
        written = [(entry.task, value) for value in accepted if (entry := self.pool.known(value)) is not None]
        mine = {task for task, _ in written}
        return WindowOutcomes(
            written=[now(task, value) for task, value in written],
            earlier=[TaskOutcome(entries[task], *counts) for task, counts in self._earlier.items() if task in entries],
            now=[now(task, specification) for task, specification in entries.items() if task not in mine],
            held_out=[] if self._held_out is None else self._held_out_outcomes(self._held_out, round_number),
        )

    def _held_out_outcomes(self, held_out: HeldOut, round_number: int) -> list[HeldOutOutcome]:
        before = self._held_out_before or [None] * len(held_out.specifications)
        self._held_out_before = held_out.success(round_number)
        return [
            HeldOutOutcome(specification, start, end)
            for specification, start, end in zip(held_out.specifications, before, self._held_out_before, strict=True)
            if start is not None and end is not None
        ]


def start_task_writer_loop(
    spec: RunSpec, agent: Agent | None, *, tested: Iterable[Task], play: Play
) -> TaskWriterLoop | None:
    """The task writer of a run, if any. `agent` is its language model, if any."""
    section = spec.task_writer
    if not isinstance(section, WritingTaskWriterSection):
        return None
    kind_class: Any = TASK_WRITERS.find(section.kind)
    windows = recorded_windows(spec)

    def make(loop: TaskWriterLoop) -> TaskWriter:
        task_writer: TaskWriter
        if agent is None:
            recorded = {"windows": windows, "seed": spec.seed} if windows else {}
            task_writer = kind_class(loop.source, loop.check, **recorded)
        else:
            task_writer = agent.make_proposer(kind_class, source=loop.source, check=loop.check)
        return task_writer

    return TaskWriterLoop(spec, section, make, agent, tested=tested, play=play)
