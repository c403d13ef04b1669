"""`ProposalLoop`: windows in which a proposer writes, its proposals get rewards, and its model learns from them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import TypeAdapter

from envs.task import JSON
from policies.proposer import Proposal, Proposer
from policies.trajectory import Sample
from seal_ray.agent import Agent
from seal_ray.grpo.advantages import Floats
from seal_ray.grpo.rows import Row, row_of
from seal_ray.rollout.dispatch import while_healing
from seal_ray.rollout.types import Group

T = TypeVar("T")
_SAMPLE: TypeAdapter[Sample | None] = TypeAdapter(Sample | None)
Update = Callable[[Sequence[float], Sequence[bool]], Floats | None]
"""Weight of each proposal in the loss, from the rewards and rejections; None if nothing can be learnt."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """A proposer's part of a round, as rows for files.

    `proposals` are the window's, with rewards at its end. `known` are the arms of the window or the tasks of the pool,
    at a window's end only.
    """

    proposals: Sequence[Mapping[str, JSON]] = ()
    known: Sequence[Mapping[str, JSON]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


class ProposalLoop(ABC, Generic[T]):
    """The proposer of a run. Subclasses define the use and the values of proposals.

    A window has `update_every` rounds. At its start the proposer writes; at its end each proposal gets a reward, and a
    trainable `agent` takes one gradient step on the proposals.
    """

    name: ClassVar[str]
    """Prefix of the metrics."""
    update: Update

    def __init__(self, proposer: Proposer, agent: Agent | None, update_every: int) -> None:
        self.proposer = proposer
        self.agent = agent
        self.update_every = update_every
        self.proposals: tuple[Proposal[T], ...] = ()

    @property
    def learns_earlier(self) -> bool:
        """Whether the last training rows have texts that earlier weights sampled."""
        return False

    def begins_at(self, round_number: int) -> bool:
        """Whether a window begins with this round, counted from 0."""
        return round_number % self.update_every == 0

    def write(
        self, work: Coroutine[Any, Any, tuple[Proposal[T], ...]], heal: Callable[[], None]
    ) -> tuple[Proposal[T], ...]:
        """Runs the proposer, and calls `heal` in the meantime."""
        return while_healing(lambda: asyncio.run(work), heal)

    def close_round(self, round_number: int, groups: Sequence[Group]) -> WindowReport:
        """Adds a round to the window, and ends the window if it is the last one."""
        begun = self.begins_at(round_number)
        metrics: dict[str, float] = {
            f"{self.name}/proposals": len(self.proposals) * begun,
            f"{self.name}/rejections": sum(not each.accepted for each in self.proposals) * begun,
        }
        metrics |= self.observe(round_number, groups)
        if not self.begins_at(round_number + 1):
            return WindowReport(self.rows(None), metrics=metrics)
        values, known, more = self.end_window(round_number)
        rewards = self.rewards(values)
        proposals = self.rows(rewards)
        paid = [reward for reward in rewards if reward is not None]
        if self.agent is not None and paid:
            metrics |= {f"{self.name}/reward": sum(paid) / len(paid), f"{self.name}/reward_best": max(paid)}
        if self.agent is not None:
            rows = self.training_rows(rewards)
            metrics |= self.agent.learn_proposals(rows, earlier=self.learns_earlier)
        return WindowReport(proposals, known, metrics | more)

    @abstractmethod
    def observe(self, round_number: int, groups: Sequence[Group]) -> dict[str, float]:
        """Adds a round to the window. Returns metrics."""

    @abstractmethod
    def end_window(self, round_number: int) -> tuple[list[float | None], list[dict[str, JSON]], dict[str, float]]:
        """The value of each proposal (None if it has none), the rows `WindowReport.known`, and metrics."""

    @abstractmethod
    def rejected_reward(self, values: Sequence[float]) -> float:
        """The reward of rejected proposals, by the values of accepted ones."""

    @abstractmethod
    def value_row(self, proposal: Proposal[T]) -> dict[str, JSON]:
        """The part of a proposal's row that depends on its value."""

    @abstractmethod
    def dump(self, value: T) -> JSON:
        """A proposal's value for a checkpoint."""

    @abstractmethod
    def load(self, value: Any) -> T:
        """The inverse of `dump`."""

    def rewards(self, values: Sequence[float | None]) -> list[float | None]:
        """The reward of each proposal; None for one whose value is unknown."""
        proposals = list(zip(self.proposals, values, strict=True))
        worst = self.rejected_reward([value for each, value in proposals if each.accepted and value is not None])
        return [value if each.accepted else worst for each, value in proposals]

    def training_rows(self, rewards: Sequence[float | None]) -> list[Row]:
        """The rows of the proposer's update; empty if nothing can be learnt."""
        samples: list[Sample] = []
        values: list[float] = []
        rejected: list[bool] = []
        for proposal, reward in zip(self.proposals, rewards, strict=True):
            if proposal.sample is not None and reward is not None and any(proposal.sample.mask_T):
                samples.append(proposal.sample)
                values.append(reward)
                rejected.append(not proposal.accepted)
        weights = type(self).update(values, rejected) if samples else None
        if weights is None:
            return []
        return [row_of(sample, float(weight)) for sample, weight in zip(samples, weights, strict=True)]

    def rows(self, rewards: Sequence[float | None] | None) -> list[dict[str, JSON]]:
        """The window's proposals as rows for a file."""
        rewards = [None] * len(self.proposals) if rewards is None else rewards
        return [
            {**self.value_row(each), "rejection": each.rejection, "reward": reward}
            for each, reward in zip(self.proposals, rewards, strict=True)
        ]

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {
            "proposer": self.proposer.get_state(),
            "proposals": [self.dump_proposal(each) for each in self.proposals],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.proposer.set_state(state["proposer"])
        self.proposals = tuple(map(self.load_proposal, state["proposals"]))

    def dump_proposal(self, proposal: Proposal[T]) -> dict[str, JSON]:
        """A proposal for a checkpoint."""
        return {
            "value": None if proposal.value is None else self.dump(proposal.value),
            "rejection": proposal.rejection,
            "sample": None if proposal.sample is None else asdict(proposal.sample),
        }

    def load_proposal(self, row: Mapping[str, Any]) -> Proposal[T]:
        """The inverse of `dump_proposal`."""
        value = None if row["value"] is None else self.load(row["value"])
        return Proposal(value, row["rejection"], _SAMPLE.validate_python(row["sample"]))
