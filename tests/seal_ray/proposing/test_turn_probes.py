"""Turn probes: the choice of turns, gains, costs; values of parts, and the choice of imitated texts."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.verifier import Outcome, TurnVerdict
from policies.curator.llm import LLMCurator
from policies.proposer import Proposal
from policies.trajectory import Trajectory, derive_seed
from policies.turn_start import TurnStart
from seal_ray.algorithm.config import SealConfig
from seal_ray.proposing.part_values import PartValues, parts_of
from seal_ray.proposing.probed import UNLIKELY, Credit, ProbedProposals
from seal_ray.proposing.turn_probes import ProbeValue, TurnProber, choose_points, stratified_gain, turns_of
from seal_ray.rollout.types import Group, GroupPlan, Member
from tests.seal_ray.grpo.diagnoses import diagnosed
from tests.seal_ray.proposing.proposers import SAMPLE, A, B, C, Guard, curator_loop, groups_at, propose
from tests.seal_ray.rollout.rounds import Solver

FAILED = [TurnStart(f"ask {n}", "ask", 0, Label.SPURIOUS_TOOL_CALL, 20, ()) for n in range(30)]
OTHERS = [TurnStart(f"base {n}", "base", 0, Label.STATE_MISMATCH, 20, ()) for n in range(30)]
PASSED = [TurnStart(f"base {n}", "base", 0, Label.PASS, 20, ()) for n in range(30)]
ROLLOUTS = {FAILED[0].kind: 30, OTHERS[0].kind: 10, PASSED[0].kind: 60}
ALL = sum(ROLLOUTS.values())


def spec_with(**curator: Any) -> Any:
    return SealConfig().curator(kind="llm", trainable=True, **{"probe_points": 32, **curator}).spec


class Play:
    """Plays probes: a turn passes with this probability, by interface and start. It stores the plans.

    A turn takes `tokens` sampled tokens.
    """

    def __init__(self, passes: Callable[[Interface, TurnStart], float], tokens: int = 1) -> None:
        self.passes = passes
        self.tokens = tokens
        self.plans: list[GroupPlan] = []

    def __call__(self, plans: Sequence[GroupPlan]) -> list[Group]:
        self.plans += plans
        return [Group(plan, (Member(plan.arm, self._turn(plan)),)) for plan in plans]

    def _turn(self, plan: GroupPlan) -> Trajectory:
        assert plan.start is not None
        (seed,) = plan.seeds
        passed = random.Random(derive_seed(seed, plan.arm.id)).random() < self.passes(plan.arm.interface, plan.start)
        (group,) = Solver(lambda _: 0.0).play([replace(plan, start=None)])
        label = Label.PASS if passed else Label.STATE_MISMATCH
        return replace(group.trajectories[0], mask_T=(True,) * self.tokens, diagnosis=diagnosed(label))


def prober_of(play: Play, *, tokens: int = 1_000_000, **curator: Any) -> TurnProber:
    prober = TurnProber(spec_with(**curator), play)
    fill(prober, tokens)
    return prober


def fill(prober: TurnProber, tokens: int = 1_000_000) -> None:
    starts = [asdict(start) for start in (*FAILED, *OTHERS, *PASSED)]
    prober.set_state({"starts": starts, "rollouts": [[*kind, n] for kind, n in ROLLOUTS.items()], "tokens": tokens})


def a_helps(interface: Interface, start: TurnStart) -> float:
    """A repairs most spurious calls, and B breaks turns that passed."""
    if start.label is Label.PASS:
        return 0.5 if interface == B else 1.0
    return 0.9 if interface == A and start in FAILED else 0.0


def test_every_beginning_of_the_points_is_stratified_and_spread_over_tasks() -> None:
    points = choose_points([*FAILED, *OTHERS, *PASSED], ROLLOUTS, 32, 0.75, random.Random(1))
    assert len(points) == len({(point.kind, point.task) for point in points}) == 32
    assert Counter(point.kind for point in points) == {FAILED[0].kind: 18, OTHERS[0].kind: 6, PASSED[0].kind: 8}
    assert Counter(point.label.is_failure for point in points[:8]) == {True: 6, False: 2}
    base = [point.task for point in points if point.category == "base"]
    assert len(set(base)) == len(base), "a task is not probed twice while others are left"
    assert len(choose_points(FAILED[:3], ROLLOUTS, 32, 0.5, random.Random(1))) == 3


def test_a_gain_is_weighted_by_the_rollouts_of_its_kind() -> None:
    points = [*FAILED[:6], *OTHERS[:2], *PASSED[:2]]
    gain, error = stratified_gain(points, ROLLOUTS, [1, 1, 1, 0, 0, 0, -1, 0, -1, 0], ALL)
    assert gain == pytest.approx(0.3 * 0.5 + 0.1 * -0.5 + 0.6 * -0.5)
    assert 0.15 < error < 0.5
    nothing, error = stratified_gain(points, ROLLOUTS, [np.nan] * 10, ALL)
    assert nothing == 0
    assert error == pytest.approx((0.1 * (0.4**2 + 0.6**2)) ** 0.5)
    half, _ = stratified_gain(FAILED[:2], ROLLOUTS, [1, 0], ALL)
    assert half == pytest.approx(0.4 * 0.5), "the failed side keeps its share without points of its other kind"


def test_errors_of_gains_cover_the_truth() -> None:
    rng, covered = random.Random(4), 0
    for _ in range(200):
        points = choose_points([*FAILED, *OTHERS, *PASSED], ROLLOUTS, 24, 0.75, rng)
        chance = {FAILED[0].kind: 0.5, OTHERS[0].kind: 0.0, PASSED[0].kind: -0.1}
        differences = [np.sign(chance[each.kind]) * (rng.random() < abs(chance[each.kind])) for each in points]
        gain, error = stratified_gain(points, ROLLOUTS, differences, ALL)
        covered += abs(gain - (0.3 * 0.5 - 0.6 * 0.1)) <= 2 * error
    assert covered >= 180


def test_an_idle_interface_has_no_gain() -> None:
    within = 0
    for window in range(100):
        play = Play(lambda _, start: 0.8 if start.label is Label.PASS else 0.2)
        prober = prober_of(play)
        (value,) = prober.score([A], seed=window).values
        assert value is not None
        within += abs(value.gain) <= 2 * value.error
    assert within >= 90


def test_the_best_survive_and_all_get_a_value() -> None:
    play = Play(a_helps)
    report = prober_of(play).score([A, B, C, Interface(guidelines=("Fourth.",))], seed=1)
    gains = [value.gain for value in report.values if value is not None]
    assert len(gains) == 4
    assert gains[0] == max(gains) > 0.08
    assert gains[1] == min(gains) < -0.1
    assert next(value.stage for value in report.values if value is not None) == 3
    assert len(play.plans) == turns_of([range(32)] * 4) == 32 + 4 * 8 + 2 * 8 + 16
    assert report.tokens == len(play.plans)
    again = prober_of(Play(a_helps)).score([A, B, C, Interface(guidelines=("Fourth.",))], seed=1)
    assert again.values == report.values


TOOLS = [replace(start, names=("find", f"key_{n % 3}")) for n, start in enumerate(FAILED)]
"""Failed turns of one tool, at three arguments."""


def fill_tools(prober: TurnProber) -> None:
    starts = [asdict(start) for start in (*TOOLS, *PASSED)]
    counts = Counter((start.kind, start.names) for start in (*TOOLS, *PASSED))
    rollouts = [[*kind, *names, n] for (kind, names), n in counts.items()]
    prober.set_state(json.loads(json.dumps({"starts": starts, "rollouts": rollouts, "tokens": 1_000_000})))
    assert json.loads(json.dumps(prober.get_state()))["rollouts"] == rollouts


def says(interface: Interface, start: TurnStart) -> float:
    """A guideline that states the unit of an argument repairs its turns."""
    known = " ".join(interface.guidelines)
    return float(start.label is Label.PASS or f"{start.names[1]} m" in known)


def test_an_interface_that_names_a_failure_is_probed_where_it_failed() -> None:
    play = Play(says)
    prober = TurnProber(spec_with(), play)
    fill_tools(prober)
    named, other = Interface(guidelines=("Give key_1 m, always.",)), Interface(guidelines=("Give each key m.",))
    parts = ["give key_1 m, always", "keep it short", "give each key m"]
    assert prober.naming(parts) == ("give key_1 m, always",), "a word that is part of a name does not name it"
    first, second = prober.score([named, other], seed=1).values
    assert first is not None
    assert second is not None
    assert first.gain == pytest.approx(10 / 60), "ten of sixty rollouts fail at this argument"
    assert first.gain > first.error
    assert first.repaired == ("key_1",)
    assert {plan.start.names for plan in play.plans if plan.start and plan.arm.interface == named} == {
        TOOLS[1].names,
        (),
    }
    assert len({plan.start.names for plan in play.plans if plan.start and plan.arm.interface == other}) == 4


def test_one_text_is_imitated_for_each_failure_and_the_best_are_combined() -> None:
    prober = TurnProber(spec_with(), Play(says))
    probed = ProbedProposals(prober)
    texts = [Interface(guidelines=(text,)) for text in ("Give key_1 m.", "It wants key_1 m.", "Give key_2 m.")]
    for seed, (proposed, rows) in enumerate([((0, 1), 1), ((1,), 1), ((2,), 2), ((2,), 2)]):
        fill_tools(prober)
        idle = [Proposal(each, sample=SAMPLE) for each in (A, B, C)]
        assert len(window(probed, *(Proposal(texts[n], sample=SAMPLE) for n in proposed), *idle, seed=seed)) == rows
    best = probed.archive[0][0].value
    assert best is not None
    assert {*best.guidelines} == {guideline for text in texts for guideline in text.guidelines}
    assert len(probed.archive) == 1, "a text with no guideline of its own is not kept"
    fill_tools(prober)
    probed.score([], 5, lambda interface: None if len(interface.guidelines) == 1 else "It leaks.")
    assert not probed.archive


def test_idle_guidelines_have_no_part_in_what_the_named_ones_repair() -> None:
    prober = TurnProber(spec_with(), Play(says))
    probed = ProbedProposals(prober)
    both, idle = (Interface(guidelines=texts) for texts in (("Give key_1 m.", "Keep it short."), ("Keep it short.",)))
    for seed, shown in enumerate((both, idle)):
        fill_tools(prober)
        assert window(probed, Proposal(shown, sample=SAMPLE), seed=seed) == [1.0], "the first text alone"
        credit = probed.credits[0]
        assert credit is not None
        assert credit.helps == (shown == both)
        assert abs(credit.gain - (10 / 60 if shown == both else 0.0)) < 0.02


def test_the_best_by_probes_is_the_incumbent_and_what_does_not_help_is_not_played() -> None:
    texts = [Interface(guidelines=(text,)) for text in ("Give key_1 m.", "Keep it short.")]
    prober = TurnProber(spec_with(), Play(says))
    proposals = [Proposal(each, sample=SAMPLE) for each in texts]
    loop = curator_loop(*proposals, guard=Guard(leaks=C), probed=ProbedProposals(prober))
    assert isinstance(loop.curator, LLMCurator)
    assert not loop.curator.reads_interfaces
    propose(loop)
    assert [arm.interface for arm in loop.arms[1:]] == texts, "the first window has no probes"
    loop.close_round(0, [])
    fill_tools(prober)
    assert propose(loop, 1)
    assert [arm.interface for arm in loop.arms[1:]] == [loop.incumbent.interface] == texts[:1], "others do not help"
    loop.close_round(1, groups_at({Interface.plain(): 0.5, texts[0]: 0.2}))
    assert loop.incumbent.interface == texts[0], "the next window's probes decide"


def test_a_curator_does_not_read_what_the_archive_repairs() -> None:
    profile, verdict = FailureProfile(), TurnVerdict(0, Outcome.UNSCORED)
    for argument in ("source", "destination"):
        turn = TurnDiagnosis(0, Label.ARGUMENT_MISMATCH, "type", verdict, tool="cp", argument=argument)
        profile.add(Diagnosis("t", "base", (turn,), False), 0.0)
    probed = ProbedProposals(prober_of(Play(a_helps)))
    assert "source" in probed.unrepaired(profile).render()
    probed.archive = [(Proposal(A), Credit(0.2, 0.1, ProbeValue(0.2, 0.1, 24, 3, repaired=("source",))))]
    assert "source" not in probed.unrepaired(profile).render()
    assert "destination" in probed.unrepaired(profile).render()


def test_probes_stay_within_their_budget() -> None:
    play = Play(a_helps)
    prober = prober_of(play, tokens=10_000, probe_budget=0.2)
    prober.score([A, B, C], seed=1)
    assert 50 < len(play.plans) * 20 <= 0.2 * 10_000
    for taken in (10, 30, 200):  # the recorded turns took 20 tokens
        longer = Play(a_helps, tokens=taken)
        report = prober_of(longer, tokens=10_000, probe_budget=0.2).score([A, B, C], seed=1)
        assert report.tokens == taken * len(longer.plans)
        assert report.tokens <= 2000 or {value.stage for value in report.values if value} == {1}
        assert None not in report.values
    many = [Interface(guidelines=(f"Text {n}: give key_{n % 3} m.",)) for n in range(48)]
    named = TurnProber(spec_with(probe_budget=0.004), Play(says, tokens=100))
    fill_tools(named)
    report = named.score(many, seed=1)
    assert report.tokens > 4000, "the first stage alone exceeds the budget"
    assert {value.stage for value in report.values if value} == {1}
    assert prober_of(Play(a_helps), tokens=100).score([A], seed=1).values == [None]
    assert TurnProber(spec_with(), Play(a_helps)).score([A], seed=1).values == [None], "the first window has no turns"


def test_values_of_parts_are_pooled_over_interfaces_and_windows() -> None:
    values = PartValues()
    a, b, c = map(parts_of, (A, B, C))
    both = parts_of(Interface(guidelines=("First.", "Second.")))
    values.observe([(a, 0.3, 0.15), (both, 0.2, 0.15), (b, 0.0, 0.15)])
    ((first, first_error), (second, _), (new, new_error)) = values.values([a, b, c])
    assert first > 0.06 > second
    assert first > first_error
    assert new == pytest.approx(0.0)
    assert new_error == pytest.approx(0.1)
    for _ in range(4):
        values.observe([(a, -0.2, 0.15)])
    ((later, _),) = values.values([a])
    assert later < 0, "a value can turn negative as the solver learns"
    restored = PartValues()
    restored.set_state(json.loads(json.dumps(values.get_state())))
    assert restored.values([a, both]) == values.values([a, both])


def window(probed: ProbedProposals, *proposals: Proposal[Interface], seed: int = 1) -> list[float]:
    """Scores a window's proposals. Returns the weights of the rows that are imitated."""
    probed.score(proposals, seed)
    return [row.advantage for row in probed.training_rows(proposals)]


def test_only_what_helps_is_imitated_and_the_archive_keeps_it() -> None:
    prober = prober_of(Play(a_helps))
    probed = ProbedProposals(prober)
    texts = [Proposal(each, sample=SAMPLE) for each in (A, A, B)]
    assert window(probed, *texts) == [1.0], "equal texts count once"
    earlier = probed.learns_earlier
    assert [kept.value for kept, _ in probed.archive] == [A]
    first, second, third = probed.rewards(texts)
    assert first == second
    assert first is not None
    assert third is not None
    assert first > 0 > third
    assert [each.value for each in probed.ranked(texts)] == [A, A, A]
    garbled = replace(SAMPLE, sampled_logprobs_T=(0.0, UNLIKELY - 1))
    other = ProbedProposals(prober_of(Play(a_helps)))
    texts = [Proposal(A, sample=garbled), Proposal(B, sample=SAMPLE), Proposal(C, rejection="It leaks.", sample=SAMPLE)]
    assert window(other, *texts) == [], "garbled text is not imitated"
    assert other.credits[0] is not None
    assert other.rewards(texts)[::2] == [pytest.approx(other.credits[0].gain - 0.1), None]
    assert window(probed, Proposal(C, sample=SAMPLE)) == [], "a window without rollouts has no probes, and no step"
    fill(prober)
    assert window(probed, Proposal(C, sample=SAMPLE), seed=2) == [1.0], "what helped is imitated again"
    assert (earlier, probed.learns_earlier) == (False, True)
    assert [kept.value for kept, _ in probed.archive] == [A], "the archive is probed again"
    fill(prober)
    again = Interface(guidelines=(*A.guidelines, "Second."))
    assert window(probed, *(Proposal(each, sample=SAMPLE) for each in (A, again)), seed=3) == [1.0], (
        "no text with the same part"
    )
    assert probed.credits[0] is not None
    assert probed.credits[0].helps
    state = json.loads(json.dumps(probed.get_state()))
    restored = ProbedProposals(prober_of(Play(a_helps)))
    restored.set_state(state, [kept for kept, _ in probed.archive])
    assert restored.get_state() == probed.get_state()


def test_a_short_budget_is_spent_on_the_archive_and_on_what_may_help() -> None:
    prober = prober_of(Play(a_helps))
    probed = ProbedProposals(prober)
    known = [Proposal(each, sample=SAMPLE) for each in (A, B, C)]
    for seed in range(3):
        probed.score(known, seed)
        fill(prober)
    new = Proposal(Interface(guidelines=("Fourth.",)), sample=SAMPLE)
    fill(prober, tokens=int(turns_of([range(24)] * 2) * 20 / 0.2) + 1)
    probed.score([known[1], known[2], new], 3)
    assert [credit is not None for credit in probed.credits] == [False, False, True]
    assert [kept.value for kept, _ in probed.archive] == [A]
