"""The plan of a round: shares of arms, pairs, common tasks, dynamic sampling in waves, and resuming."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.sources import find_task
from policies.rollouts import Fault
from policies.trajectory import Trajectory, derive_seed
from seal_ray.config.resolve import ArmSpec, RunSpec
from seal_ray.config.schema import EnvironmentSection, ReweightingSection, TrainingSection
from seal_ray.grpo.reweighting import Reweighter
from seal_ray.rollout.planner import Planner, plain_share_at, play_waves
from seal_ray.rollout.tasks import TaskStream
from seal_ray.rollout.types import PLAIN_ARM, Arm, Group, GroupPlan, Member, arms_of
from seal_ray.training.rows import RoundRows, make_rows
from tests.seal_ray.rollout.rounds import ARMS, SCORE, Allocator, Solver, plans_of, play_round, sparse_spec

FIVE = arms_of(Interface(guidelines=(text,)) for text in ("Ask.", "Abstain.", "Check.", "Order."))


def common_spec(*, curator: dict[str, Any] | None = None, **values: Any) -> RunSpec:
    """A curator that is a language model: all arms of a window play the same tasks."""
    common = {"kind": "llm", "plain_share": 0.5, "update_every": 2, **(curator or {})}
    return sparse_spec(**{"groups": 16, "curator": common, **values})


def window_plans(planner: Planner, number: int = 0, shown: int = 4) -> list[GroupPlan]:
    return [plan for at in (2 * number, 2 * number + 1) for plan in planner.plan(FIVE[: shown + 1], at, Allocator())]


def tasks_by_arm(plans: Sequence[GroupPlan]) -> list[set[str]]:
    """The tasks of each of the five arms."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for plan in plans:
        tasks[plan.arm.id].add(plan.task)
    return [tasks[arm.id] for arm in FIVE]


def arm_counts(plans: Sequence[GroupPlan], arms: Sequence[Arm] = FIVE) -> list[int]:
    counts = Counter(plan.arm.id for plan in plans)
    return [counts[arm.id] for arm in arms]


@given(st.integers(1, 40), st.floats(0, 1), st.integers(0, 2))
@settings(deadline=None, max_examples=30)
def test_shares_of_a_round(groups: int, share: float, shown: int) -> None:
    spec = sparse_spec(groups=groups, minibatch_groups=1, curator={"plain_share": share})
    plans = Planner(spec).plan(ARMS[: shown + 1], 0, Allocator())
    plain, *others = arm_counts(plans, ARMS[: shown + 1])
    assert plain == (max(1, round(share * groups)) if shown else groups)
    assert not others or max(others) - min(others) <= 1
    assert [plan.number for plan in plans] == list(range(groups))
    assert all(len(set(plan.seeds)) == 3 for plan in plans)


def test_the_plain_interface_among_the_proposals_is_the_plain_arm() -> None:
    assert arms_of([Interface.plain(), *[Interface(guidelines=("Ask.",))] * 2]) == (PLAIN_ARM, ARMS[1])
    assert len({arm.id for arm in FIVE}) == 5
    assert Arm(Interface(guidelines=("Ask.",))).id == ARMS[1].id


def test_rounds_differ_and_repeat() -> None:
    spec = sparse_spec(groups=12)
    planner, again = Planner(spec), Planner(spec)
    first, second = (planner.plan(ARMS, number, Allocator()) for number in (0, 1))
    assert first == again.plan(ARMS, 0, Allocator())
    assert [plan.arm for plan in first] != [plan.arm for plan in second]
    assert not {seed for plan in first for seed in plan.seeds} & {seed for plan in second for seed in plan.seeds}
    stream = TaskStream(EnvironmentSection(), 3)
    assert [plan.task for plan in (*first, *second)] == [stream.task_id(number) for number in range(24)]
    assert all(plan.category == find_task(plan.task).category for plan in first)


@pytest.mark.parametrize("protocol", [Protocol.SEAL, Protocol.UNTIL_FAILURE, Protocol.OFFICIAL])
def test_groups_are_played_by_the_rules_that_the_environment_names(protocol: Protocol) -> None:
    plans = Planner(sparse_spec(environment={"protocol": str(protocol)})).plan(ARMS, 0, Allocator())
    assert {plan.protocol for plan in plans} == {protocol}


@pytest.mark.parametrize(
    ("rounds", "end", "shares"),
    [
        (9, 1.0, [*[0.2] * 5, *(0.2 + 0.8 * after / 3.5 for after in (0.5, 1.5, 2.5, 3.5))]),
        (3, 1.0, [0.2, 0.2, 1.0]),
        (1, 1.0, [0.2]),
        (9, None, [0.2] * 9),
    ],
)
def test_the_plain_share_fades_from_the_middle_to_the_end(rounds: int, end: float | None, shares: list[float]) -> None:
    arms = ArmSpec(plain_share=0.2, plain_share_end=end)
    assert [plain_share_at(at, rounds, arms) for at in range(rounds)] == pytest.approx(shares)


def test_in_pairs_half_of_each_group_under_an_arm_is_plain() -> None:
    spec = sparse_spec(group_size=4, curator={"pairs": True})
    planner = Planner(spec)
    plans = planner.plan(ARMS, 0, Allocator())
    alone = Planner(sparse_spec(group_size=4)).plan(ARMS, 0, Allocator())
    assert [(p.number, p.task, p.arm, p.seeds) for p in plans] == [(p.number, p.task, p.arm, p.seeds) for p in alone]
    for plan in plans:
        assert plan.arms == ((PLAIN_ARM,) * 4 if plan.plain else (PLAIN_ARM,) * 2 + (plan.arm,) * 2)
        assert plan.plain == plan.arm.plain
    pairs = [plan for plan in plans if not plan.plain]
    assert len(pairs) == 6
    replaced = planner.replace(pairs)
    assert [(each.arm, each.plain_members) for each in replaced] == [(each.arm, 2) for each in pairs]
    assert not {each.task for each in replaced} & {each.task for each in plans}


@pytest.mark.parametrize("environment", [{}, {"tasks": 40}])
def test_all_arms_play_the_same_tasks_and_the_plain_one_does_too(environment: dict[str, Any]) -> None:
    planner = Planner(common_spec(environment=environment))
    for window in range(3):
        plans = window_plans(planner, window)
        plain, *shown = tasks_by_arm(plans)
        assert all(tasks == shown[0] <= plain for tasks in shown)
        assert arm_counts(plans) == [16, 4, 4, 4, 4]
        assert len({seed for plan in plans for seed in plan.seeds}) == 32 * 3
        # One of each category over the window, although a round has two.
        if "tasks" not in environment:
            assert set(Counter(find_task(task).category for task in shown[0]).values()) == {1}


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_if_groups_cannot_be_divided_equally_arms_differ_by_one_task_of_the_window(shown: int) -> None:
    plans = window_plans(Planner(common_spec()), shown=shown)
    counts = arm_counts(plans)[1 : shown + 1]
    assert max(counts) - min(counts) <= 1
    for part in (plans[:16], plans[16:]):
        plain, *others = tasks_by_arm(part)
        sets = sorted(others[:shown], key=len)
        assert all(small <= large for small, large in pairwise(sets))
        assert sets[-1] <= plain


def test_common_tasks_are_drawn_without_a_gap_and_groups_have_seeds_of_their_own() -> None:
    planner, stream = Planner(common_spec()), TaskStream(EnvironmentSection(), 3)
    plans = [plan for window in range(2) for plan in window_plans(planner, window)]
    assert [plan.number for plan in plans] == list(range(64))
    assert {plan.task for plan in plans} == {stream.task_id(number) for number in range(32)}, "plain groups are as many"


@pytest.mark.parametrize(
    ("environment", "dynamic_sampling", "common"),
    [({}, False, True), ({}, True, False), ({"tasks": 12}, False, False), ({"tasks": 12}, True, True)],
)
def test_a_resumed_run_plans_what_an_uninterrupted_one_plans(
    environment: dict[str, Any], dynamic_sampling: bool, common: bool
) -> None:
    make = common_spec if common else sparse_spec
    spec = make(environment=environment, dynamic_sampling=dynamic_sampling)
    planner, solver = Planner(spec), Solver(lambda _: 0.1)
    states, rounds = [], []
    for number in range(4):
        states.append(json.dumps(planner.get_state()))
        rounds.append(play_round(spec, planner, number, solver))
    assert any(len(waves) > 1 for waves in rounds) == dynamic_sampling
    assert any(SCORE.is_equal(group) for waves in rounds for group in waves[0])
    for begin in (1, 2):
        other = Planner(spec)
        other.set_state(json.loads(states[begin]))
        assert [play_round(spec, other, number, solver) for number in range(begin, 4)] == rounds[begin:]
        assert other.get_state() == planner.get_state()


@pytest.mark.parametrize("make", [common_spec, sparse_spec])
def test_upcoming_tasks_include_those_of_the_window(make: Callable[..., RunSpec]) -> None:
    spec = make(dynamic_sampling=True)
    planner = Planner(spec)
    for window in range(2):
        before = planner.get_state()
        upcoming = {task.id for task in planner.upcoming()}
        assert planner.get_state() == before
        for number in (2 * window, 2 * window + 1):
            plans = plans_of(play_round(spec, planner, number, Solver(lambda _: 0.05)))
            assert {plan.task for plan in plans} <= upcoming


def test_half_of_the_tasks_choose_their_arms_by_category() -> None:
    planner = Planner(common_spec(curator={"allocation": "by_category"}))
    chosen = Counter[str]()
    by_category = {"miss_func": FIVE[2], "base": FIVE[3]}
    for number in range(4):
        plans = planner.plan(FIVE, number, Allocator(by_category=by_category))
        plain = {plan.task for plan in plans if plan.arm.plain}
        choosing = [plan for plan in plans if plan.task not in plain]
        assert (len(plans), len(plain), len(choosing)) == (16, 8, 4)
        assert arm_counts([plan for plan in plans if plan.task in plain]) == [8, 1, 1, 1, 1]
        for plan in choosing:
            assert plan.arm == by_category.get(plan.category, FIVE[1])
            chosen[plan.category] += 1
    assert chosen["miss_func"] > 0
    assert chosen["base"] > 0


def test_groups_are_divided_as_the_allocator_says() -> None:
    allocator = Allocator([5, 1, 2, 0])
    plans = Planner(common_spec()).plan(FIVE, 0, allocator)
    assert arm_counts(plans) == [8, 5, 1, 2, 0]
    plain, first, second, third, _ = tasks_by_arm(plans)
    assert second < third < first < plain
    Planner(common_spec()).plan(FIVE, 0, allocator)
    assert allocator.calls[0] == allocator.calls[1]
    assert allocator.calls[0][0] == 8
    assert arm_counts(Planner(common_spec()).plan(FIVE, 0, Allocator())) == [8, 2, 2, 2, 2]


def test_the_number_of_rollouts_of_a_window_under_arms() -> None:
    planner = Planner(common_spec(curator={"plain_share": 0.75}, rounds=7))
    assert planner.shown_rollouts(0) == 2 * 4 * 3
    assert planner.shown_rollouts(6) == 4 * 3
    pairs = Planner(common_spec(curator={"plain_share": 0.75, "pairs": True}, rounds=7, group_size=4))
    assert pairs.shown_rollouts(0) == 2 * 4 * 2


def test_tasks_seen_counts_each_task_that_was_played_once() -> None:
    spec = sparse_spec(environment={"tasks": 12}, groups=4)
    planner, solver = Planner(spec), Solver(lambda _: 0.5)
    tasks = {plan.task for number in range(2) for plan in plans_of(play_round(spec, planner, number, solver))}
    assert planner.tasks_seen == len(tasks)
    other = Planner(spec)
    other.set_state(json.loads(json.dumps(planner.get_state())))
    tasks |= {plan.task for number in (2, 3) for plan in plans_of(play_round(spec, other, number, solver))}
    assert other.tasks_seen == len(tasks) == 12


def rows_of(groups: Sequence[Group]) -> RoundRows:
    reweighter = Reweighter(ReweightingSection(mode="none"))
    return make_rows(groups, score=SCORE, training=TrainingSection(view="shown"), reweighter=reweighter)


def test_a_wave_replaces_what_the_one_before_it_lacked() -> None:
    spec = sparse_spec(dynamic_sampling=True)
    planner, stream = Planner(spec), TaskStream(EnvironmentSection(), 3)
    often, first = Solver(lambda _: 0.25), 0
    for number in range(4):
        waves = play_round(spec, planner, number, often)
        plans = plans_of(waves)
        assert len(waves) > 1
        # Numbers, tasks and seeds equal a plan with all groups from the start.
        assert [plan.number for plan in plans] == list(range(first, first + len(plans)))
        assert [plan.task for plan in plans] == [stream.task_id(plan.number) for plan in plans]
        for plan in plans:
            assert plan.seeds == tuple(derive_seed(3, "rollout", plan.number, member) for member in range(3))
        # Each has the arm of the one that it replaces, in order.
        for before, after in pairwise(waves):
            assert [group.plan.arm for group in after] == [group.plan.arm for group in before if SCORE.is_equal(group)]
        rows = rows_of([group for wave in waves for group in wave])
        assert rows.metrics["solver/groups_kept"] == 8
        assert rows.metrics["solver/groups_dropped_equal"] == len(plans) - 8
        teaching = [group.plan.arm for wave in waves for group in wave if not SCORE.is_equal(group)]
        assert Counter(teaching) == Counter(group.plan.arm for group in waves[0])
        assert Counter(teaching) == dict(zip(ARMS, (2, 3, 3), strict=True))
        first += len(plans)


@pytest.mark.parametrize("skill", [0.0, 0.1, 1.0])
def test_no_more_than_three_times_the_groups_are_played(skill: float) -> None:
    for seed in range(3):
        spec = sparse_spec(dynamic_sampling=True, seed=seed)
        groups = [group for wave in play_round(spec, Planner(spec), 0, Solver(lambda _: skill)) for group in wave]
        kept = rows_of(groups).metrics["solver/groups_kept"]
        assert len(groups) <= 24
        assert kept == 8 or len(groups) == 24
        assert skill == 0.1 or kept == 0


def test_if_there_is_room_for_fewer_the_first_are_replaced() -> None:
    plans = Planner(sparse_spec()).plan(ARMS, 0, Allocator())
    replaced: list[list[int]] = []

    def replace(equal: Sequence[GroupPlan]) -> list[GroupPlan]:
        replaced.append([plan.number for plan in equal])
        return list(equal)

    play_waves(plans, play=Solver(lambda _: 1.0).play, is_equal=SCORE.is_equal, replace=replace, max_groups=11)
    assert replaced == [[0, 1, 2]]


def test_groups_are_equal_by_the_reward_of_the_run() -> None:
    def by_seed(trajectory: Trajectory) -> float:
        return float(trajectory.seed % 1000)

    groups = Solver(lambda _: 0.0).play(Planner(sparse_spec()).plan(ARMS, 0, Allocator()))
    assert sum(map(SCORE.is_equal, groups)) == 8
    scored = [group.scored(by_seed) for group in groups]
    assert sum(map(SCORE.is_equal, scored)) == rows_of(scored).metrics["solver/groups_dropped_equal"] == 0


def test_groups_that_faults_made_too_short_are_not_replaced() -> None:
    spec = sparse_spec(dynamic_sampling=True)
    planner = Planner(spec)

    def broken(plans: Sequence[GroupPlan]) -> list[Group]:
        return [
            Group(plan, tuple(Member(arm, Fault(plan.task, 0, "EnvironmentFault", "broken")) for arm in plan.arms))
            for plan in plans
        ]

    plans = planner.plan(ARMS, 0, Allocator())
    (wave,) = play_waves(plans, play=broken, is_equal=SCORE.is_equal, replace=planner.replace, max_groups=24)
    assert rows_of(wave).metrics["solver/groups_dropped_short"] == 8
