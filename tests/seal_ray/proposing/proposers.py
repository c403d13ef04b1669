"""What tests of proposal loops share: a learner that stores what it gets, a curator that is a script, played groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.task import Task
from policies.curator.llm import LLMCurator
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.proposal_sampling import Writing
from policies.proposer import Proposal
from policies.trajectory import Sample
from seal_ray.config.sections import make_section
from seal_ray.grpo.rewards import success
from seal_ray.grpo.rows import Row
from seal_ray.proposing.curator import CuratorLoop
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, GroupPlan
from tests.seal_ray.rollout.rounds import Solver

PLAIN_INTERFACE = PLAIN_ARM.interface
A, B, C = (Interface(guidelines=(text,)) for text in ("First.", "Second.", "Third."))
SAMPLE = Sample(3, token_ids_T=(1, 2), mask_T=(False, True), sampled_logprobs_T=(0.0, -0.5), versions_T=(-1, 0))


@dataclass
class Learner:
    """An agent that learns: it stores the rows that it gets."""

    name: str = "curator"
    batches: list[list[Row]] = field(default_factory=list)

    def learn_proposals(self, rows: list[Row], *, earlier: bool = False) -> dict[str, float]:
        del earlier
        if not rows:
            return {}
        self.batches.append(rows)
        return {f"{self.name}/loss": 0.5}

    @property
    def advantages(self) -> list[float]:
        return [row.advantage for row in self.batches[-1]]


class ScriptedCurator(LLMCurator):
    """Writes these proposals in each window. It stores how many it should write, and what it may read."""

    def __init__(self, *written: Proposal[Interface]) -> None:
        model = open_model("tiny")

        def refuse() -> Any:
            raise AssertionError("nothing is sampled here")

        form = ChatFormat.load(model.path, model.dialect)
        super().__init__(refuse, form, Writing(context=512), check=lambda _: None)
        self.written = written
        self.counts: list[int] = []

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        del profile, incumbent, round_number, seed
        self.counts.append(n)
        return self.written[:n]


@dataclass
class Guard:
    """Rejects an interface while the window has upcoming tasks, or always."""

    leaks: Interface
    always: bool = True
    upcoming: Sequence[Task] = ()

    def start_window(self, tasks: Iterable[Task]) -> None:
        self.upcoming = list(tasks)

    def check(self, interface: Interface) -> str | None:
        return "It leaks." if interface == self.leaks and (self.always or self.upcoming) else None


def written(*interfaces: Interface) -> tuple[Proposal[Interface], ...]:
    return tuple(Proposal(each, sample=SAMPLE) for each in interfaces)


def curator_loop(
    *proposals: Proposal[Interface], agent: Any = None, guard: Any = None, probed: Any = None, **settings: Any
) -> CuratorLoop:
    """The loop of a curator that is a language model, in windows of a round, with these proposals in each."""
    values = {"kind": "llm", "trainable": True, "proposals": 6, "played": 3, "update_every": 1, **settings}
    section: Any = make_section("curator", values)
    learner: Any = agent or Learner()
    return CuratorLoop(section, ScriptedCurator(*proposals), agent=learner, guard=guard, probed=probed)


def propose(loop: CuratorLoop, round_number: int = 0, **settings: Any) -> bool:
    settings = {"rollouts": 400, **settings}
    return loop.propose(FailureProfile(), round_number=round_number, seed=0, heal=lambda: None, **settings)


def played_group(task: str, arm: Arm, rewards: Sequence[float], *, category: str = "base", number: int = 0) -> Group:
    """A group of one arm with these rewards."""
    seeds = tuple(range(len(rewards)))
    plan = GroupPlan(number, task, category, arm, Protocol.SEAL, seeds, 1.0)
    (group,) = Solver(lambda _: 0.0).play([plan])
    members = (
        replace(member, outcome=replace(member.trajectory, reward=reward))
        for member, reward in zip(group.members, rewards, strict=True)
    )
    return Group(plan, tuple(members)).scored(success)


def groups_at(rates: Mapping[Interface, float], *, tasks: int = 20, category: str = "base") -> list[Group]:
    """Groups of 20 rollouts in which each arm has its success rate on the same tasks."""
    return [
        played_group(
            f"{category} {task}",
            Arm(interface),
            [1.0] * round(20 * rate) + [0.0] * round(20 * (1 - rate)),
            category=category,
        )
        for task in range(tasks)
        for interface, rate in rates.items()
    ]
