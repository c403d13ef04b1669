"""Variants of the benchmark's training tasks: other names, the same story, and the world agrees."""

import itertools
import random
import re

import pytest

from envs.bfcl.renaming import exchanged, renamed, variant
from envs.bfcl.splits import get_split
from envs.bfcl.tasks import get_task
from envs.errors import UserError
from envs.sources import find_task, get_source
from envs.task import Category, Task
from envs.verifier import Outcome, Verifier, prepare
from envs.world import ToolCall

SOURCE = get_source("bfcl-renamed")


def texts(task: Task) -> list[str]:
    return [turn.user for turn in task.turns if turn.user is not None]


def shape(text: str) -> str:
    """A text with each of its letters and digits made the same."""
    return re.sub("[0-9]", "0", re.sub("[a-z]", "a", re.sub("[A-Z]", "A", text)))


def test_names_are_exchanged_whole_and_in_their_case_in_config_texts_and_calls() -> None:
    names = {"roadtrip": "kabodela", "card2580": "lomi1234", "7423": "9981"}
    assert exchanged("#RoadTrip, roadtrip and Roadtrips", names) == "#KaboDela, kabodela and Roadtrips"
    said = exchanged("card2580, Card2580, card25801; 7423 and 74230", names)
    assert said == "lomi1234, Lomi1234, card25801; 9981 and 74230"
    task = get_task("base_2")
    made = renamed(task, {"teamnotes": "kabodelap"})
    assert ["TeamNotes" in str(each) for each in (task, made)] == [True, False]
    assert [text.replace("TeamNotes", "KaboDelap") for text in texts(task)] == texts(made)
    assert made.turns[0].ground_truth[1] == ToolCall("touch", {"file_name": "KaboDelap.txt"})


def test_all_variants_are_sound_and_many_have_other_names() -> None:
    """Every ground truth passes its own verifier, and texts keep their shape: only names and numbers are others."""
    changed = 0
    tasks = get_split().train[::3]
    for task in tasks:
        made = variant(task, "7", name="variant")
        assert [shape(text) for text in texts(made)] == [shape(text) for text in texts(task)]
        changed += made.setting is not task.setting and texts(made) != texts(task)
        verifier = Verifier(made)
        world = prepare(made).start()
        for turn, known in zip(made.turns, prepare(task).turns, strict=True):
            results = [world.execute(call) for call in turn.ground_truth]
            assert [result.is_error for result in results] == list(known.errors), task.id
            if results:
                verifier.add_calls()
            for result in results:
                verifier.add_result(result.text)
            assert verifier.end_turn(world.state()).outcome in (Outcome.PASS, Outcome.UNSCORED), task.id
    assert changed > 0.5 * len(tasks)


def test_needed_tools_are_shown_and_hidden_ones_are_not() -> None:
    sizes = set()
    for task, seed in itertools.product(get_split().train[::18], "0123"):
        made = variant(task, seed, name="variant")
        shown = [tool.name for tool in made.tools]
        sizes.add(len(shown) / len(task.tools))
        assert shown == [tool.name for tool in task.tools if tool.name in shown], "in the order of the task"
        assert {call.name for turn in task.turns for call in turn.ground_truth} <= {
            tool.name for tool in made.all_tools
        }
        assert not {tool.name for turn in task.turns for tool in turn.revealed} & set(shown)
    assert (max(sizes), min(sizes) < 0.4) == (1.0, True)


def test_ids_make_the_same_task_in_every_order_and_are_not_the_benchmark_s() -> None:
    pool = SOURCE.pool("train")
    numbers = [0, 5, 316, 5 + 316]
    ids = [pool.task_id(number, 3) for number in numbers]
    first = [SOURCE.task(each) for each in ids]
    again = [find_task(each) for each in reversed(ids)][::-1]
    assert [(task.id, texts(task)) for task in first] == [(task.id, texts(task)) for task in again]
    assert [task.id for task in first] == ids
    assert len(set(ids)) == 4
    assert all(pool.holds(each) and SOURCE.owns(each) and not get_source("bfcl").owns(each) for each in ids)
    assert [task.category for task in first] == [pool.category(number) for number in numbers]
    held = [pool.holds(part[0].id) for part in (get_split().train, get_split().dev, get_split().test)]
    assert (held, pool.size) == ([True, False, False], None)


def test_four_categories_of_a_story_come_together_under_the_same_names() -> None:
    pool = SOURCE.pool("train")
    for start in range(0, 40, 4):
        tasks = [SOURCE.task(pool.task_id(number)) for number in range(start, start + 4)]
        (scenario,) = {task.scenario for task in tasks}
        assert [task.category for task in tasks] == list(Category)
        base, _, _, long_context = tasks
        same = texts(get_task(f"base_{scenario}")) == texts(get_task(f"long_context_{scenario}"))
        assert (texts(base) == texts(long_context)) is same
        assert not same or base.tools == long_context.tools


def test_only_tasks_to_train_on_have_variants() -> None:
    dev = get_split().dev[0].id
    assert SOURCE.pool("dev").task_id(0) == dev
    assert SOURCE.task(dev) is get_task(dev)
    for bad, sentence in (
        (f"renamed_{dev}_0_0", "is not to train on"),
        ("renamed_multi_turn_base_2_0", "is not known"),
        ("renamed_multi_turn_base_99999_0_0", "is not known"),
    ):
        with pytest.raises(UserError, match=sentence):
            SOURCE.task(bad)
    with pytest.raises(UserError, match="has the default split_scheme"):
        SOURCE.pool("train", split_scheme="category")


def test_no_variant_has_a_text_of_a_dev_or_test_task() -> None:
    split = get_split()
    barred = {text for task in (*split.dev, *split.test) for text in texts(task) if len(text.split()) > 3}
    rng = random.Random(0)
    for task in rng.sample(split.train, 60):
        assert not barred & set(texts(variant(task, str(rng.random()), name="variant")))
