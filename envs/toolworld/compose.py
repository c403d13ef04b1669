"""Composing a task: scenes are drawn, requests written, and one turn turned into what its category asks for.

Nothing is executed here; `generation.py` checks what is composed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.bfcl.tools import DOCUMENT_FILES
from envs.bfcl.world import Simulators
from envs.task import JSON, Category, Task, Turn
from envs.toolworld.difficulty import Difficulty, Range
from envs.toolworld.documents import compact_tool
from envs.toolworld.requests import Request, can_be_held_out
from envs.toolworld.scene import Beat
from envs.toolworld.scenes import COMPANIONS, LARGE, MAIN
from envs.toolworld.showing import further_scenes, some_tools, whole_tools
from envs.toolworld.words import Words
from envs.toolworld.writing import CannotWriteTurn, TurnWriter

_TWO_SCENES = 0.25
"""Share of tasks that involve two simulators."""
_TWO_WHOLE_SCENES = 0.6
"""The same where simulators are shown whole; two thirds of the benchmark's tasks involve two."""
LONGER = 5
"""State of a long_context task, as a multiple of the size drawn."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed task, with what its check needs to know.

    `beats` are the requests behind each turn that has ground truth, in order; `omitted` is the value that a miss_param
    task leaves out at first.
    """

    task: Task
    beats: tuple[tuple[Beat, ...], ...]
    omitted: str | None


def compose(rng: random.Random, *, name: str, split: str, category: Category, difficulty: Difficulty) -> Composition:
    """The task of id `name`, a function of the arguments. Raises `CannotWriteTurn` or `UsedUp`."""
    words = Words(rng, split, apart=difficulty.apart)
    long = category is Category.LONG_CONTEXT
    size = rng.randint(*difficulty.state_size) * (LONGER if long else 1)
    chosen = [rng.choice(LARGE if long else MAIN)]
    whole = difficulty.shown_tools
    if rng.random() < (_TWO_SCENES if whole is None else _TWO_WHOLE_SCENES):
        chosen.append(rng.choice([kind for kind in COMPANIONS if kind not in chosen]))
    scenes = [kind(words, size, rich=long) for kind in chosen]
    configs = {scene.class_name: scene.start_config() for scene in scenes}
    requests, special = TurnWriter(rng, scenes, difficulty).requests(category)
    hidden = None
    if category is Category.MISS_FUNC:
        choices = can_be_held_out(requests, special)
        if not choices:
            raise CannotWriteTurn
        hidden = rng.choice(choices)
    if whole is not None:
        further = [
            kind(words, rng.randint(*difficulty.state_size)) for kind in further_scenes(rng, chosen, hidden, whole)
        ]
        configs |= {scene.class_name: scene.start_config() for scene in further}
    return assemble(
        rng,
        *(name, category, requests, special),
        configs={kind: dict(configs[kind]) for kind in DOCUMENT_FILES if kind in configs},
        hidden=hidden,
        distractors=difficulty.distractor_tools,
        shown=whole,
    )


def assemble(
    rng: random.Random,
    name: str,
    category: Category,
    requests: Sequence[Request],
    special: int | None,
    *,
    configs: Mapping[str, Mapping[str, JSON]],
    hidden: str | None,
    distractors: Range,
    shown: Range | None = None,
) -> Composition:
    """The task of these requests. The tool `hidden` is held out in request `special`, the first that needs it.

    `configs` are the start states by simulator, in the order of documents; `distractors` is drawn from. With `shown`
    the simulators are shown whole.
    """
    classes = tuple(configs)
    if shown is None:
        tools = some_tools(rng, requests, classes, hidden, distractors)
    else:
        tools = whole_tools(rng, requests, classes, hidden, shown[1])
    turns: list[Turn] = []
    for index, said in enumerate(requests):
        if index == special and hidden is not None:
            turns += [Turn(said.text, ()), Turn(None, said.calls, revealed=(compact_tool(hidden),))]
        elif said.supplied is not None:
            turns += [Turn(said.text, ()), Turn(said.supplied, said.calls)]
        else:
            turns.append(Turn(said.text, said.calls))
    task = Task(
        id=name,
        category=category,
        scenario=name,
        turns=tuple(turns),
        tools=tools,
        classes=classes,
        setting=Simulators(classes, configs),
    )
    omitted = next((said.omitted for said in requests if said.omitted is not None), None)
    return Composition(task, tuple(said.beats for said in requests), omitted)
