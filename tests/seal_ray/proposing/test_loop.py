"""The loop that all proposers share, with a third one: it proposes numbers, and is paid for those near a target."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from envs.errors import UserError
from envs.task import JSON
from policies.proposer import Proposal, Proposer
from policies.trajectory import Sample
from seal_ray.grpo.advantages import centred_advantages
from seal_ray.proposing.loop import ProposalLoop
from seal_ray.rollout.types import PLAIN_ARM, Group
from tests.seal_ray.proposing.proposers import Learner, played_group

WORST = -100.0


class CountingProposer(Proposer):
    """Proposes the next whole numbers. It rejects odd ones, and those divisible by 7 cannot be read."""

    kind = "counting"
    role = "number proposer"

    def __init__(self) -> None:
        self.next = 1

    async def propose(self, n: int) -> tuple[Proposal[int], ...]:
        numbers = range(self.next, self.next + n)
        self.next += n
        return tuple(
            Proposal(
                None if number % 7 == 0 else number,
                "it is odd." if number % 2 else None,
                Sample(number, (1, number), (False, True), (0.0, -1.0), (-1, 0)),
            )
            for number in numbers
        )

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "next": self.next}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.next = state["next"]


class NumberLoop(ProposalLoop[int]):
    """A proposal is worth less the farther it is from the number of groups that succeeded; 0 is worth nothing known."""

    name = "numbers"
    update = staticmethod(centred_advantages)

    def __init__(self, agent: Any = None, *, proposals: int = 6, update_every: int = 2) -> None:
        self.numbers = CountingProposer()
        super().__init__(self.numbers, agent, update_every)
        self.count = proposals
        self.succeeded = 0

    def propose(self, heal: Callable[[], None] = lambda: None) -> None:
        self.proposals = self.write(self.numbers.propose(self.count), heal)

    def observe(self, round_number: int, groups: Sequence[Group]) -> dict[str, float]:
        del round_number
        self.succeeded += sum(all(each.reward for each in group.played) for group in groups)
        return {"numbers/succeeded": self.succeeded}

    def end_window(self, round_number: int) -> tuple[list[float | None], list[dict[str, JSON]], dict[str, float]]:
        values = [
            None if each.value in (None, 4) else -float(abs(each.value - self.succeeded)) for each in self.proposals
        ]
        known: list[dict[str, JSON]] = [{"target": self.succeeded, "round": round_number}]
        self.succeeded = 0
        return values, known, {"numbers/windows": 1.0}

    def rejected_reward(self, values: Sequence[float]) -> float:
        return min(values, default=WORST) - 1

    def value_row(self, proposal: Proposal[int]) -> dict[str, JSON]:
        return {"number": proposal.value}

    def dump(self, value: int) -> JSON:
        return value

    def load(self, value: Any) -> int:
        return int(value)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "succeeded": self.succeeded}

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self.succeeded = state["succeeded"]


def won(count: int) -> list[Group]:
    """So many groups that succeeded, and one that did not."""
    return [played_group(str(number), PLAIN_ARM, [1.0, 1.0]) for number in range(count)] + [
        played_group("lost", PLAIN_ARM, [1.0, 0.0])
    ]


def test_a_third_proposer_proposes_is_scored_and_learns() -> None:
    learner = Learner("numbers")
    loop = NumberLoop(learner)
    assert [loop.begins_at(number) for number in range(4)] == [True, False, True, False]
    loop.propose()
    first = loop.close_round(0, won(1))
    assert first.metrics == {"numbers/proposals": 6, "numbers/rejections": 3, "numbers/succeeded": 1}
    assert [row["number"] for row in first.proposals] == [1, 2, 3, 4, 5, 6]
    assert [row["reward"] for row in first.proposals] == [None] * 6
    assert (first.known, learner.batches) == ((), [])
    last = loop.close_round(1, won(1))
    # 2 is worth 0, 6 is worth -4, the value of 4 is not known, and odd numbers are rejected.
    assert [row["reward"] for row in last.proposals] == [-5.0, 0.0, -5.0, None, -5.0, -4.0]
    assert [bool(row["rejection"]) for row in last.proposals] == [True, False] * 3
    assert last.known == [{"target": 2, "round": 1}]
    assert last.metrics == {
        "numbers/proposals": 0,
        "numbers/rejections": 0,
        "numbers/succeeded": 2,
        "numbers/reward": pytest.approx(-19 / 5),
        "numbers/reward_best": 0.0,
        "numbers/loss": 0.5,
        "numbers/windows": 1.0,
    }
    # Rejected ones count as the worst accepted value less the step of `centred_advantages`.
    values = [-4.1, 0.0, -4.1, -4.1, -4.0]
    assert [row.token_ids_T.tolist()[1] for row in learner.batches[0]] == [1, 2, 3, 5, 6], "4 is not learnt from"
    assert learner.advantages == pytest.approx([value - sum(values) / 5 for value in values])


def test_it_resumes_from_its_state_in_the_middle_of_a_window() -> None:
    learners = [Learner("numbers"), Learner("numbers")]
    loop, resumed = NumberLoop(learners[0]), NumberLoop(learners[1])
    loop.propose()
    loop.close_round(0, won(3))
    resumed.set_state(json.loads(json.dumps(loop.get_state())))
    reports = []
    for each in (loop, resumed):
        reports.append([each.close_round(1, won(2))])
        each.propose()
        reports[-1].append(each.close_round(2, won(0)))
    assert reports[0] == reports[1]
    assert [row["number"] for row in reports[1][1].proposals] == [None, 8, 9, 10, 11, 12]
    assert learners[0].advantages == learners[1].advantages
    assert loop.get_state() == resumed.get_state()


def test_the_state_of_another_proposer_is_refused() -> None:
    loop = NumberLoop()
    state = loop.get_state()
    state["proposer"] = {"kind": "llm", "next": 1}
    with pytest.raises(
        UserError, match="number proposer: a state of kind 'llm' was given to a number proposer of kind"
    ):
        loop.set_state(state)


def test_without_an_agent_nothing_is_learnt_or_paid() -> None:
    loop = NumberLoop(update_every=1)
    loop.propose()
    report = loop.close_round(0, won(2))
    assert not {"numbers/reward", "numbers/loss"} & report.metrics.keys()
    assert [row["reward"] for row in report.proposals][1] == 0.0


def test_proposals_that_teach_nothing_give_no_rows() -> None:
    learner = Learner("numbers")
    loop = NumberLoop(learner, proposals=1, update_every=1)
    loop.propose()
    report = loop.close_round(0, won(2))
    assert report.metrics["numbers/rejections"] == 1
    assert (learner.batches, "numbers/loss" in report.metrics) == ([], False)


def test_engines_are_healed_while_the_proposer_writes() -> None:
    import asyncio

    healed: list[None] = []

    async def slow() -> tuple[Proposal[int], ...]:
        await asyncio.sleep(1.0)
        return ()

    assert NumberLoop().write(slow(), lambda: healed.append(None)) == ()
    assert healed
