"""Long generated tasks: codes, whole simulators, varied language, values from earlier results; apart from BFCL."""

import json
import random
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from statistics import median

import pytest

from envs.bfcl.tasks import load_tasks
from envs.bfcl.tools import tool_names
from envs.bfcl.world import simulators_of
from envs.errors import UserError
from envs.task import Category, Task
from envs.text import texts_in
from envs.toolworld import LONG, Difficulty, tasks
from envs.toolworld.compose import Composition, mentions
from envs.toolworld.difficulty import difficulty_of
from envs.toolworld.generation import generate_composition, task_from_id
from envs.toolworld.phrases import expanded, lowered, phrases, worded
from envs.toolworld.shown_tools import SUBSTITUTES
from envs.toolworld.words import BENCHMARK, POOLS, SPLITS, owner, read_table
from envs.toolworld.writing import owned_values, values_of
from envs.verifier import prepare
from tests.bench.lengths import Read, lengths
from tests.bench.specifications import check_task
from tests.envs.players import play_ground_truth
from tests.envs.test_toolworld import names

CODE = "t3-8_c1-4_n20-40_s3-6_r1_v1"
HOSTILE = (
    *("", "lang", "LONG", "long\n", "t3-8", CODE + "\n", " " + CODE, CODE + "_v1", CODE + "_x1"),
    *(CODE.replace("_r1_v1", "_v1_r1"), CODE.replace("v1", "v0"), CODE.replace("n20", "n020")),
    *("t3-8_c1-4_d1-3_n20-40_s3-6", "t3-8_c1-4_s3-6", "t3-9_c1-4_n20-40_s3-6", "t3-8_c1-4_n20-61_s3-6"),
    *("t3-8_c1-4_n40-20_s3-6", "t1-9_c1-2_d1-3_s2-4", "t01-2_c1-2_d1-3_s2-4", "t٣-8_c1-4_n20-40_s3-6"),
    *(f"t{'9' * 5_000}-8_c1-4_n20-40_s3-6", "t" * 100_000, CODE + "'; import os", "\x00", "\ud800", "../long"),
)


@cache
def some() -> tuple[Composition, ...]:
    """30 tasks of each category, of all splits."""
    return tuple(generate_composition(seed, split=SPLITS[seed % 3], difficulty=LONG) for seed in range(120))


def truth(task: Task) -> list[tuple[str, ...]]:
    return [tuple(map(str, turn.ground_truth)) for turn in task.turns if turn.ground_truth]


def said(task: Task) -> Iterator[str]:
    return (turn.user for turn in task.turns if turn.user is not None)


def test_a_code_says_everything() -> None:
    assert LONG.code == CODE
    assert difficulty_of("long") == difficulty_of(CODE) == Difficulty.from_code(CODE) == LONG
    for code in ("t2-3_c1-2_d1-3_s2-4", "t1-1_c1-1_d0-0_s2-2", "t6-6_c4-4_d10-10_s8-8", "t1-2_c1-2_n10-60_s2-4", CODE):
        for end in ("", "_r1", "_v1", "_r1_v1"):
            whole = code.removesuffix("_r1_v1") + end
            assert Difficulty.from_code(whole).code == whole
    assert Difficulty(distractor_tools=(1, 2), shown_tools=(20, 30)) == Difficulty(shown_tools=(20, 30))


@pytest.mark.parametrize("code", HOSTILE, ids=lambda code: ascii(code[:30]))
def test_a_hostile_code_is_one_sentence(code: str) -> None:
    with pytest.raises(UserError) as raised:
        difficulty_of(code)
    sentence = str(raised.value)
    assert re.fullmatch(r"[a-z_]+: .{1,110} (cannot be read|is not allowed); .{10,90}\.", sentence, re.ASCII), sentence
    with pytest.raises(UserError):
        task_from_id(f"toolworld_train_base_000001_{code}")


def test_each_part_of_a_code_stands_alone() -> None:
    for code in ("t2-3_c1-2_n20-20_s2-4", "t2-3_c1-2_d1-3_s2-4_r1", "t2-3_c1-2_d1-3_s2-4_v1", "t1-1_c4-4_n10-60_s2-2"):
        for task in tasks(8, split="dev", difficulty=Difficulty.from_code(code)):
            assert task.id.endswith(code)
            assert play_ground_truth(task).success
            if "n20-20" in code:
                assert len(task.all_tools) == 20


def test_a_long_task_looks_like_the_benchmark() -> None:
    found = lengths([made.task for made in some()])
    assert min(found.tools) >= 20
    assert max(len(made.task.all_tools) for made in some()) <= 40
    assert 26 <= median(found.tools) <= 36
    assert 18 <= median(found.words) <= 40
    assert set(found.requests) == set(range(3, 9))
    assert set(found.calls) == {1, 2, 3, 4}
    assert found.share(Read.EARLIER_TURN) > 0.08
    assert 0.25 < found.share(Read.EARLIER_TURN, Read.SAME_TURN) < 0.42
    assert {made.task.category for made in some()} == set(Category)


def test_simulators_are_shown_whole_and_work() -> None:
    for made in some():
        task = made.task
        (hidden,) = [tool.name for turn in task.turns for tool in turn.revealed] or [""]
        shown = {tool.name for tool in task.all_tools}
        assert 1 <= len(task.classes) <= 4
        assert {tool.class_name for tool in task.all_tools} == set(task.classes) == set(simulators_of(task).classes)
        known = {name for kind in task.classes for name in tool_names(kind)}
        missing = known - shown - SUBSTITUTES.get(hidden, frozenset())
        assert not missing or len(shown) == 40, "all but what has no room"
        assert all(map(simulators_of(task).ready()().offers, shown))
        positions = [tool.class_name for tool in task.tools]
        assert positions == sorted(positions, key=positions.index), "one simulator after the other"


def test_every_ground_truth_passes_and_needs_each_of_its_calls() -> None:
    for made in some():
        assert play_ground_truth(made.task).success, made.task.id
    for made in (*some()[:16], *map(generate_composition, range(40))):
        check_task(made)
    turns = [turn for made in some() for turn in truth(made.task)]
    assert all(len(set(turn)) == len(turn) for turn in turns), "no request comes twice in one turn"


def test_what_a_request_reads_stands_in_an_earlier_result_where_it_says() -> None:
    reading: Counter[str] = Counter()
    for made in some():
        results = iter([text for turn in prepare(made.task).turns for text in turn.results])
        shown = ""
        for beat in (beat for beats in made.beats for beat in beats):
            for call in beat.calls:
                used = [value for value in beat.reads if value in values_of(call)]
                assert all(mentions(shown, value) for value in used), f"{made.task.id}: {call}"
                result = next(results)
                shown = f"{shown}\n{result}"
                check_end_of_list(beat.intent, result, beat.reads)
            reading[beat.intent] += bool(beat.reads)
    assert len(reading) > 40
    assert sum(reading.values()) > 200


def check_end_of_list(intent: str, result: str, reads: Sequence[str]) -> None:
    """Asserts that the first of a list is the first one, and the last the last, where the result is that list."""
    lists = {"unfollow_first": "following_list", "first_watched": "watchlist", "unwatch_first": "watchlist"}
    name, found = intent.partition(".")[2], None
    with suppress(ValueError):
        found = json.loads(result)
    if isinstance(found, list) and name in ("close_first", "raise_first"):
        assert str(found[0]["id"]) == reads[0]
    elif isinstance(found, dict) and lists.get(name) in found:
        assert found[lists[name]][0] == reads[0]
    elif isinstance(found, dict) and name == "last_order" and "history" in found:
        assert str(found["history"][-1]) == reads[0]


def test_a_request_keeps_its_values_in_the_varied_register() -> None:
    for made in some():
        told = "\n".join(said(made.task))
        assert all(value in told for beats in made.beats for beat in beats for value in beat.slots.values())


def test_the_values_that_long_tasks_avoid_are_those_of_the_benchmark() -> None:
    held = set[str]()
    for task in load_tasks().values():
        held.update(map(str, texts_in(simulators_of(task).initial_config, whole_numbers=True)))
        held.update(value for turn in task.turns for call in turn.ground_truth for value in values_of(call))
    held = {value.lstrip("#@") for value in held}
    assert held & {value for pool in POOLS.values() for value in pool} == BENCHMARK


def test_long_tasks_share_nothing_with_the_benchmark() -> None:
    benchmark = list(load_tasks().values())
    texts = {text for task in benchmark for text in said(task)}
    calls = {turn for task in benchmark for turn in truth(task)}
    for made in some():
        task, config = made.task, simulators_of(made.task).initial_config
        own = {value for beats in made.beats for beat in beats for value in owned_values(beat)}
        assert {owner(name) for name in own} == {task.id.split("_")[1]}, task.id
        assert not BENCHMARK & {*names(config), *own}, task.id
        assert not texts & set(said(task)), task.id
        for turn in task.turns:
            if tuple(map(str, turn.ground_truth)) in calls:  # no value but fixed ones, as in ls()
                assert not any(value.lstrip("#@") in own for call in turn.ground_truth for value in values_of(call))


def test_every_request_has_three_paraphrases_that_say_the_same() -> None:
    def slots(text: str) -> frozenset[str]:
        return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name)

    assert not set(phrases("referring")) & set(phrases())
    for intent, known in (*phrases().items(), *phrases("referring").items()):
        (filled,) = set(map(slots, known.ask))
        assert len(set(known.ask)) >= 3, intent
        for slot, texts in known.without.items():
            assert len(set(texts)) >= 3, intent
            assert set(map(slots, texts)) == {filled - {slot}}, intent
            assert all(slots(text) == {slot} for text in read_table("phrases")["supply"][slot])


def texts_of(symbol: object) -> Iterator[str]:
    """Every text of a part of the grammar, with each name replaced by each of its texts in turn."""
    if isinstance(symbol, str):
        seen: dict[str, None] = {}
        for turn in range(12):
            seen[expanded(symbol, lambda texts, turn=turn: texts[turn % len(texts)])] = None  # type: ignore[misc]
        yield from seen
    else:
        for part in symbol.values() if isinstance(symbol, dict) else symbol:  # type: ignore[attr-defined]
            yield from texts_of(part)


def test_the_register_has_many_texts_and_none_of_them_is_the_benchmarks() -> None:
    book = read_table("register")
    alone = [*book["greeting"], *book["resuming"], *book["recalling"], *book["closing"], *book["reason"]]
    around = [*book["asking"], *book["stating"], *book["wondering"], *book["remarking"], *book["connecting"]]
    assert len(set(around)) > 50
    assert all(text.count("{}") == 1 for text in around)
    told = "\n".join(text for task in load_tasks().values() for text in said(task)).casefold()
    values = {value for pool in POOLS.values() for value in pool}
    texts = list(texts_of([*alone, list(book["context"].values())]))
    assert len(texts) > 300
    for text in texts:
        assert not re.search(r"[\d{}<>\"]", text)
        assert not set(re.findall(r"[\w']+", text)) & values, text
        assert len(text.split()) < 5 or text.casefold() not in told, text


def test_an_order_is_put_politely_and_a_question_stays_one() -> None:
    rng = random.Random(1)
    orders = {worded(rng, "Please show me a.md.") for _ in range(400)}
    questions = {worded(rng, "What is it?") for _ in range(100)}
    assert "Could you show me a.md?" in orders
    assert "I need you to show me a.md." in orders
    book = read_table("register")
    assert len(orders) == len(book["asking"]) + len(book["stating"])
    assert all(text.endswith("hat is it?") for text in questions)
    assert worded(rng, "Show it. It is here.") == "Show it. It is here."
    assert lowered("I am") == "I am"
