"""The training tasks of a run by their numbers."""

from collections import Counter

import pytest

from envs.bfcl.splits import get_split
from envs.errors import UserError
from envs.sources import find_task
from envs.task import Category
from seal_ray.config.schema import EnvironmentSection
from seal_ray.rollout.tasks import TaskStream

MIXED = "toolworld:0.5+bfcl:0.5"


def test_the_toolworld_has_no_end_and_other_seeds_other_tasks() -> None:
    stream, other = TaskStream(EnvironmentSection(), 0), TaskStream(EnvironmentSection(), 1)
    names = [stream.task_id(number) for number in range(40)]
    assert len(set(names)) == 40
    assert Counter(find_task(name).category for name in names) == dict.fromkeys(Category, 10)
    assert not set(names) & {other.task_id(number) for number in range(40)}
    assert stream.finite_set == []


def test_a_finite_set_is_repeated_in_epochs_of_other_orders() -> None:
    stream = TaskStream(EnvironmentSection(tasks=12), 0)
    epochs = [[stream.task_id(12 * epoch + place) for place in range(12)] for epoch in range(3)]
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(sorted(epochs[0]))}
    assert len(set(map(tuple, epochs))) == 3
    assert sorted(task.id for task in stream.finite_set) == sorted(epochs[0])
    backwards = TaskStream(EnvironmentSection(tasks=12), 0)
    assert [backwards.task_id(number) for number in (25, 3)] == [epochs[2][1], epochs[0][3]]


def test_the_benchmark_s_train_split_is_played_and_no_other() -> None:
    stream = TaskStream(EnvironmentSection(source="bfcl", categories=[Category.MISS_FUNC]), 0)
    train = {task.id for task in get_split("scenario").train if task.category is Category.MISS_FUNC}
    assert {stream.task_id(number) for number in range(len(train))} == train
    with pytest.raises(UserError, match="has no tasks"):
        TaskStream(EnvironmentSection(source="bfcl", split="dev", split_scheme="category"), 0)


def test_so_many_tasks_of_a_mixture_are_so_many_different_ones_in_its_shares() -> None:
    streams = [TaskStream(EnvironmentSection(source=MIXED, tasks=400), seed) for seed in (0, 1)]
    epochs = [[stream.task_id(number) for number in range(400)] for stream in streams]
    assert len(set(epochs[0])) == 400
    assert sum(task.startswith("multi_turn") for task in epochs[0]) == 200
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) == set(epochs[1])
    assert {streams[0].task_id(number) for number in range(400, 800)} == set(epochs[0])
    with pytest.raises(UserError, match=r"environment.tasks: of 1000 tasks .* 816 are different; take fewer"):
        TaskStream(EnvironmentSection(source=MIXED, tasks=1000), 0)


def test_a_broken_task_has_no_category_and_is_left_out_of_tasks() -> None:
    stream = TaskStream(EnvironmentSection(tasks=4), 0)
    assert stream.category("toolworld_train_base_nonsense") == ""
    assert stream.category(stream.task_id(0)) == find_task(stream.task_id(0)).category
    assert [task.id for task in stream.tasks([2, 0])] == [stream.task_id(2), stream.task_id(0)]
