"""Tasks drawn with a memory of success: fewer groups at 0 or 1, and no task given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from seal_ray.rollout.groups import PLAIN_ARM, PlayedGroup, TaskStream
from seal_ray.rollout.sampler import SuccessSampler, make_sampler

from envs.errors import EnvironmentFault, UserError
from envs.sources import find_task
from envs.task import Category, Task
from seal_ray.config.sections import Environment
from seal_ray.rollout.planner import Planner
from tests.seal_ray.algorithm.rounds import ARMS, COMPARE, Solver, plans_of, play_round, sparse_config

POOL = 30


def sampler_of(floor: float = 0.2, **environment: Any) -> SuccessSampler:
    found = Environment(sampler="success", sampler_floor=floor, **environment)
    made = make_sampler(found, TaskStream(found, 3), 3)
    assert isinstance(made, SuccessSampler)
    return made


def played(task: str, successes: int, *, arm: int = 0) -> PlayedGroup:
    """A group of four dialogues, of which so many succeeded."""
    plan = replace(Planner(sparse_config(group_size=4)).plan(ARMS, 0)[0], task=task, arm=ARMS[arm])
    (group,) = Solver(lambda _: 0.0).play([plan])
    done = [replace(each, reward=float(place < successes)) for place, each in enumerate(group.trajectories)]
    return PlayedGroup(plan, tuple(done))


def simulated(sampler: str, *, rounds: int = 60, **environment: Any) -> tuple[float, Counter[str]]:
    """Ten tasks are never done, ten always, ten in half of the cases. Returns the share of groups with equal rewards in
    the later two thirds, and how often each task was drawn there."""
    config = sparse_config(
        environment={"tasks": POOL, "sampler": sampler, **environment}, groups=10, group_size=8, plain_share=1.0
    )
    planner = Planner(config)
    skills = dict(
        zip(sorted(planner.tasks.task_id(number) for number in range(POOL)), [0.0, 0.5, 1.0] * 10, strict=True)
    )
    equal: list[bool] = []
    drawn: Counter[str] = Counter()
    for number in range(rounds):
        (groups,) = play_round(config, planner, number, Solver(skills.__getitem__), (PLAIN_ARM,))
        if number >= rounds // 3:
            equal += map(COMPARE.is_equal, groups)
            drawn.update(group.plan.task for group in groups)
    return sum(equal) / len(equal), drawn


def test_a_mixture_remembers_each_of_its_finite_tasks_and_only_the_kinds_of_others() -> None:
    sampler = sampler_of(source="toolworld:0.5+bfcl:0.5")
    drawn = [sampler._stream.task_id(number) for number in range(400)]
    finite = [task for task in drawn if task.startswith("multi_turn")]
    generated = [task for task in drawn if not task.startswith("multi_turn")]
    sampler.observe([played(finite[0], 0)])
    assert {task for task in drawn if sampler.weight(task) < 1.0} == {finite[0]}
    sampler.observe([played(generated[0], 0)])
    alike = {task for task in drawn if sampler.weight(task) < 1.0} - {finite[0]}
    assert generated[0] in alike
    assert len(alike) > 1
    assert alike <= set(generated)


def test_so_many_tasks_of_a_mixture_are_so_many_different_ones_in_its_shares() -> None:
    streams = [TaskStream(Environment(source="toolworld:0.5+bfcl:0.5", tasks=400), seed) for seed in (0, 1)]
    epochs = [[stream.task_id(number) for number in range(400)] for stream in streams]
    assert len(set(epochs[0])) == 400
    assert sum(task.startswith("multi_turn") for task in epochs[0]) == 200
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) == set(epochs[1])
    assert {streams[0].task_id(number) for number in range(400, 800)} == set(epochs[0])
    with pytest.raises(UserError, match=r"environment.tasks: of 1000 tasks .* 816 are different; take fewer"):
        TaskStream(Environment(source="toolworld:0.5+bfcl:0.5", tasks=1000), 0)


def test_groups_at_0_or_1_get_rarer_and_no_task_is_given_up() -> None:
    uniform, _ = simulated("uniform")
    by_success, drawn = simulated("success")
    assert uniform == pytest.approx(2 / 3, abs=0.02)
    # Weights near 0.2, 1 and 0.2 give 0.4 / 1.4.
    assert by_success == pytest.approx(0.29, abs=0.07)
    assert len(drawn) == POOL
    low, _ = simulated("success", sampler_floor=0.05)
    assert low < by_success - 0.1


def test_the_weight_is_the_floor_and_above_it_the_variance_of_success() -> None:
    sampler = sampler_of(0.3, tasks=4)
    done, missed, half = (sampler._stream.task_id(number) for number in range(3))
    assert sampler.weight(done) == 1.0
    sampler.observe([played(done, 4), played(missed, 0), played(half, 2)])
    # The mean moves from 0.5 by 0.3 of the way.
    assert sampler.get_state()["success"] == pytest.approx({done: 0.65, missed: 0.35, half: 0.5})
    for task in (done, missed):
        assert sampler.weight(task) == pytest.approx(0.3 + 0.7 * 4 * 0.65 * 0.35)
    for _ in range(40):
        sampler.observe([played(done, 4), played(missed, 0)])
    assert sampler.weight(done) == pytest.approx(0.3, abs=1e-4) == sampler.weight(missed)
    for _ in range(4):
        sampler.observe([played(done, 2)])
    assert sampler.weight(done) > 0.8


def test_a_task_is_drawn_with_the_probability_of_its_weight() -> None:
    sampler = sampler_of(0.2, tasks=2)
    never, other = (sampler._stream.task_id(number) for number in range(2))
    for _ in range(40):
        sampler.observe([played(never, 0)])
    drawn = Counter(sampler.draw(range(3000)))
    assert drawn[never] / drawn[other] == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("tasks", [None, 12])
def test_without_experience_or_with_floor_1_all_are_taken(tasks: int | None) -> None:
    stream = TaskStream(Environment(tasks=tasks), 3)
    expected = [stream.task_id(number) for number in range(24)]
    assert sampler_of(0.2, tasks=tasks).draw(range(24)) == expected
    sampler = sampler_of(1.0, tasks=tasks)
    sampler.observe([played(task, 0) for task in expected])
    assert sampler.draw(range(24)) == expected


def test_only_the_plain_interface_counts() -> None:
    sampler = sampler_of(tasks=4)
    task = sampler._stream.task_id(0)
    before = sampler.get_state()
    sampler.observe([played(task, 0, arm=1), played(task, 4, arm=2)])
    assert sampler.get_state() == before
    sampler.observe([played(task, 0)])
    assert sampler.get_state() != before


def test_tasks_that_never_come_twice_share_the_memory_of_their_kind() -> None:
    sampler = sampler_of()
    task = find_task(sampler._stream.task_id(0))
    calls = sum(len(turn.ground_truth) for turn in task.turns)
    sampler.observe([played(task.id, 0)])
    assert sampler.get_state()["success"] == {f"{task.category}, {len(task.turns)} turns, {calls} calls": 0.35}
    others = [find_task(sampler._stream.task_id(number)) for number in range(1, 200)]
    alike = [
        (each.category, len(each.turns), sum(len(turn.ground_truth) for turn in each.turns))
        == (task.category, len(task.turns), calls)
        for each in others
    ]
    assert any(alike)
    assert [sampler.weight(each.id) < 1.0 for each in others] == alike


def test_of_generated_tasks_fewer_are_drawn_that_are_always_or_never_done() -> None:
    skill = {Category.BASE: 1.0, Category.MISS_FUNC: 0.0, Category.MISS_PARAM: 0.5, Category.LONG_CONTEXT: 0.5}
    config = sparse_config(environment={"sampler": "success"}, groups=16, group_size=8)
    planner = Planner(config)
    solver = Solver(cache(lambda task: skill[Category(find_task(task).category)]))
    rounds = [plans_of(play_round(config, planner, number, solver, (PLAIN_ARM,))) for number in range(40)]
    kinds = Counter(find_task(plan.task).category for plans in rounds[20:] for plan in plans)
    assert {plan.number for plans in rounds for plan in plans} == set(range(640))
    assert len({plan.task for plans in rounds for plan in plans}) == 640
    # A quarter each without the sampler; here 0.2 / 2.4 for those at 0 or 1.
    for category in (Category.BASE, Category.MISS_FUNC):
        assert 0.04 < kinds[category] / 320 < 0.16


@pytest.mark.parametrize("fill", ["drop", "resample"])
@pytest.mark.parametrize("environment", [{"sampler": "success"}, {"sampler": "success", "tasks": 12}, {}])
def test_the_tasks_of_a_window_are_among_those_that_were_announced(fill: str, environment: dict[str, Any]) -> None:
    config = sparse_config(environment=environment, fill=fill)
    planner = Planner(config)
    for window in range(5):
        before = planner.get_state()
        announced = {task.id for task in planner.upcoming()}
        assert planner.get_state() == before
        for number in (2 * window, 2 * window + 1):
            plans = plans_of(play_round(config, planner, number, Solver(lambda _: 0.02)))
            assert {plan.task for plan in plans} <= announced


@pytest.mark.parametrize("sampler", ["uniform", "success"])
def test_a_checkpoint_of_a_run_without_memory_goes_on_where_it_was(sampler: str) -> None:
    planner = Planner(sparse_config(environment={"sampler": sampler}))
    planner.set_state({"next_group": 40})
    stream = TaskStream(Environment(), 3)
    plans = planner.plan(ARMS, 5)
    assert [plan.number for plan in plans] == list(range(40, 48))
    assert [plan.task for plan in plans] == [stream.task_id(number) for number in range(40, 48)]


def test_a_task_that_cannot_be_made_is_drawn_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of()
    names = [sampler._stream.task_id(number) for number in range(8)]
    make: Callable[[str], Task] = sampler._stream.task

    def broken(name: str) -> Task:
        if name == names[2]:
            raise EnvironmentFault("no sound task")
        return make(name)

    monkeypatch.setattr(sampler._stream, "task", broken)
    assert sampler.draw(range(8)) == names


def test_tasks_seen_counts_each_task_once_and_stands_in_the_state() -> None:
    config = sparse_config(environment={"tasks": 3}, groups=4)
    planner = Planner(config)
    one, two = played("a", 1), played("b", 2)
    planner.observe([one, two, played("a", 4)])
    assert planner.tasks_seen == 2
    other = Planner(config)
    other.set_state(planner.get_state())
    other.observe([one, played("c", 0), PlayedGroup(replace(one.plan, task="lost"), ())])
    assert other.tasks_seen == 3
    earlier = {key: value for key, value in planner.get_state().items() if key != "seen"}
    other.set_state(earlier)
    assert other.tasks_seen == 0
