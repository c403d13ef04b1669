"""Ten thousand completions that nobody meant, through each dialect and a dialogue: nothing raises and nothing leaks."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.profile import FailureProfile
from envs.task import JSON, Category, Parameter, ParameterType, Task, ToolCall

SOURCES = 12
SENSIBLE = 10
BATCH = 40
BATCHES = 250


def first_task(category: Category, *classes: str) -> Task:
    """The first task of the category that involves all the classes."""
    tasks = (task for task in load_tasks().values() if task.category is category)
    return next(task for task in tasks if set(classes) <= set(task.classes))


REFERENCES = (
    get_task("base_8"),  # posts a tweet without tags and mentions: their defaults are lists that Python shares
    first_task(Category.BASE, "MathAPI"),
    first_task(Category.LONG_CONTEXT, "GorillaFileSystem", "TicketAPI"),
    first_task(Category.LONG_CONTEXT, "TravelAPI", "MessageAPI"),
    get_task("long_context_174"),  # as base_8, and long_context's shared cards and bookings
    first_task(Category.LONG_CONTEXT, "VehicleControlAPI"),
    first_task(Category.MISS_FUNC, "TradingBot"),
    first_task(Category.MISS_PARAM, "TravelAPI"),
)
assert len({name for task in REFERENCES for name in task.classes}) == 8, "a simulator is missing"


def observations(task: Task) -> list[str]:
    """What an environment says to one who plays the ground truth, which must succeed."""
    dialogue = Dialogue(task)
    said = [dialogue.reset()[0]]
    for turn in task.turns:
        for completion in ([dialogue.dialect.render_calls(turn.ground_truth)] if turn.ground_truth else []) + ["Done."]:
            text, *_ = dialogue.step(completion)
            said.append(text)
    assert dialogue.success, task.id
    return said


CHARACTERS = st.characters()
"""Every code point: surrogates and controls too."""
WORDS = st.text(CHARACTERS, max_size=12)
NUMBERS = (
    st.integers(-3, 120) | st.integers() | st.sampled_from([10**18, -(10**9), 10**400, 2**31, 0.5, -0.0, 1e308, 5e-324])
    | st.floats(allow_nan=True, allow_infinity=True)
)  # fmt: skip
LEAVES = WORDS | NUMBERS | st.booleans() | st.none()
NESTED: SearchStrategy[JSON] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)
FRAGMENTS = (
    *("<tool_call>", "</tool_call>", "<tool_call>\n", "\n</tool_call>", "<|python_tag|>", "```", "`", "'", '"', "\\"),
    *("{", "}", "[", "]", "(", ")", ":", ",", ";", "=", "*", "**", ".", "-", "#", "\n", "\r", "\t", "\\u", "\\ud800"),
    *("\x00", "\x1b", "\u2028", "\ud83e", '{"name": ', '"arguments": {', '"parameters": {', "null", "true", "None"),
    *("NaN", "-Infinity", "1e999", "9" * 5_000, "lambda: ", "f'{", "b'", "0x", "1j", "...", "__import__('os')"),
    *("for x in ", " if ", "await ", "ls(", "cd(folder=", ":="),
)
SCRAPS = st.lists(st.sampled_from(FRAGMENTS) | WORDS, max_size=12).map("".join)


def leaves(value: JSON) -> list[JSON]:
    """The keys and scalars of a JSON value."""
    if isinstance(value, Mapping):
        return [*value, *(leaf for item in value.values() for leaf in leaves(item))]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


@cache
def known_values(task: Task) -> Sequence[JSON]:
    """The names, ids, texts and amounts that occur in the task's start and solution."""
    calls = [dict(made.arguments) for turn in task.turns for made in turn.ground_truth]
    return tuple(leaf for leaf in leaves([dict(simulators_of(task).initial_config), calls]) if leaf is not None)


def valued(kind: ParameterType, known: Sequence[JSON]) -> SearchStrategy[JSON]:
    """Values of the documented type, mostly; many that mean something to the task."""
    texts = st.sampled_from(["a", *(leaf for leaf in known if isinstance(leaf, str))])
    numbers = st.sampled_from([0, *(leaf for leaf in known if isinstance(leaf, int | float))])
    usual: dict[ParameterType, SearchStrategy[JSON]] = {
        ParameterType.STRING: texts | st.sampled_from(["economy", "USD", "2024-11-11", "on", "START"]) | WORDS,
        ParameterType.INTEGER: numbers | st.integers(-2, 20) | NUMBERS,
        ParameterType.FLOAT: numbers | NUMBERS,
        ParameterType.BOOLEAN: st.booleans(),
        ParameterType.ARRAY: st.lists(texts, max_size=4) | st.lists(numbers, max_size=4) | st.lists(LEAVES, max_size=4),
        ParameterType.DICT: st.dictionaries(st.sampled_from(["status", "priority", "title", "x"]), LEAVES, max_size=3),
    }
    return usual[kind]


@cache
def calls_of(task: Task) -> SearchStrategy[ToolCall]:
    """Calls of the task's tools, by their schema or with any values; and the calls that solve it."""
    strategies: list[SearchStrategy[ToolCall]] = [
        st.sampled_from([made for turn in task.turns for made in turn.ground_truth]),
        st.builds(
            ToolCall,
            st.sampled_from([tool.name for tool in task.all_tools]),
            st.dictionaries(WORDS, NESTED, max_size=2),
        ),
        st.builds(ToolCall, WORDS, st.dictionaries(WORDS, LEAVES, max_size=2)),
    ]
    known = known_values(task)
    for tool in task.all_tools:
        needed = {parameter.name: valued(parameter.type, known) for parameter in tool.parameters if parameter.required}
        rest = {
            parameter.name: valued(parameter.type, known) for parameter in tool.parameters if not parameter.required
        }
        anything = {parameter.name: NESTED for parameter in tool.parameters}
        of_the_tool = st.fixed_dictionaries(needed, optional=rest) | st.fixed_dictionaries({}, optional=anything)
        strategies.append(st.builds(ToolCall, st.just(tool.name), of_the_tool))
    return st.one_of(strategies)


def truncated(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randint(0, len(text))]


def spliced(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def repeated(rng: random.Random, text: str, other: str) -> str:
    start = rng.randint(0, len(text))
    end = rng.randint(start, len(text))
    return text[:end] + text[start:end] * rng.randint(1, 30) + text[end:]


def interrupted(rng: random.Random, text: str, other: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + "".join(rng.choices(FRAGMENTS, k=rng.randint(1, 4))) + text[place:]


def replaced(rng: random.Random, text: str, other: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + chr(rng.randrange(sys.maxunicode + 1)) + text[place + 1 :]


MUTATIONS: Sequence[Callable[[random.Random, str, str], str]] = (truncated, spliced, repeated, interrupted, replaced)


def mutated(rng: random.Random, texts: Sequence[str]) -> str:
    text, other = rng.choice(texts), rng.choice(texts)
    for mutate in rng.choices(MUTATIONS, k=rng.randint(1, 2)):
        text = mutate(rng, text, other)
    return text


def sensible_call(rng: random.Random, task: Task) -> ToolCall:
    """A call of one of the task's tools with values that mean something to the task, mostly of the right type."""
    known = known_values(task)
    texts, numbers = [v for v in known if isinstance(v, str)], [v for v in known if isinstance(v, int | float)] or [0]

    def value(parameter: Parameter) -> JSON:
        match parameter.type:
            case ParameterType.INTEGER | ParameterType.FLOAT:
                return rng.choice(numbers)
            case ParameterType.ARRAY:
                return rng.choices(texts if rng.random() < 0.7 else known, k=rng.randint(0, 3))
            case ParameterType.DICT:
                return {rng.choice(["status", "priority", "title"]): rng.choice(known)}
        return rng.choice(texts if rng.random() < 0.9 else known)

    tool = rng.choice(task.all_tools)
    return ToolCall(tool.name, {p.name: value(p) for p in tool.parameters if p.required or rng.random() < 0.3})


@dataclass(frozen=True)
class Batch:
    """Completions for one task. `opening`, played at the start of each episode, is empty or the ground truth."""

    task: Task
    opening: str
    completions: Sequence[str]


@cache
def batches(dialect: Dialect) -> SearchStrategy[Batch]:
    """Renderings of calls in the dialect and in others, scraps, and what comes of mutating them."""

    def batch(task: Task, opened: bool, rendered: list[str], odd: list[str], seed: int) -> Batch:
        rng = random.Random(seed)
        truth = [made for turn in task.turns for made in turn.ground_truth]
        sensible = [dialect.render_calls([sensible_call(rng, task)]) for _ in range(SENSIBLE)]
        drawn = [*rendered, *odd, *sensible]
        completions = drawn + [mutated(rng, drawn) for _ in range(BATCH - len(drawn))]
        rng.shuffle(completions)
        return Batch(task, dialect.render_calls(truth) if opened else "", completions)

    def of_task(task: Task) -> SearchStrategy[Batch]:
        calls = st.lists(calls_of(task), min_size=1, max_size=2)
        rendered = st.lists(calls.map(dialect.render_calls), min_size=SOURCES, max_size=SOURCES)
        others = st.sampled_from(list(DIALECTS.values()))
        foreign = st.builds(lambda other, made: other.render_calls(made), others, calls)
        odd = st.lists(foreign | SCRAPS | st.text(CHARACTERS, max_size=60), min_size=2, max_size=4)
        return st.builds(batch, st.just(task), st.booleans(), rendered, odd, st.integers(0, 2**32))

    return st.sampled_from(REFERENCES).flatmap(of_task)


@pytest.fixture(scope="module")
def recorded() -> dict[Task, list[str]]:
    """The references' observations before any fuzzing."""
    return {task: observations(task) for task in REFERENCES}


def play(dialogue: Dialogue, batch: Batch, profile: FailureProfile) -> int:
    """Plays the completions in a row, in as many episodes as they take; returns the number of calls they held."""
    calls = 0
    start(dialogue, batch)
    for text in batch.completions:
        observation, reward, terminated, truncated, info = dialogue.step(text)
        assert isinstance(observation, str)
        assert reward == float(dialogue.success)
        assert (terminated or truncated) == dialogue.over == ("diagnosis" in info)
        if dialogue.over:
            profile.add(dialogue.diagnosis, reward)
            calls += check_trace(dialogue)
            start(dialogue, batch)
    dialogue.truncate()
    profile.add(dialogue.diagnosis, 0.0)
    return calls + check_trace(dialogue)


def start(dialogue: Dialogue, batch: Batch) -> None:
    dialogue.reset()
    if batch.opening:
        dialogue.step(batch.opening)


def check_trace(dialogue: Dialogue) -> int:
    """What a trace holds can be written down; returns its number of calls."""
    records = [record for turn in dialogue.trace.turns for step in turn for record in step.calls]
    for record in records:
        assert json.dumps(record.call.to_dict())
        assert str(record.call).startswith(record.call.name)
        assert isinstance(record.result, str)
    return len(records)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_ten_thousand_completions(dialect: Dialect, recorded: dict[Task, list[str]]) -> None:
    played = calls = 0
    profile = FailureProfile()

    @settings(
        max_examples=BATCHES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(batch=batches(dialect), protocol=st.sampled_from(list(Protocol)))
    def fuzz(batch: Batch, protocol: Protocol) -> None:
        nonlocal played, calls
        calls += play(Dialogue(batch.task, dialect=dialect, protocol=protocol), batch, profile)
        for reference in {batch.task, REFERENCES[played // BATCH % len(REFERENCES)]}:
            assert observations(reference) == recorded[reference]
        played += len(batch.completions)

    fuzz()
    assert played >= BATCH * BATCHES == 10_000
    assert calls > 8_000, "the simulators were hardly fuzzed"
    assert {task: observations(task) for task in REFERENCES} == recorded
    assert FailureProfile.from_dict(json.loads(json.dumps(profile.to_dict()))).render() == profile.render()
