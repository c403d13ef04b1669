"""Variants of the benchmark's training tasks: the same story under other names, so that nothing can be memorised.

A variant has other names and numbers in its start config, user texts and ground truth, and shows only some of its
tools. A name can be exchanged if a user says it, the start config or a call contains it, and every call of the ground
truth returns the same result apart from the exchanged names. New names have the length of the old ones.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache

from envs.bfcl.splits import get_split
from envs.bfcl.tools import all_tools
from envs.bfcl.world import simulators_of
from envs.task import JSON, Task, ToolCall, ToolDoc
from envs.text import texts_in
from envs.verifier import prepare

Names = Mapping[str, str]
"""Old name → new name, both lower-case and equally long."""

_RUN = re.compile(r"[A-Za-z0-9]+")
_SHORTEST = 4
"""Length of a name; a shorter one may occur anywhere by chance."""
_ALONE = re.compile(r"(?<![\w'\"@#/.-])[a-z]+(?![\w'\"/]|\.\w)")
"""An ordinary word of a sentence: lower-case, not quoted, not part of a file name."""
_YEAR = re.compile(r"(19|20)\d\d")
_COMMON = 6
"""Scenarios in whose texts a word that is no name occurs."""
_STEM = 4
"""Equal first letters of two forms of one word, such as "archive" and "Archived"."""
_VALUE_WORDS = 3
"""Words of a value; a longer one is a sentence, and its words are no names."""
_RENAMED = 0.75
"""Share of names that a variant exchanges."""
_ALL_TOOLS = 0.25
"""Share of variants that show every tool; the others show the needed ones and up to half of the rest."""
_ATTEMPTS = 6
"""Draws of names for one variant; after them it keeps its names."""
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwz", "aeiou"


def variant(task: Task, seed: str, *, name: str) -> Task:
    """A training task under other names, as a function of the seed; `name` is its id.

    With one seed, all tasks of a scenario get the same names and tools.
    """
    shown = _some_tools(task, random.Random(f"tools {task.scenario} {seed}"))
    return replace(renamed(task, _drawn(task.scenario, seed)), id=name, tools=shown)


@lru_cache(maxsize=256)
def _drawn(scenario: str, seed: str) -> Names:
    """New names that keep all results in all tasks of a scenario; none if no draw does."""
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"names {scenario} {seed} {attempt}")
        names = {old: _new_name(old, rng) for old in _scenario_names(scenario) if rng.random() < _RENAMED}
        if all(_same_results(task, renamed(task, names), names) for task in _tasks(scenario)):
            return names
    return {}


def renamed(task: Task, names: Names) -> Task:
    """The task with names exchanged in its start config, user texts and ground truth."""
    setting = simulators_of(task)
    turns = []
    for turn in task.turns:
        user = None if turn.user is None else exchanged(turn.user, names)
        calls = (ToolCall(call.name, _exchanged(dict(call.arguments), names)) for call in turn.ground_truth)
        turns.append(replace(turn, user=user, ground_truth=tuple(calls)))
    config = _exchanged(dict(setting.initial_config), names)
    return replace(task, turns=tuple(turns), setting=replace(setting, initial_config=config))


def exchanged(text: str, names: Names) -> str:
    """The text with each whole name exchanged, in its case."""
    return _RUN.sub(lambda match: _in_case(names.get(match[0].lower(), match[0]), match[0]), text)


def _exchanged(value: JSON, names: Names) -> JSON:
    match value:
        case dict():
            return {exchanged(key, names): _exchanged(item, names) for key, item in value.items()}
        case list() | tuple():
            return [_exchanged(item, names) for item in value]
        case bool():
            return value
        case int():
            return int(names.get(str(value), value))
        case str():
            return exchanged(value, names)
    return value


def _in_case(new: str, old: str) -> str:
    return "".join(to.upper() if known.isupper() else to for to, known in zip(new, old, strict=True))


def _new_name(old: str, rng: random.Random) -> str:
    """Letters for letters, consonants and vowels in turn, and digits for digits; a number keeps its length."""
    start = rng.randrange(2)
    drawn = [
        rng.choice("123456789" if place == 0 else "0123456789")
        if known.isdigit()
        else rng.choice((_CONSONANTS, _VOWELS)[(start + place) % 2])
        for place, known in enumerate(old)
    ]
    return "".join(drawn)


@cache
def _scenario_names(scenario: str) -> tuple[str, ...]:
    """The names that can be exchanged in all tasks of a scenario, sorted."""
    names_of = {task: _names(task) for task in _tasks(scenario)}
    barred = {name for task, names in names_of.items() for name in names if not _can_be_exchanged(task, name)}
    return tuple(sorted(frozenset().union(*names_of.values()) - barred))


def _tasks(scenario: str) -> list[Task]:
    return [task for task in get_split().train if task.scenario == scenario]


def _names(task: Task) -> frozenset[str]:
    """Words that a user says, that the start config or a call contains, and that are no ordinary words."""
    texts = [turn.user for turn in task.turns if turn.user is not None]
    said = {run for text in texts for run in _runs(text)}
    config = simulators_of(task).initial_config
    values = [config, *(dict(call.arguments) for turn in task.turns for call in turn.ground_truth)]
    held = {run for text in _texts(values) if len(text.split()) <= _VALUE_WORDS for run in _runs(text)}
    words = _ordinary_words() | {word for text in texts for word in _ALONE.findall(text)}
    return frozenset(name for name in held & said - words - _called_before_said(task) if _is_name(name, said))


def _called_before_said(task: Task) -> frozenset[str]:
    """Words in calls before a user said them: looked up, or common knowledge such as a stock's symbol."""
    said: set[str] = set()
    early: set[str] = set()
    for turn in task.turns:
        said.update(_runs(turn.user or ""))
        called = {run for call in turn.ground_truth for text in _texts(dict(call.arguments)) for run in _runs(text)}
        early |= called - said
    return frozenset(early)


def _is_name(run: str, said: Iterable[str]) -> bool:
    if len(run) < _SHORTEST:
        return False
    if run.isdigit():
        return run[0] != "0" and not _YEAR.fullmatch(run)
    return not (run.isalpha() and any(other != run and other[:_STEM] == run[:_STEM] for other in said))


def _can_be_exchanged(task: Task, name: str) -> bool:
    """Whether results stay the same if only this name is exchanged."""
    names = {name: _new_name(name, random.Random(f"alone {name}"))}
    return _same_results(task, renamed(task, names), names)


def _same_results(task: Task, made: Task, names: Names) -> bool:
    """Whether every ground-truth call returns the same, apart from the exchanged names."""
    if len(set(names.values())) < len(names):
        return False
    return all(
        [exchanged(result, names) for result in old.results] == list(new.results)
        for old, new in zip(prepare(task).turns, prepare(made).turns, strict=True)
    )


def _some_tools(task: Task, rng: random.Random) -> tuple[ToolDoc, ...]:
    needed = {call.name for turn in task.turns for call in turn.ground_truth}
    others = [tool.name for tool in task.all_tools if tool.name not in needed]
    drawn = {name: rng.random() for name in sorted(all_tools())}
    below = 1.0 if rng.random() < _ALL_TOOLS else rng.uniform(0, 0.5)
    shown = needed | {name for name in others if drawn[name] < below}
    return tuple(tool for tool in task.tools if tool.name in shown)


@cache
def _ordinary_words() -> frozenset[str]:
    """Words of the tools' documents, and words in many scenarios' texts."""
    documented = {run for tool in all_tools().values() for text in _texts(tool.document) for run in _runs(text)}
    texts: dict[str, set[str]] = {}
    for task in get_split().train:
        texts.setdefault(task.scenario, set()).update(run for turn in task.turns for run in _runs(turn.user or ""))
    counts = Counter(run for runs in texts.values() for run in runs)
    return frozenset(documented | {run for run, count in counts.items() if count >= _COMMON})


def _runs(text: str) -> Iterator[str]:
    return (run.lower() for run in _RUN.findall(text))


def _texts(value: JSON) -> Iterator[str]:
    return texts_in(value, whole_numbers=True)
