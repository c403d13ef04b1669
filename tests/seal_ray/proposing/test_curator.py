"""The curator's loop: which proposals become arms, who is promoted, what the curator learns from, and its state."""

import json
from dataclasses import replace

import pytest

from envs.interface import Interface
from policies import tiny
from policies.models import open_model
from policies.proposer import Proposal
from policies.trajectory import Sample
from seal_ray.grpo.advantages import REJECTION_STEP
from seal_ray.proposing.curator import CuratorLoop, RunGuard, likeliest_first, most_varied
from seal_ray.rollout.types import PLAIN, PLAIN_ARM, Arm, Group
from tests.seal_ray.proposing.proposers import (
    PLAIN_INTERFACE,
    SAMPLE,
    A,
    B,
    C,
    Guard,
    Learner,
    ScriptedCurator,
    curator_loop,
    groups_at,
    propose,
    written,
)


def shown(loop: CuratorLoop) -> list[Interface]:
    """The interfaces of the window's arms that are not plain."""
    assert loop.arms[0] == PLAIN_ARM
    return [arm.interface for arm in loop.arms[1:]]


def end_window(loop: CuratorLoop, rates: dict[Interface, float], *, tasks: int = 20, round_number: int = 0) -> None:
    loop.close_round(round_number, groups_at(rates, tasks=tasks))


def test_the_better_arm_is_promoted_and_the_curator_learns_what_its_proposals_are_worth() -> None:
    learner = Learner()
    rejected = Proposal(C, rejection="it contains an answer.", sample=SAMPLE)
    loop = curator_loop(*written(A, B), rejected, agent=learner)
    assert not propose(loop)
    assert shown(loop) == [A, B]
    report = loop.close_round(0, groups_at({PLAIN_INTERFACE: 0.25, A: 0.45, B: 0.25}))
    assert loop.incumbent == Arm(A)
    first, second, worst = [row["reward"] for row in report.proposals]
    assert isinstance(first, float)
    assert isinstance(second, float)
    assert 0.1 < first < 0.2
    assert abs(second) < 0.05
    assert worst == pytest.approx(second - REJECTION_STEP)
    mean = (first + second + worst) / 3
    assert learner.advantages == pytest.approx([first - mean, second - mean, worst - mean])
    counts = {name: report.metrics[f"curator/{name}"] for name in ("proposals", "rejections", "arms", "promoted")}
    assert counts == {"proposals": 3, "rejections": 1, "arms": 2, "promoted": 1}
    assert report.metrics["curator/reward"] == pytest.approx(mean)
    assert report.metrics["curator/reward_best"] == pytest.approx(first)
    assert report.metrics["curator/gain"] == pytest.approx(first)
    assert 0.8 < report.metrics["curator/better"] < 1.0
    assert report.metrics["curator/loss"] == 0.5
    assert [row["guidelines"] for row in report.proposals] == [list(each.guidelines) for each in (A, B, C)]
    rows = {row["id"]: row for row in report.known}
    assert rows[PLAIN]["success"] == 0.25
    assert [rows[Arm(each).id]["promoted"] for each in (A, B)] == [True, False]
    assert [rows[each]["incumbent"] for each in (PLAIN, Arm(A).id)] == [True, False]


def test_within_a_window_nothing_is_judged() -> None:
    learner = Learner()
    loop = curator_loop(*written(A, B), agent=learner, update_every=2)
    propose(loop)
    report = loop.close_round(0, groups_at({PLAIN_INTERFACE: 0.0, A: 1.0}))
    assert not {"curator/promoted", "curator/reward"} & report.metrics.keys()
    assert (report.known, learner.batches, loop.incumbent) == ((), [], PLAIN_ARM)
    assert [row["reward"] for row in report.proposals] == [None, None]
    report = loop.close_round(1, [])
    assert report.metrics["curator/proposals"] == 0, "they were counted in the window's first round"
    assert report.metrics["curator/promoted"] == 1


def test_what_was_played_counts_in_the_next_window_too() -> None:
    loop = curator_loop(*written(A))
    promoted = []
    for number in range(3):
        propose(loop, number)
        report = loop.close_round(number, groups_at({PLAIN_INTERFACE: 0.25, A: 0.4}, tasks=2))
        promoted.append(report.metrics["curator/promoted"])
    assert promoted in ([0, 1, 0], [0, 0, 1])
    # It stays where it does no harm, and is given up where it does.
    end_window(loop, {PLAIN_INTERFACE: 0.25, A: 0.25}, tasks=2, round_number=3)
    assert loop.incumbent == Arm(A)
    for number in range(3):
        end_window(loop, {PLAIN_INTERFACE: 0.4, A: 0.1}, tasks=8, round_number=4 + number)
    assert loop.incumbent == PLAIN_ARM


def test_proposals_are_merged_by_what_they_show() -> None:
    many = Interface(guidelines=("first ", "Second."))
    texts = [
        Interface(guidelines=("FIRST",)),
        A,
        B,
        many,
        Interface(guidelines=("Second.", "First.")),
        PLAIN_INTERFACE,
        C,
    ]
    rejected = Proposal(PLAIN_INTERFACE, "It leaks.", SAMPLE)
    learner = Learner()
    loop = curator_loop(rejected, *written(*texts), agent=learner, proposals=8)
    propose(loop)
    assert shown(loop) == [texts[0], B, many]
    rates = {PLAIN_INTERFACE: 0.25, texts[0]: 0.45, B: 0.25, many: 0.35}
    report = loop.close_round(0, groups_at(rates))
    rewards = [row["reward"] for row in report.proposals]
    # What shows the same as an arm has its reward; what was not played has none, and no row.
    assert rewards[1] == rewards[2]
    assert rewards[4] == rewards[5]
    assert rewards[6] == 0.0, "the plain interface is an arm too"
    assert rewards[7] is None
    assert rewards[0] == pytest.approx(min(float(str(each)) for each in rewards[1:7]) - REJECTION_STEP)
    assert len(learner.batches[0]) == 7


def test_there_are_no_proposals_if_arms_cannot_be_told_apart() -> None:
    loop = curator_loop(*written(A, B, C))
    arms = []
    for rollouts in (0, 16, 64, 128, 1000):
        propose(loop, rollouts=rollouts)
        arms.append(len(shown(loop)))
    assert isinstance(loop.curator, ScriptedCurator)
    assert loop.curator.counts[:2] == [0, 0]
    assert loop.curator.counts[-1] == 6
    assert arms == sorted(arms)
    assert (arms[0], arms[-1]) == (0, 3)


def test_an_arm_that_may_be_better_plays_again() -> None:
    fourth = Interface(guidelines=("Fourth.",))
    loop = curator_loop(*written(A, B, C, fourth), played=1)
    propose(loop)
    assert shown(loop) == [A]
    end_window(loop, {PLAIN_INTERFACE: 0.25, A: 0.35}, tasks=2)
    assert loop.incumbent == PLAIN_ARM
    loop = resumed(loop, *written(B, C, fourth), played=3)
    propose(loop, 1)
    assert shown(loop) == [A, B, C]
    assert isinstance(loop.curator, ScriptedCurator)
    assert [each.interface for each in loop.curator.tried] == [A]
    # One that has shown nothing does not.
    end_window(loop, {PLAIN_INTERFACE: 0.4, A: 0.2, B: 0.4, C: 0.4}, round_number=1)
    propose(loop, 2)
    assert A not in shown(loop)


def resumed(loop: CuratorLoop, *proposals: Proposal[Interface], **settings: object) -> CuratorLoop:
    """Another loop with the same state."""
    other = curator_loop(*proposals, **settings)
    other.set_state(json.loads(json.dumps(loop.get_state())))
    return other


def test_an_earlier_arm_is_checked_against_this_windows_tasks() -> None:
    loop = curator_loop(*written(A))
    propose(loop)
    end_window(loop, {PLAIN_INTERFACE: 0.25, A: 0.35}, tasks=2)
    other = curator_loop(*written(B), guard=Guard(leaks=A))
    other.set_state(loop.get_state())
    propose(other, 1)
    assert shown(other) == [B]


def test_an_incumbent_that_leaks_an_answer_of_the_next_tasks_is_withdrawn() -> None:
    loop = curator_loop(*written(B), guard=Guard(leaks=A, always=False))
    loop.incumbent = Arm(A)
    assert not propose(loop)
    assert shown(loop) == [A, B]
    assert propose(loop, 1, upcoming=["task"])
    assert loop.incumbent == PLAIN_ARM
    assert shown(loop) == [B]


def test_a_loop_continues_from_its_state_in_the_middle_of_a_window() -> None:
    loop = curator_loop(*written(A, B, C), update_every=2)
    propose(loop)
    rates = {PLAIN_INTERFACE: 0.25, A: 0.6, B: 0.0, C: 0.25}
    loop.close_round(0, groups_at(rates, tasks=2))
    other = resumed(loop, *written(A, B, C), update_every=2)
    assert other.allocate(30, 6) == loop.allocate(30, 6)
    reports = [each.close_round(1, groups_at(rates, tasks=3)) for each in (loop, other)]
    assert reports[0] == reports[1]
    assert loop.incumbent == other.incumbent == Arm(A)
    assert other.get_state() == loop.get_state()


def test_a_task_gets_the_arm_that_has_helped_its_category() -> None:
    loop = curator_loop(*written(A, B), allocation="by_category", update_every=2)
    without_arms = loop.tasks_choose
    propose(loop)
    assert (without_arms, loop.tasks_choose) == (False, True)
    assert loop.allocate(30, 5) is None
    groups: list[Group] = groups_at({PLAIN_INTERFACE: 0.0, A: 0.75, B: 0.0}, category="miss_func")
    loop.close_round(0, groups + groups_at({PLAIN_INTERFACE: 0.25, A: 0.25, B: 1.0}))
    assert loop.arms_for([], 5) == []
    assert loop.arms_for(["miss_func"] * 20, 5) == [Arm(A)] * 20
    assert loop.arms_for(["base"] * 20, 5) == [Arm(B)] * 20


def proposal(text: str, *logprobs: float) -> Proposal[Interface]:
    n = len(logprobs)
    sample = Sample(0, (1,) * (n + 1), (False, *(True,) * n), (0.0, *logprobs), (0,) * (n + 1))
    return Proposal(Interface(guidelines=(text,)), sample=sample)


def test_the_likeliest_proposals_come_first() -> None:
    unlucky, usual, long = proposal("a", -0.1, -9.0), proposal("b", -0.5), proposal("c", -0.2, -0.2, -0.2, -0.2)
    assert likeliest_first([unlucky, usual, long]) == [long, usual, unlucky]


def test_the_most_varied_say_something_else() -> None:
    ask, again = proposal("Ask for what is missing.", -0.1), proposal("Ask the user for what is missing.", -0.2)
    abstain, check = proposal("Call nothing where no tool fits.", -0.3), proposal("Check the state first.", -0.4)
    garbled, nonsense = proposal("fuelAmount Ada", -9.0), proposal("nonsense", -8.0)
    rejected = replace(proposal("Log in.", -0.01), rejection="no")
    proposals = [garbled, ask, again, rejected, abstain, check, ask, nonsense]
    assert most_varied(proposals, [], 2) == [ask.value, abstain.value]
    assert ask.value is not None
    tried = [Interface(guidelines=("Where no tool fits, call nothing.",))]
    assert most_varied(proposals, [ask.value], 1, tried=tried) == [check.value]
    everything = most_varied(proposals, [], 9)
    assert len(everything) == 6, "all but the rejected one and the repeated one"
    assert rejected.value not in everything
    assert most_varied([], [], 3) == []


def test_a_proposal_may_add_256_tokens_to_the_prompt_of_the_solver() -> None:
    guard = RunGuard([], open_model(tiny.NAME))
    guidelines = tuple(f"Read request number {word} twice." for word in ("one", "two", "three", "four", "five"))
    assert guard.check(Interface(guidelines=guidelines)) is None
    refused = guard.check(Interface(guidelines=("Read the request twice, and then read it once more. " * 7,) * 8))
    assert refused is not None
    assert refused.startswith("guidelines: their text has ")
    assert refused.endswith(" tokens, at most 256 fit.")
