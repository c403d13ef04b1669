"""Task specifications: hostile texts are rejected at once, with a reason; tasks are sound, apart, and found again."""

import hashlib
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.errors import UserError
from envs.sources import find_task, get_source
from envs.specifications import Rejected, Writable, likeness, writable
from envs.task import Category
from envs.toolworld import generate
from envs.toolworld.compose import Composition
from envs.toolworld.phrases import phrases
from envs.toolworld.specification import TaskSpecification, Withheld, compose, read_specification, specified_task
from envs.toolworld.specification.composing import KnownTasks, specification_in, task_name
from envs.toolworld.specification.json_form import (
    code_of,
    schema,
    specification_from_dict,
)
from envs.toolworld.specification.value import MOST_TURNS, SCENES, intents_of
from tests.bench.specifications import Counted, check_reason, check_task, random_specification
from tests.envs.test_toolworld import content

GOOD: dict[str, Any] = {
    "category": "miss_func",
    "scenes": ["files", "trading"],
    "turns": [["files.show"], ["files.write", "trading.quote"]],
    "distractors": 3,
    "state": 4,
    "withheld": {"turn": 1, "what": "get_stock_info"},
}


DIGEST = "37ac5f72e4ab710e0951cff6aed469fe5927e860eeedcdcfc7a9df71285af9ab"
"""Of the key of `GOOD` and five of its tasks: results name them by id."""


def made(**changes: Any) -> TaskSpecification:
    return specification_from_dict({**GOOD, **changes})


def composed(specification: TaskSpecification, seed: int = 0) -> Composition:
    found = compose(specification, seed)
    assert not isinstance(found, Rejected), found.reason
    return found


def test_a_specification_is_read_as_it_is_written() -> None:
    found = read_specification(json.dumps(GOOD))
    turns = (("files.show",), ("files.write", "trading.quote"))
    withheld = Withheld(1, "get_stock_info")
    assert found == TaskSpecification(Category.MISS_FUNC, ("files", "trading"), turns, 3, 4, withheld)
    assert json.loads(found.dump()) == GOOD
    assert read_specification(found.dump()) == found
    assert (found.depth, found.intents) == (2, ("files.show", "files.write", "trading.quote"))


def test_what_is_the_same_has_one_form_and_one_key() -> None:
    other = made(scenes=["trading", "files"])
    assert (other, other.dump(), other.key) == (made(), made().dump(), made().key)
    assert len(other.key) == 16
    swapped = [["files.write", "trading.quote"], ["files.show"]]
    different = [
        *(made(distractors=2), made(state=5), made(withheld={"turn": 1}), made(withheld={"turn": 0})),
        made(category="miss_param", withheld={"turn": 0}),
        made(turns=swapped, withheld={"turn": 0, "what": None}),
    ]
    assert len({each.key for each in (made(), *different)}) == 7
    short = {"category": "base", "scenes": ["files"], "turns": [["files.show"]]}
    long = {**short, "distractors": 2, "state": 3, "withheld": None}
    assert specification_from_dict(short) == specification_from_dict(long)


def hostile() -> Iterator[tuple[str, str, str]]:
    """(name, text, what the reason must say)."""
    whole = json.dumps(GOOD)
    yield "empty", "", "JSON"
    yield "two", whole + whole, "JSON"
    yield "a list", "[]", "list"
    yield "100,000 turns", json.dumps({**GOOD, "turns": [["files.show"]] * 100_000}), "characters"
    yield "a long text", '"' + "x" * 5_000_000 + '"', "characters"
    yield "deep", "[" * 1_900, "nested"
    yield "deep behind a text", '{"a": "' + "]" * 600 + '","b":' + "[" * 600 + "]" * 600 + "}", "nested"
    yield "seven turns", json.dumps({**GOOD, "turns": [["files.show"]] * 7}), "7 are not allowed"
    yield "no turn", json.dumps({**GOOD, "turns": []}), "0 are not allowed"
    yield "an empty turn", json.dumps({**GOOD, "turns": [["files.show"], []]}), "turn 2: 0 are not allowed"
    yield "four intents", json.dumps({**GOOD, "turns": [["files.show"] * 4]}), "4 are not allowed"
    yield "a text for a list", json.dumps({**GOOD, "turns": "files.show"}), "must be a list"
    yield "a number for a name", json.dumps({**GOOD, "category": 3}), "must be a name"
    yield "true for a number", json.dumps({**GOOD, "distractors": True}), "must be a whole number"
    yield "NaN", json.dumps({**GOOD, "state": float("nan")}), "NaN"
    yield "infinite", json.dumps(GOOD).replace('"state": 4', '"state": 1e999'), "whole number"
    yield "a huge number", json.dumps(GOOD).replace('"state": 4', f'"state": {"9" * 1_500}'), "so large"
    yield "an unknown key", json.dumps({**GOOD, "ground_truth": []}), "'ground_truth' is not known"
    yield "a key twice", whole[:-1] + ', "state": 4}', "twice"
    yield "a missing key", json.dumps({"category": "base", "scenes": ["files"]}), "'turns' is missing"
    yield "an unknown category", json.dumps({**GOOD, "category": "bas"}), "category: 'bas' is not known"
    yield "a scene twice", json.dumps({**GOOD, "scenes": ["files", "files"]}), "twice"
    yield "arithmetic alone", json.dumps({**GOOD, "scenes": ["arithmetic"]}), "no state of its own"
    yield "a car for a long context", json.dumps({**GOOD, "category": "long_context", "scenes": ["vehicle"]}), "needs"
    yield "an unknown intent", json.dumps({**GOOD, "turns": [["files.shows"]]}), "did you mean"
    yield "an attribute", json.dumps({**GOOD, "turns": [["files.__class__"]]}), "is not known"
    yield "a scene that is not there", json.dumps({**GOOD, "turns": [["tickets.read"]]}), "not one of the scenes"
    yield "a surrogate", json.dumps({**GOOD, "category": "\ud800"}), "category"
    yield "right to left", json.dumps({**GOOD, "turns": [["\u202efiles.show"]]}), "turn 1"
    yield "a long key", json.dumps({**GOOD, "k" * 900: 1}), "is not known"
    yield "withheld in base", json.dumps({**GOOD, "category": "base"}), "nothing is withheld in base"
    yield "nothing withheld", json.dumps({**GOOD, "withheld": None}), "miss_func needs the turn"
    yield "withheld too late", json.dumps({**GOOD, "withheld": {"turn": 2}}), "must be from 0 to 1"
    miss = {**GOOD, "category": "miss_param", "withheld": {"turn": 0, "what": "price"}}
    yield "a value that is not there", json.dumps(miss), "'price' is not known"
    miss |= {"turns": [["files.list_here"]], "withheld": {"turn": 0, "what": None}}
    yield "nothing to leave out", json.dumps(miss), "no value that can be left out"


HOSTILE = list(hostile())


@pytest.mark.parametrize(("text", "reason"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_hostile_texts_are_rejected_within_10_ms_and_with_a_reason(text: str, reason: str) -> None:
    writable("toolworld")  # tables are read once
    took = []
    for _ in range(3):
        started = time.process_time()
        with pytest.raises(UserError) as found:
            read_specification(text)
        took.append(time.process_time() - started)
    assert reason in str(found.value)
    check_reason(str(found.value))
    assert min(took) < 0.01


LONGEST = max((name for name in phrases() if not name.startswith("arithmetic")), key=len)
LONG = {"category": "base", "scenes": [LONGEST.partition(".")[0], "arithmetic"], "turns": [[LONGEST] * 3] * MOST_TURNS}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(sorted(phrases())),
        lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.sampled_from(list(GOOD)) | st.text(), inner),
        max_leaves=30,
    ),
    st.sampled_from(["", *GOOD]),
)
@example({chr(0x10000) * 60: None}, "")
@example({**GOOD, "scenes": [chr(0x10000) * 60]}, "")
@example({**GOOD, "category": chr(0x10000) * 60}, "")
@settings(max_examples=40, deadline=None)
def test_any_json_is_a_specification_or_rejected(value: Any, key: str) -> None:
    document = {**GOOD, key: value} if key else value
    try:
        found = specification_from_dict(document)
    except UserError as error:
        check_reason(str(error))
    else:
        assert read_specification(found.dump()) == found
    assert read_specification(json.dumps(LONG, indent=1)).depth == MOST_TURNS, "the longest one"


def test_each_intent_is_known_to_a_scene_and_can_be_composed() -> None:
    assert sorted(name for scene in SCENES for name in intents_of(scene)) == sorted(phrases())
    first = {
        "files": "files.show", "trading": "trading.quote", "messages": "messages.add", "twitter": "twitter.posts_of",
        "vehicle": "vehicle.navigate", "tickets": "tickets.retitle", "arithmetic": "files.show",
    }  # fmt: skip
    before = {
        "files.go_up": "files.list_in", "trading.cancel_placed": "trading.buy",
        "trading.details_placed": "trading.sell", "messages.send_known": "messages.add",
        "messages.sent": "messages.send", "twitter.comment_posted": "twitter.post",
        **{f"tickets.{each}_created": "tickets.create" for each in ("close", "resolve", "priority")},
        "tickets.logout": "tickets.mine", "trading.logout": "trading.account",
    }  # fmt: skip
    for intent in phrases():
        scene = intent.partition(".")[0]
        scenes = ("files", "arithmetic") if scene == "arithmetic" else (scene,)
        names = dict.fromkeys((first[scene], before.get(intent, first[scene]), intent))
        found = composed(TaskSpecification(Category.BASE, scenes, tuple((name,) for name in names)))
        assert [beat.intent for (beat,) in found.beats] == list(names)
        check_task(found)


def test_a_task_is_what_its_specification_says() -> None:
    found = composed(made())
    task = found.task
    assert (task.category, set(task.classes)) == ("miss_func", {"GorillaFileSystem", "TradingBot"})
    assert tuple(tuple(beat.intent for beat in beats) for beats in found.beats) == made().turns
    assert [doc.name for turn in task.turns for doc in turn.revealed] == ["get_stock_info"]
    assert (task.turns[1].ground_truth, task.turns[2].user) == ((), None)
    needed = {call.name for turn in task.turns for call in turn.ground_truth}
    assert len({tool.name for tool in task.tools} - needed) == 3
    left_out = composed(made(category="miss_param", withheld={"turn": 0, "what": "file"}))
    assert left_out.omitted is not None
    assert [left_out.omitted in (turn.user or "") for turn in left_out.task.turns[:2]] == [False, True]
    long, short = (composed(made(category=category, withheld=None)) for category in ("long_context", "base"))
    assert len(str(long.task.setting)) > 4 * len(str(short.task.setting))


BASE: dict[str, Any] = {"category": "base", "withheld": None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"turns": [["files.go_up"]], "withheld": {"turn": 0}}, "turn 1: files.go_up makes no sense"),
        ({**BASE, "turns": [["files.list_here"]]}, "no request names a value of its own"),
        ({**BASE, "turns": [["trading.quote"]], "category": "long_context"}, "whose result grows with the state"),
        ({"withheld": {"turn": 1, "what": "cat"}}, "turn 2 does not need cat"),
        ({**BASE, "turns": [["files.list_here"], ["files.show", "files.list_here"]]}, "twice with the same values"),
    ],
)
def test_what_cannot_be_composed_is_rejected_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    found = compose(made(**changes), 0)
    assert isinstance(found, Rejected)
    assert reason in found.reason
    check_reason(found.reason)


def test_random_specifications_give_sound_tasks_or_a_reason() -> None:
    counted = Counted()
    for number in range(60):
        counted.add(random_specification(0, number), number)
    assert counted.composed.total() > 12
    assert set(counted.composed) == set(map(str, Category))
    assert counted.reasons.total() > 12


def test_a_task_is_found_again_by_its_id() -> None:
    found = composed(made(), seed=7)
    assert found.task.id == task_name(made(), 7) == f"toolworld_written_train_miss_func_000007_{code_of(made())}"
    assert content(specified_task(found.task.id)) == content(found.task) == content(find_task(found.task.id))
    assert specification_in(found.task.id) == made()
    assert specification_in(generate(0).id) is None
    assert content(composed(made(), seed=8).task) != content(found.task)
    assert [get_source("toolworld").pool(part).holds(found.task.id) for part in ("train", "dev")] == [True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        *("1_files~files.go_up~d2~s3", "01_files~files.show~d2~s3", "1_files~files.show~d02~s3"),
        *("1_trading+files~files.show~d2~s3", "1_", "1_files~" + "files.show-" * 100_000),
    ],
)
def test_an_id_that_nobody_gave_is_one_sentence(wrong: str) -> None:
    with pytest.raises(UserError, match=r"task|specification|turns"):
        find_task(f"toolworld_written_train_base_00000{wrong}")


def test_a_task_is_the_same_in_every_process() -> None:
    made_now = "".join(content(composed(made(), seed).task) for seed in range(5))
    assert hashlib.sha256(f"{made().key} {made_now}".encode()).hexdigest() == DIGEST


def test_what_is_shared_is_found() -> None:
    known, source = composed(made()), writable("toolworld")
    apart = source.apart([known.task])
    again = source.compose(made(), 0, apart=apart)
    assert isinstance(again, Rejected)
    assert "shares" in again.reason
    check_reason(again.reason)
    assert not isinstance(source.compose(made(), 1, apart=apart), Rejected)
    # One text or one call with a value of its own is enough; a story is all of them.
    one = composed(made(turns=[["files.show"]], category="base", withheld=None))
    assert KnownTasks([one.task]).shared(one) is not None
    assert KnownTasks([one.task]).story(one.task) == "all user texts"
    assert KnownTasks([one.task]).story(known.task) is None
    # A story without names of its own belongs to no task.
    first, *others = (composed(made(**BASE, turns=[["files.list_here"], ["files.show"]]), seed) for seed in range(40))
    alike = [each.task for each in others if each.task.turns[0].user == first.task.turns[0].user]
    assert any(KnownTasks([task]).shared(first) is None for task in alike)


def test_a_source_says_whether_tasks_can_be_written_for_it() -> None:
    source = writable("toolworld")
    assert isinstance(source, Writable)
    assert source.read(json.dumps(GOOD)) == made()
    assert source.draw(random.Random(3)) == source.draw(random.Random(3))
    assert "files: show, open_in" in source.specification_help
    with pytest.raises(UserError, match="'bfcl' composes no tasks"):
        writable("bfcl")


def test_the_schema_has_the_names_that_are_known() -> None:
    found = schema()["properties"]
    assert list(found) == list(GOOD)
    assert found["turns"]["items"]["items"]["enum"] == [name for scene in SCENES for name in intents_of(scene)]
    assert found["scenes"]["items"]["enum"] == list(SCENES)


def test_likeness_is_by_category_scenes_intents_and_turns() -> None:
    assert likeness(made(), made(state=8, distractors=0)) == 1.0
    near = made(turns=[["files.show"], ["files.write"]], withheld={"turn": 0})
    assert 0.5 < likeness(made(), near) < 1.0
    assert likeness(made(), made(**BASE)) == 0.0
    assert likeness(near, made()) == likeness(made(), near)
