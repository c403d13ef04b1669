"""Mixtures of task sources: shares, order, lookup, and what is refused."""

import pytest

from envs.errors import UserError
from envs.mixture import parse_shares
from envs.sources import TaskSet, get_source

NAME = "toolworld:0.75+bfcl:0.25"
EXAM = TaskSet("exam", "tasks of a test", {"test": [get_source("bfcl").task("multi_turn_base_0")]})


def test_shares_hold_from_the_first_number_on_and_epochs_have_each_task_once() -> None:
    pool, bfcl = (get_source(name).pool("train") for name in (NAME, "bfcl"))
    assert bfcl.size is not None
    assert pool.size is None
    ids, other = ([pool.task_id(number, seed) for number in range(8 * bfcl.size)] for seed in (5, 6))
    assert ids[:80] == [pool.task_id(number, seed=5) for number in range(80)]
    of_bfcl = [place for place, task_id in enumerate(ids) if bfcl.holds(task_id)]
    # After any number of tasks a source is at most one task from its share.
    assert all(abs(sum(place < end for place in of_bfcl) - end / 4) <= 1 for end in range(0, len(ids), 37))
    epochs = [[ids[place] for place in of_bfcl[begin : begin + bfcl.size]] for begin in (0, bfcl.size)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(bfcl.task_id(number) for number in range(bfcl.size))
    assert epochs[0] != [task_id for task_id in other if bfcl.holds(task_id)][: bfcl.size], "a seed has its own order"
    toolworld = get_source("toolworld").pool("train")
    others = [task_id for task_id in ids if not bfcl.holds(task_id)]
    assert others == [toolworld.task_id(number, seed=5) for number in range(len(others))]


def test_tasks_and_categories_are_those_of_the_sources() -> None:
    source = get_source(NAME)
    assert source is get_source(NAME)
    assert (source.parts, source.endless, source.takes_difficulty) == (("train",), True, True)
    assert source.categories == get_source("bfcl").categories
    pool = source.pool("train", difficulty="long", categories=["miss_func", "base"])
    drawn = [pool.task_id(number) for number in range(40)]
    assert all(pool.holds(task_id) and source.owns(task_id) for task_id in drawn)
    tasks = [source.task(task_id) for task_id in drawn]
    assert [task.id for task in tasks] == drawn
    assert [task.category for task in tasks] == [pool.category(number) for number in range(40)]
    assert {task.category for task in tasks} == {"miss_func", "base"}
    assert not pool.holds(get_source("bfcl").pool("test").task_id(0))
    assert {tool.name for task in tasks for tool in task.all_tools} <= set(source.tools())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toolworld:0.5+bfcl:0.6", "environment.source: the shares do not add up to 1"),
        ("toolworld+toolworld", "environment.source: toolworld is given twice"),
        ("toolworld+bfc", "environment.source: 'bfc' is not known; did you mean 'bfcl'"),
        ("toolworld+", "environment.source: '' is not known"),
        ("toolworld:0.9996+bfcl:0.0004", "the share 0.0004 of bfcl is too small; give 0.001 or more"),
        ("toolworld:0+bfcl", "the share in 'toolworld:0' must be above 0"),
        ("tests.envs.test_mixture:EXAM+bfcl", "environment.source: exam has no training part"),
    ],
)
def test_what_is_no_mixture_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        get_source(name)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError) as again:
        get_source(name, key="--env")
    assert str(again.value) == str(error.value).replace("environment.source: ", "--env: ")


def test_a_mixture_is_for_training_alone() -> None:
    source = get_source(NAME)
    with pytest.raises(UserError, match="split part: 'dev' is not known"):
        source.pool("dev")
    with pytest.raises(UserError, match="the sources of a mixture use their defaults"):
        source.pool("train", split_scheme="random")
    with pytest.raises(UserError, match="cannot be listed"):
        source.split()
    with pytest.raises(UserError, match="toolworld of the mixture has no task of them"):
        source.pool("train", categories=["none"])


def test_a_source_without_a_share_takes_what_is_left() -> None:
    assert parse_shares(["a:0.5", "b", "c.d:E"], key="k") == {"a": 0.5, "b": 0.25, "c.d:E": 0.25}
    assert parse_shares(["c.d:E:0.25", "b:0.75"], key="k") == {"c.d:E": 0.25, "b": 0.75}
