"""Tasks that all arms of a window play: which, how balanced, and the same after a restart."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seal_ray.rollout.common import WindowTally, in_turns, take_turns
from seal_ray.rollout.groups import GroupPlan, TaskStream, number_arms

from envs.interface import Interface
from envs.sources import find_task
from seal_ray.algorithm.config import SealConfig
from seal_ray.config.sections import Environment
from seal_ray.rollout.planner import Planner
from tests.seal_ray.algorithm.rounds import Solver, plans_of, play_round, sparse_config

ARMS = number_arms(Interface(guidelines=(text,)) for text in ("Ask.", "Abstain.", "Check.", "Order."))


def common_config(*, curator: dict[str, Any] | None = None, **values: Any) -> SealConfig:
    found = sparse_config(**{"groups": 16, "plain_share": 0.5, **values})
    return found.curator(**{"tasks": "common", "update_every": 2, **(curator or {})})


def window_of(planner: Planner, number: int = 0, shown: int = 4) -> list[GroupPlan]:
    return [plan for at in (2 * number, 2 * number + 1) for plan in planner.plan(ARMS[: shown + 1], at)]


def tasks_of(plans: list[GroupPlan]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for plan in plans:
        found[plan.arm.number].add(plan.task)
    return found


@pytest.mark.parametrize("environment", [{}, {"tasks": 40}, {"sampler": "success"}])
def test_all_arms_play_the_same_tasks_and_the_plain_one_does_too(environment: dict[str, Any]) -> None:
    planner = Planner(common_config(environment=environment))
    for window in range(3):
        plans = window_of(planner, window)
        found = tasks_of(plans)
        assert found[1] == found[2] == found[3] == found[4] <= found[0]
        assert Counter(plan.arm.number for plan in plans) == {0: 16, 1: 4, 2: 4, 3: 4, 4: 4}
        assert len({seed for plan in plans for seed in plan.seeds}) == 32 * 3
        # One of each category over the window, although a round has two.
        if "tasks" not in environment:
            assert len({(plan.task, plan.arm.number) for plan in plans}) == 32
            kinds = Counter(find_task(task).category for task in found[1])
            assert set(kinds.values()) == {1}


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_where_groups_do_not_go_up_arms_differ_by_one_task_of_the_window(shown: int) -> None:
    planner = Planner(common_config())
    plans = window_of(planner, shown=shown)
    groups = Counter(plan.arm.number for plan in plans)
    assert max(groups[arm] for arm in range(1, shown + 1)) - min(groups[arm] for arm in range(1, shown + 1)) <= 1
    by_round = [tasks_of(plans[:16]), tasks_of(plans[16:])]
    for found in by_round:
        sets = sorted((found[arm] for arm in range(1, shown + 1)), key=len)
        assert all(small <= large for small, large in pairwise(sets))
        assert sets[-1] <= found[0]


def test_tasks_go_on_without_a_gap_and_groups_have_seeds_of_their_own() -> None:
    planner, stream = Planner(common_config()), TaskStream(Environment(), 3)
    plans = [plan for window in range(2) for plan in window_of(planner, window)]
    assert [plan.number for plan in plans] == list(range(64))
    tasks = {plan.task for plan in plans}
    assert tasks == {stream.task_id(number) for number in range(len(tasks))}
    assert len(tasks) == 32, "eight a round: plain groups are as many"


def test_as_plain_groups_get_more_or_fewer_the_tasks_stay_nested() -> None:
    for share in (0.0, 0.1, 0.25, 0.75, 0.95, 1.0):
        found = tasks_of(window_of(Planner(common_config(plain_share=share))))
        assert found[0]
        assert share == 1.0 or any(found[arm] for arm in range(1, 5))
        for arm in range(1, 5):
            small, large = sorted((found[arm], found[0]), key=len)
            assert small <= large


@pytest.mark.parametrize("environment", [{}, {"tasks": 12}, {"sampler": "success"}])
def test_a_run_goes_on_in_the_middle_of_a_window_with_replacements(environment: dict[str, Any]) -> None:
    config = common_config(environment=environment, fill="resample", fill_limit=3)
    planner, solver = Planner(config), Solver(lambda _: 0.1)
    states, rounds = [], []
    for number in range(6):
        states.append(json.dumps(planner.get_state()))
        rounds.append(play_round(config, planner, number, solver, ARMS))
    assert any(len(waves) > 1 for waves in rounds)
    for begin in (1, 2, 3, 5):
        other = Planner(config)
        other.set_state(json.loads(states[begin]))
        assert [play_round(config, other, number, solver, ARMS) for number in range(begin, 6)] == rounds[begin:]
    # What replaces a group has its arm and a task that no other group has.
    first, *later = rounds[0]
    played = {group.plan.task for group in first}
    if "tasks" not in environment:
        assert not played & {plan.task for plan in plans_of(later)}


def test_the_tasks_of_a_window_are_among_those_that_were_announced() -> None:
    config = common_config(fill="resample", environment={"sampler": "success"})
    planner = Planner(config)
    for window in range(3):
        announced = {task.id for task in planner.upcoming()}
        for number in (2 * window, 2 * window + 1):
            plans = plans_of(play_round(config, planner, number, Solver(lambda _: 0.05), ARMS))
            assert {plan.task for plan in plans} <= announced


@dataclass
class Sharing:
    """Shares groups out like this, and notes what it was asked."""

    counts: list[int] | None = None
    by_category: dict[str, int] | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def share_out(self, slots: int, seed: int) -> list[int] | None:
        self.asked.append((slots, seed))
        return self.counts

    @property
    def tasks_choose(self) -> bool:
        return self.by_category is not None

    def arms_for(self, categories: Sequence[str], seed: int) -> list[int] | None:
        return None if self.by_category is None else [self.by_category.get(each, 1) for each in categories]


def test_tasks_choose_their_arms_in_half_of_the_groups() -> None:
    planner = Planner(common_config())
    tally = Counter[str]()
    for number in range(4):
        plans = planner.plan(ARMS, number, Sharing(by_category={"miss_func": 2, "base": 3}))
        plain = {plan.task for plan in plans if plan.arm.plain}
        chosen = [plan for plan in plans if plan.task not in plain]
        assert (len(plans), len(plain), len(chosen)) == (16, 8, 4)
        assert Counter(plan.arm.number for plan in plans if plan.task in plain) == {0: 8, 1: 1, 2: 1, 3: 1, 4: 1}
        for plan in chosen:
            category = str(find_task(plan.task).category)
            assert plan.arm.number == {"miss_func": 2, "base": 3}.get(category, 1)
            tally[category] += 1
    assert tally["miss_func"] > 0
    assert tally["base"] > 0


def test_groups_are_shared_out_as_it_is_asked_for() -> None:
    planner = Planner(common_config())
    sharing = Sharing([5, 1, 2, 0])
    asked = sharing.asked
    plans = planner.plan(ARMS, 0, sharing)
    assert Counter(plan.arm.number for plan in plans) == {0: 8, 1: 5, 2: 1, 3: 2}
    found = tasks_of(plans)
    assert found[2] < found[3] < found[1] < found[0]
    again = Planner(common_config())
    again.plan(ARMS, 0, sharing)
    assert asked[0] == asked[1]
    assert asked[0][0] == 8
    # Over the window arms that have fewer are not made up for: that is what was asked.
    turns = Planner(common_config()).plan(ARMS, 0, Sharing())
    assert Counter(plan.arm.number for plan in turns) == {0: 8, 1: 2, 2: 2, 3: 2, 4: 2}


def test_the_rollouts_of_a_window_under_arms_are_known_before() -> None:
    planner = Planner(common_config(plain_share=0.75, rounds=7))
    assert planner.shown_rollouts(0) == 2 * 4 * 3
    assert planner.shown_rollouts(6) == 4 * 3


def test_drawn_tasks_are_those_of_the_group_numbers() -> None:
    planner, stream = Planner(sparse_config()), TaskStream(Environment(), 3)
    plans = [plan for number in range(3) for plan in planner.plan(ARMS, number)]
    assert [plan.task for plan in plans] == [stream.task_id(number) for number in range(24)]


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=30), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)))
def test_an_order_in_which_categories_take_turns(categories: list[str], so_far: dict[str, int]) -> None:
    order = in_turns(categories, so_far)
    assert sorted(order) == list(range(len(categories)))
    met, left = Counter(so_far), Counter(categories)
    for place in order:
        assert met[categories[place]] == min(met[name] for name in left if left[name])
        met[categories[place]] += 1
        left[categories[place]] -= 1


@given(st.integers(0, 40), st.integers(1, 6), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_turns_are_taken_as_equally_as_can_be(slots: int, arms: int, so_far: list[int]) -> None:
    counts = take_turns(slots, list(range(arms)), dict(enumerate(so_far)))
    assert sum(counts) == slots
    assert max(counts) - min(counts) <= 1
    more = [so_far[arm] for arm in range(arms) if counts[arm] == max(counts)]
    less = [so_far[arm] for arm in range(arms) if counts[arm] < max(counts)]
    assert not less or max(more) <= min(less)


def test_a_tally_reads_back() -> None:
    tally = WindowTally(Counter({1: 3}), Counter({"base": 2}))
    assert WindowTally.from_dict(json.loads(json.dumps(tally.to_dict()))) == tally
    assert WindowTally.from_dict({}) == WindowTally()
