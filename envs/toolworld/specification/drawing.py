"""Specifications at random: a writer that knows the grammar, and nothing of what makes a good task."""

from __future__ import annotations

import random

from envs.task import Category
from envs.toolworld.specification.value import (
    MOST_INTENTS,
    MOST_TURNS,
    SCENES,
    STATE_SIZES,
    WITHHOLDING,
    TaskSpecification,
    Withheld,
    intents_of,
    slots_of,
)

_MAIN = tuple(name for name in SCENES if name not in ("arithmetic",))
_LARGE = tuple(name for name in _MAIN if name != "vehicle")
_TWO_SCENES = 0.25


def draw_specification(
    rng: random.Random, *, category: Category | None = None, depth: int | None = None
) -> TaskSpecification:
    """Any specification, of that category and depth if they are given: valid, and with a task or none, as it comes."""
    kind = category or rng.choice(list(Category))
    scenes = [rng.choice(_LARGE if kind is Category.LONG_CONTEXT else _MAIN)]
    if rng.random() < _TWO_SCENES:
        scenes.append(rng.choice([name for name in SCENES if name not in scenes]))
    known = [intent for scene in scenes for intent in intents_of(scene)]
    turns = [
        [rng.choice(known) for _ in range(min(MOST_INTENTS, rng.choice((1, 1, 1, 2, 2, 3))))]
        for _ in range(depth or rng.randint(1, MOST_TURNS))
    ]
    withheld = None
    if kind in WITHHOLDING:
        turn = rng.randrange(len(turns))
        if kind is Category.MISS_PARAM and not slots_of(turns[turn][0]):
            turns[turn][0] = rng.choice([intent for intent in known if slots_of(intent)])
        withheld = Withheld(turn)
        if kind is Category.MISS_PARAM and rng.random() < 0.5:
            withheld = Withheld(turn, rng.choice(slots_of(turns[turn][0])))
    return TaskSpecification(
        kind,
        tuple(scenes),
        tuple(map(tuple, turns)),
        distractors=rng.randint(0, 6),
        state_size=rng.randint(*STATE_SIZES),
        withheld=withheld,
    )
