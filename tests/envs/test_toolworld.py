"""Generated tasks: the same everywhere, disjoint by split, sound under the verifier, and what their category says."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from envs.bfcl.tasks import get_task
from envs.bfcl.tools import all_tools
from envs.bfcl.world import simulators_of
from envs.diagnosis import Flag, Label
from envs.dialects import DIALECTS, Dialect
from envs.errors import UserError
from envs.interface import CueKind, Interface, SchemaCue
from envs.interface.show import show_tools
from envs.sources import find_task, get_source
from envs.task import JSON, Category, Task, ToolCall
from envs.tool_documents import check_call, read_tool
from envs.toolworld import LONG, Difficulty, generate, tasks
from envs.toolworld.compose import mentions
from envs.toolworld.difficulty import DEFAULT
from envs.toolworld.generation import generate_composition, task_from_id
from envs.toolworld.phrases import phrases
from envs.toolworld.scenes import MAIN
from envs.toolworld.shown_tools import DESCRIPTIONS, SUBSTITUTES, compact_signature, compact_tool
from envs.toolworld.words import SPLITS, owner
from envs.toolworld.writing import MAX_WORDS
from envs.verifier import prepare
from tests.envs.players import play_ground_truth

SMALLEST = Difficulty(turns=(1, 1), calls_per_turn=(1, 1), distractor_tools=(0, 0), state_size=(2, 2))
HARDEST = Difficulty(turns=(6, 6), calls_per_turn=(4, 4), distractor_tools=(10, 10), state_size=(8, 8))
LARGER = Difficulty(turns=(4, 5), calls_per_turn=(3, 4), distractor_tools=(4, 6), state_size=(5, 8))
DIGESTS = {
    "train": "55c7ea986ec9c9f10a51ea2bb7bbb507b88a0356b092e8feb88f351937618bbe",
    "dev": "99e851bbd9f63f55bfa37345f845db5e4df978f0e46028bc8188b16ec5b1400d",
    "test": "c6de9c130f6cf05b0bebe5ad85670ee96c671da1e42fe3986dabdaa7fb884641",
    "larger": "f46ca97ad343bff17a5643e83eab9325b189859e70743aec7aa442c42b1f14a9",
    "long": "1ad73b38f0fe4f3bd5497d8da922cdf6bf2a8b1344ccb76a41bdb3b2e855b444",
}
"""Of the first 200 tasks of each split, 40 of each at `LARGER`, and 12 long ones of dev: results name these by id."""
WRONG_IDS = (
    *("", "train_base_123", "train_base_0000123", "train_base_-00123", "all_base_000123", "train_bass_000123"),
    *("train_base_000123\n", "train_base_٠٠٠١٢٣", "train_base_000123_t2-3_c1-2_d1-3_s2-4"),
)
RANGE = r".* <= greatest <= \d+"
MOST_CHARACTERS = 3_500
"""Of a whole default dialogue. A vocabulary of 2,000 has 3.2 characters a token on these tasks: about 1,000 tokens."""


@cache
def one(seed: int, split: str, difficulty: Difficulty) -> Task:
    return generate(seed, split=split, difficulty=difficulty)


def some(n: int = 240, split: str = "train", difficulty: Difficulty = DEFAULT) -> tuple[Task, ...]:
    """The first tasks, as `tasks` gives them."""
    return tuple(one(seed, split, difficulty) for seed in range(n))


def content(task: Task) -> str:
    """Everything in a task, order included."""
    turns = [
        (turn.user, [call.to_dict() for call in turn.ground_truth], [doc.document for doc in turn.revealed])
        for turn in task.turns
    ]
    tools = [tool.document for tool in task.tools]
    config = simulators_of(task).initial_config
    return json.dumps([task.id, task.category, task.scenario, turns, tools, task.classes, config])


def truth(task: Task) -> tuple[tuple[ToolCall, ...], ...]:
    return tuple(turn.ground_truth for turn in task.turns)


def characters_shown(task: Task) -> int:
    return sum(len(text) for turn in prepare(task).turns for text in turn.results)


def names(config: JSON) -> Iterator[str]:
    """The names in a start config that tell it from another's."""
    for class_name, state in config.items():
        match class_name:
            case "GorillaFileSystem":
                (root,) = state["root"].values()
                yield from (*state["root"], *root["contents"])
            case "TwitterAPI":
                yield from (state["username"], *state["following_list"])
            case "VehicleControlAPI":
                yield state["destination"]
            case "TicketAPI":
                yield from (ticket["title"] for ticket in state["ticket_queue"])
            case "TradingBot" | "MessageAPI":
                yield from state.get("stocks") or state["user_map"]
            case other:
                assert other == "MathAPI", "a simulator without state"


def test_tasks_are_the_stored_ones_and_the_four_categories_take_turns() -> None:
    larger = (task for split in SPLITS for task in tasks(40, split=split, difficulty=LARGER))
    made = {split: some(200, split) for split in SPLITS}
    made |= {"larger": tuple(larger), "long": tasks(12, split="dev", difficulty=LONG)}
    digests = {name: hashlib.sha256("".join(map(content, each)).encode()).hexdigest() for name, each in made.items()}
    assert digests == DIGESTS
    assert [task.category for task in some(8)] == list(Category) * 2
    assert content(some(8)[3]) == content(generate(3, category=Category.LONG_CONTEXT))


@pytest.mark.parametrize(
    ("difficulty", "count"), [(DEFAULT, 400), (SMALLEST, 400), (LONG, 60)], ids=["default", "smallest", "long"]
)
def test_no_two_splits_share_a_name_a_config_a_user_text_or_a_ground_truth(difficulty: Difficulty, count: int) -> None:
    # With the smallest difficulty tasks repeat each other within a split, so that a leak could not hide.
    sides: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for split in SPLITS:
        for task in some(count, split, difficulty):
            config = simulators_of(task).initial_config
            assert {owner(name) for name in names(config)} == {split}, task.id
            sides["config"][split].add(json.dumps(config))
            sides["user"][split].add(json.dumps([turn.user for turn in task.turns]))
            sides["calls"][split].add(str(truth(task)))
    assert (len(sides["calls"]["dev"]) < 399) == (difficulty is not DEFAULT)
    for kind, side in sides.items():
        assert sum(map(len, side.values())) == len(set.union(*side.values())), kind


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_every_ground_truth_passes_through_every_dialect(dialect: Dialect) -> None:
    for task in some(20):
        dialogue = play_ground_truth(task, dialect=dialect)
        assert dialogue.success, task.id
        assert set(dialogue.diagnosis.labels) <= {Label.PASS, Label.CORRECT_ABSTENTION}, task.id
        assert not any(Flag.RECOVERED in turn.flags for turn in dialogue.turn_diagnoses), task.id


def test_ground_truth_fits_the_schemas_of_the_shown_tools() -> None:
    for task in (*some(), *tasks(40, split="dev", difficulty=LARGER)):
        for index, turn in enumerate(task.turns):
            shown = {tool.name: tool for tool in task.tools_at(index)}
            for call in turn.ground_truth:
                assert check_call(call, shown[call.name]) == (), f"{task.id}: {call}"


def test_a_held_out_tool_is_missing_until_it_is_revealed_and_needed_then() -> None:
    seen = set()
    for task in (task for task in some(400) if task.category is Category.MISS_FUNC):
        (reveal,) = [index for index, turn in enumerate(task.turns) if turn.revealed]
        turn, asked = task.turns[reveal], task.turns[reveal - 1]
        (hidden,) = turn.revealed
        seen.add(hidden.name)
        assert (turn.user, asked.ground_truth) == (None, ())
        assert asked.user
        assert hidden.name in {call.name for call in turn.ground_truth}
        assert hidden.name not in {call.name for earlier in task.turns[:reveal] for call in earlier.ground_truth}
        shown = {tool.name for tool in task.tools}
        assert not {hidden.name, *SUBSTITUTES.get(hidden.name, ())} & shown
    assert len(seen) > 30


def test_a_left_out_value_cannot_be_known_before_it_is_supplied() -> None:
    for seed in range(60):
        made = generate_composition(seed, category=Category.MISS_PARAM)
        task, value = made.task, made.omitted
        assert value is not None
        (vague,) = [index for index, turn in enumerate(task.turns) if not turn.ground_truth]
        supplied = task.turns[vague + 1]
        assert supplied.user
        assert mentions(supplied.user, value)
        assert value in str(supplied.ground_truth)
        before = [turn.user or "" for turn in task.turns[: vague + 1]]
        for turn, truth in zip(task.turns[:vague], prepare(task).turns, strict=False):
            before += [*truth.results, *map(str, turn.ground_truth)]
        assert not any(mentions(text, value) for text in before), f"{task.id}: {value}"


def test_long_context_has_results_several_times_longer_and_is_not_padded() -> None:
    characters: dict[str, list[int]] = defaultdict(list)
    for task in some(800):
        assert not simulators_of(task).padded
        characters[task.category].append(characters_shown(task))
    mean = {category: sum(sizes) / len(sizes) for category, sizes in characters.items()}
    assert mean[Category.LONG_CONTEXT] > 2.5 * mean[Category.BASE]


@pytest.mark.parametrize(
    ("difficulty", "count"),
    [(DEFAULT, 160), (SMALLEST, 160), (LARGER, 160), (HARDEST, 12)],
    ids=["default", "smallest", "larger", "hardest"],
)
def test_a_difficulty_is_kept(difficulty: Difficulty, count: int) -> None:
    turn_counts, call_counts, distractors = set(), set(), set()
    for task in some(count, "test", difficulty):
        added = task.category in (Category.MISS_FUNC, Category.MISS_PARAM)
        assert [bool(turn.ground_truth) for turn in task.turns].count(False) == added
        turn_counts.add(len(task.turns) - added)
        call_counts |= {len(calls) for calls in truth(task) if calls}
        assert {tool.class_name for tool in task.all_tools} <= set(task.classes)
        if sum(tool.class_name in task.classes for tool in all_tools().values()) > 20:  # small simulators have too few
            needed = {call.name for calls in truth(task) for call in calls} | {"find"}
            distractors.add(sum(tool.name not in needed for tool in task.tools))
    assert turn_counts == set(range(difficulty.turns[0], difficulty.turns[1] + 1))
    assert call_counts == set(range(difficulty.calls_per_turn[0], difficulty.calls_per_turn[1] + 1))
    low, high = difficulty.distractor_tools
    assert max(distractors) == high
    assert min(distractors) in (low - 1, low), "`find` may be a distractor, too"


def test_default_tasks_stay_short() -> None:
    render = DIALECTS["qwen"].render_calls
    for task in some(800):
        said = [turn.user or "" for turn in task.turns]
        assert max(len(text.split()) for text in said) <= MAX_WORDS
        assert len(task.all_tools) <= 12
        written = (*map(compact_signature, task.all_tools), *said, *map(render, truth(task)))
        assert sum(map(len, written)) + characters_shown(task) <= MOST_CHARACTERS, task.id


def test_simulators_and_intents_are_all_used_and_none_dominates() -> None:
    made = [generate_composition(seed) for seed in range(600)]
    involved = Counter(name for each in made for name in each.task.classes)
    assert min(involved[scene.class_name] for scene in MAIN) > len(made) / 10
    intents = Counter(beat.intent for each in made for beats in each.beats for beat in beats)
    assert set(intents) == set(phrases()), "no phrases without a use"
    assert max(intents.values()) < intents.total() / 20
    assert 0.1 < sum(len(each.task.classes) == 2 for each in made) / len(made) < 0.4


def test_a_signature_is_one_line_and_shows_the_cues_of_an_interface() -> None:
    assert compact_signature(compact_tool("mv")) == "mv(source, destination) Move or rename a file."
    assert compact_signature(compact_tool("tail")) == "tail(file_name, lines?) Show the last lines of a file."
    for name in DESCRIPTIONS:
        tool, again = all_tools()[name], read_tool(compact_tool(name).document)
        types, known = ([(each.name, each.type) for each in doc.parameters] for doc in (again, tool))
        assert (types, again.required, compact_tool(name).parameters) == (known, tool.required, tool.parameters)
    cues = Interface((SchemaCue(CueKind.ENUM), SchemaCue(CueKind.REQUIRED), SchemaCue(CueKind.TYPE)))
    (shown,) = show_tools(cues, (compact_tool("setHeadlights"),))
    assert compact_signature(shown) == (
        "setHeadlights(mode: Type: string. Allowed values: on, off, auto.) Turn the headlights on or off. "
        "Required arguments: mode."
    )
    for task in some(40):
        for tool in show_tools(cues, task.all_tools):
            assert "\n" not in compact_signature(tool)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        *(("turns", value, RANGE) for value in ((0, 2), (3, 2), (2, 9), 2)),
        *(("calls_per_turn", value, RANGE) for value in ((1, 2, 3), (1, 9), (True, True))),
        *(("distractor_tools", (-1, 2), RANGE), ("distractor_tools", ("1", "2"), RANGE), ("state_size", None, RANGE)),
        *(("shown_tools", (9, 20), RANGE), ("shown_tools", (20, 61), RANGE)),
        *(("referring", 1, "it must be True or False"), ("varied", "yes", "it must be True or False")),
    ],
)
def test_a_bad_difficulty_is_one_clear_sentence(key: str, value: object, allowed: str) -> None:
    with pytest.raises(UserError, match=rf"^{key}: {re.escape(repr(value))} is not allowed; {allowed}\.$"):
        Difficulty(**{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (partial(generate, 0, split="tain"), "split: 'tain' is not known; did you mean 'train'"),
        (partial(generate, 0, category="bass"), "category: 'bass' is not known"),  # type: ignore[arg-type]
        *((partial(generate, seed), "seed: .* is not") for seed in (-1, 10**12, 1.0, "1", True)),  # type: ignore[arg-type]
        (partial(tasks, -1, split="train"), "n: -1 is not allowed"),
        (partial(tasks, 1, split="train", seed=-1), "seed: -1 is not allowed"),
        *((partial(find_task, f"toolworld_{name}"), ": ") for name in WRONG_IDS),
    ],
)
def test_other_bad_arguments_are_user_errors(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        make()


def test_ids_name_tasks_in_full() -> None:
    assert generate(123, category=Category.BASE).id == "toolworld_train_base_000123"
    pool = get_source("toolworld").pool("dev", difficulty="long")
    assert pool.task_id(5) == f"toolworld_dev_miss_func_000005_{LONG.code}"
    made = *tasks(8, split="dev"), *tasks(4, split="test", difficulty=LARGER), *tasks(4, split="train", seed=77)
    for task in (*made, *tasks(2, split="test", difficulty=LONG)):
        assert content(task_from_id(task.id)) == content(find_task(task.id)) == content(task)
    assert find_task("multi_turn_base_0") is get_task("base_0")
