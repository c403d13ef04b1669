"""`TaskWriterLoop`: has a task writer write tasks, sees to it that they are played, and rewards them.

A window is `writer.update_every` rounds. At its start the writer writes specifications; those that have a task are
added to the pool, whose tasks take the places of a share of the training tasks. At its end each written task has a
value, and a writer that learns takes one step on its specifications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

from envs.profile import FailureProfile
from envs.sources import get_source
from envs.specifications import Apart, CategoryFilter, Rejected, Specification, Writable, writable
from envs.task import JSON, Task
from policies.prompting import ChatFormat
from policies.sample import Sample
from policies.trajectory import derive_seed
from policies.writer import Draft, Known, TaskWriter
from policies.writer.choice import WRITERS, make_writer, writes
from seal_ray.algorithm.agent import Agent, writing_of
from seal_ray.algorithm.objects import make_writer_reward, make_writer_update
from seal_ray.algorithm.sampling.dispatch import while_healing
from seal_ray.algorithm.sampling.groups import PlayedGroup
from seal_ray.algorithm.tasks.held_out import HeldOut, Play
from seal_ray.algorithm.tasks.pool import Provenance, TaskPool, written_slots
from seal_ray.algorithm.tasks.recorded import recorded_windows
from seal_ray.algorithm.tasks.rewards import Probe, TaskOutcome, WindowOutcomes
from seal_ray.config import sections
from seal_ray.config.agents import Settings
from seal_ray.grpo.arms import PLAIN
from seal_ray.grpo.rows import Row, row_of
from seal_ray.grpo.schedule import faded

_SEEDS = 10**9
"""Seeds of written tasks are below this."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft of the window, and the id of its task where it has one."""

    draft: Draft
    task: str | None

    @property
    def rejected(self) -> bool:
        return self.task is None


class TaskWriterLoop:
    """Owns the writer, the pool and the window of written tasks. `last_drafts` and `last_pool` are for people to read.

    A writer that is a language model is an `agent` of the run. Tasks share nothing with those that are `tested`.
    `play` plays groups with the present weights; the reward `probe` has it play held-out tasks.
    """

    def __init__(
        self,
        config: Settings,
        agent: Agent | None = None,
        *,
        tested: Iterable[Task] = (),
        play: Play | None = None,
        make: Callable[[TaskWriterLoop], TaskWriter] | None = None,
    ) -> None:
        self.settings = settings = config.section(sections.Writer)
        self._environment = config.section(sections.Environment)
        self._rounds = config.section(sections.Training).rounds
        self._seed = int(config.seed)
        source = writable(self._environment.source)
        chosen = self._environment.categories
        self.source: Writable = source if chosen is None else CategoryFilter(source, chosen)
        self.agent = agent
        self.pool = TaskPool(
            settings.capacity,
            filtering=settings.filtering,
            discount=settings.discount,
            max_age=settings.max_age,
        )
        self.reward = make_writer_reward(settings)
        self.update = make_writer_update(settings)
        self.drafts: tuple[Drafted, ...] = ()
        self.last_drafts: list[dict[str, JSON]] = []
        self.last_pool: list[dict[str, JSON]] = []
        self._apart: Apart = self.source.apart(tested)
        self._round = 0
        self._drawn: set[str] = set()
        self._made: dict[str, Task] = {}
        self._earlier: dict[str, tuple[float, float]] = {}
        self._window: dict[str, list[float]] = {}
        self._probed: list[float | None] | None = None
        self._held_out: HeldOut | None = None
        if self.reward.needs_probe:
            assert play is not None, "the reward probe needs somebody to play"
            self._held_out = HeldOut(config, self.source, apart=self._apart, play=play)
        self.writer = (make or _plain_writer(config))(self)

    def begins_at(self, round_number: int) -> bool:
        """Whether a window begins with this round, counted from 0."""
        return round_number % self.settings.update_every == 0

    def check(self, specification: Specification) -> str | None:
        """Why there is no task of a specification that could be added, in one sentence; None where there is one."""
        depth = self.settings.depth
        if depth is not None and specification.depth > depth:
            return f"specification: {specification.depth} turns are more than the {depth} that this run has."
        categories = self._environment.categories
        if categories is not None and specification.category not in categories:
            return f"specification: the category {specification.category} is none of those that this run plays."
        held_out = () if self._held_out is None else self._held_out.specifications
        if self.pool.known(specification) is not None or specification in held_out:
            return "specification: it stands in the pool already."
        seed = derive_seed(self._seed, "written task", self._round) % _SEEDS
        made = self.source.compose(specification, seed, part=self._environment.split, apart=self._apart)
        if isinstance(made, Rejected):
            return made.reason
        self._made[specification.key] = made
        return None

    def write(self, profile: FailureProfile, *, round_number: int, heal: Callable[[], None]) -> None:
        """Begins a window with what the writer writes, where one begins. `heal` is called while it writes."""
        if not self.begins_at(round_number):
            return
        self._round, self._made = round_number, {}
        if self._held_out is not None and self._probed is None:
            self._probed = self._held_out.success(round_number)
        self._earlier = {each.task: (each.successes, each.counted) for each in self.pool.entries}
        self._window = {}
        seed = derive_seed(self._seed, "writer", round_number)
        work = self.writer.write(profile, known=self._known(), n=self.settings.specifications, seed=seed)
        drafts: Sequence[Draft] = while_healing(lambda: asyncio.run(work), heal)
        digest = blake2b(profile.render().encode(), digest_size=4).hexdigest()
        provenance = Provenance(self.settings.kind, digest, round_number)
        self.drafts = tuple(self._add(draft, provenance) for draft in drafts)
        self.last_drafts = self._draft_rows(None)

    def take_places(self, numbers: range, drawn: Sequence[str]) -> list[str]:
        """The tasks of these numbers: written ones in the places that the present share gives them, else the `drawn`.

        No written task comes twice in a round; where there are too few, the drawn ones stay.
        """
        settings = self.settings
        share = faded(
            settings.share, settings.share_end, begin=settings.share_from, round_number=self._round, rounds=self._rounds
        )
        places = written_slots(share, numbers)
        found = [
            task
            for task in self.pool.draw(len(self.pool), seed=f"{self._seed} {numbers.start}")
            if task not in self._drawn
        ]
        taken = dict(zip(places, found, strict=False))
        self._drawn.update(taken.values())
        return [taken.get(number, task) for number, task in zip(numbers, drawn, strict=True)]

    def tasks(self) -> Iterator[Task]:
        """The tasks of the pool."""
        source = get_source(self._environment.source)
        made = {task.id: task for task in self._made.values()}
        for entry in self.pool.entries:
            yield made[entry.task] if entry.task in made else source.task(entry.task)

    def close_round(self, round_number: int, groups: Sequence[PlayedGroup]) -> dict[str, float]:
        """Adds a round to the window, and ends the window where it is time. Returns what was counted."""
        self._drawn.clear()
        written = 0
        for group in groups:
            if group.plan.task not in self.pool:
                continue
            written += 1
            by_arm = group.by_arm()
            plain = by_arm.get(PLAIN, [])
            won = float(sum(each.reward for each in plain))
            if by_arm:
                self.pool.observe(group.plan.task, successes=won, rollouts=len(plain), round_number=round_number + 1)
            counts = self._window.setdefault(group.plan.task, [0.0, 0.0])
            counts[0] += won
            counts[1] += len(plain)
        self._round = round_number + 1
        begun = self.begins_at(round_number)
        counted: dict[str, float] = {
            "writer/specifications": len(self.drafts) * begun,
            "writer/rejections": sum(each.rejected for each in self.drafts) * begun,
            "writer/groups": written,
            "writer/share": written / max(1, len(groups)),
        }
        self.last_pool = []
        if self.begins_at(round_number + 1):
            counted |= self._end_window(round_number + 1)
        return counted | self.pool.measures()

    def _end_window(self, round_number: int) -> dict[str, float]:
        rewards = self.rewards(self._outcomes(round_number))
        self.last_drafts = self._draft_rows(rewards)
        self.pool.age()
        self.last_pool = self.pool.rows()
        found = [reward for reward in rewards if reward is not None]
        counted: dict[str, float] = {}
        if found:
            counted |= {"writer/reward": sum(found) / len(found), "writer/reward_best": max(found)}
        if self.agent is not None:
            counted |= self.agent.learn_documents(self.rows(rewards))
        return counted

    def rewards(self, window: WindowOutcomes) -> list[float | None]:
        """Those of the window's drafts: a rejected one gets the least, one that was not played gets none."""
        values = iter(self.reward(window))
        return [self.reward.worst if each.rejected else next(values) for each in self.drafts]

    def rows(self, rewards: Sequence[float | None]) -> list[Row]:
        """What the writer learns from; nothing where its drafts teach nothing."""
        found = [
            (each.draft.sample, reward, each.rejected)
            for each, reward in zip(self.drafts, rewards, strict=True)
            if each.draft.sample is not None and reward is not None and any(each.draft.sample.mask_T)
        ]
        if not found:
            return []
        weights = self.update([reward for _, reward, _ in found], [rejected for _, _, rejected in found])
        if weights is None:
            return []
        return [row_of(sample, float(weight)) for (sample, _, _), weight in zip(found, weights, strict=True)]

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "writer": self.writer.get_state(),
            "pool": self.pool.get_state(),
            "round": self._round,
            "drafts": [
                {
                    "specification": None if each.draft.specification is None else each.draft.specification.dump(),
                    "rejection": each.draft.rejection,
                    "sample": None if each.draft.sample is None else asdict(each.draft.sample),
                    "task": each.task,
                }
                for each in self.drafts
            ],
            "earlier": {task: list(counts) for task, counts in self._earlier.items()},
            "window": self._window,
            "probed": self._probed,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. An empty state is that of a run in which nobody wrote."""
        if not state:
            return
        self.writer.set_state(state["writer"])
        self.pool.set_state(state["pool"], self.source)
        self._round = state["round"]
        self.drafts = tuple(
            Drafted(
                Draft(
                    None if each["specification"] is None else self.source.read(each["specification"]),
                    each["rejection"],
                    None if each["sample"] is None else Sample(**{k: _hashable(v) for k, v in each["sample"].items()}),
                ),
                each["task"],
            )
            for each in state["drafts"]
        )
        self._earlier = {task: (counts[0], counts[1]) for task, counts in state["earlier"].items()}
        self._window = {task: list(counts) for task, counts in state["window"].items()}
        self._probed = state["probed"]
        self._made, self._drawn = {}, set()
        self.last_drafts = self._draft_rows(None)

    def _add(self, draft: Draft, provenance: Provenance) -> Drafted:
        if draft.rejection is not None or draft.specification is None:
            return Drafted(draft, None)
        task = self._made[draft.specification.key]
        rejection = self.pool.add(task, draft.specification, provenance)
        return Drafted(draft, task.id) if rejection is None else Drafted(replace(draft, rejection=rejection), None)

    def _known(self) -> list[Known]:
        return [
            Known(each.specification, each.successes / each.counted, each.counted)
            for each in self.pool.entries
            if each.counted > 0
        ]

    def _outcomes(self, round_number: int) -> WindowOutcomes:
        def now(task: str, specification: Specification) -> TaskOutcome:
            return TaskOutcome(specification, *self._window.get(task, (0.0, 0.0)))

        mine = {each.task for each in self.drafts}
        entries = {each.task: each.specification for each in self.pool.entries}
        old = {task: specification for task, specification in entries.items() if task not in mine}
        probes: list[Probe] = []
        if self._held_out is not None:
            specifications = self._held_out.specifications
            before, self._probed = self._probed or [None] * len(specifications), self._held_out.success(round_number)
            probes = [
                Probe(specification, begin, end)
                for specification, begin, end in zip(specifications, before, self._probed, strict=True)
                if begin is not None and end is not None
            ]
        return WindowOutcomes(
            written=[
                now(each.task, each.draft.specification)
                for each in self.drafts
                if each.task is not None and each.draft.specification is not None
            ],
            earlier=[TaskOutcome(entries[task], *counts) for task, counts in self._earlier.items() if task in entries],
            now=[now(task, specification) for task, specification in old.items()],
            probes=probes,
        )

    def _draft_rows(self, rewards: Sequence[float | None] | None) -> list[dict[str, JSON]]:
        return [
            {
                "specification": None if each.draft.specification is None else each.draft.specification.dump(),
                "rejection": each.draft.rejection,
                "task": each.task,
                "reward": None if rewards is None else rewards[place],
            }
            for place, each in enumerate(self.drafts)
        ]


class NoAuthorship:
    """Nobody writes: all tasks are the source's own."""

    last_drafts: Sequence[Mapping[str, JSON]] = ()
    last_pool: Sequence[Mapping[str, JSON]] = ()

    def write(self, profile: FailureProfile, *, round_number: int, heal: Callable[[], None]) -> None:
        """Nothing is written."""

    def take_places(self, numbers: range, drawn: Sequence[str]) -> list[str]:
        del numbers
        return list(drawn)

    def tasks(self) -> Iterator[Task]:
        return iter(())

    def close_round(self, round_number: int, groups: Sequence[PlayedGroup]) -> dict[str, float]:
        del round_number, groups
        return {}

    def get_state(self) -> dict[str, JSON]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to set."""


def _plain_writer(config: Settings) -> Callable[[TaskWriterLoop], TaskWriter]:
    kind, windows = config.section(sections.Writer).kind, recorded_windows(config)
    return lambda mine: make_writer(kind, mine.source, mine.check, windows=windows, seed=int(config.seed))


def start_task_writer_loop(
    config: Settings, agent: Agent | None, *, tested: Iterable[Task], play: Play
) -> TaskWriterLoop | NoAuthorship:
    """The writer's side of a run. `agent` is the writer where it is a language model, else None."""
    settings = config.section(sections.Writer)
    if not writes(settings.kind):
        return NoAuthorship()
    if agent is None:
        return TaskWriterLoop(config, tested=tested, play=play)
    kind_class: Any = WRITERS.find(settings.kind)

    def make(authorship: TaskWriterLoop) -> TaskWriter:
        writer: TaskWriter = kind_class(
            agent.connect,
            ChatFormat.load(agent.model.path, agent.model.dialect),
            writing_of(config, agent, settings),
            source=authorship.source,
            check=authorship.check,
            kind=settings.kind,
            policy=agent.policy,
        )
        return writer

    return TaskWriterLoop(config, agent, tested=tested, play=play, make=make)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
