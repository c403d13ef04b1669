"""Demonstrations of the task writer's part: made-up failure profiles, each with a specification that mostly fits it.

All of them can be composed. Most are of a category that is solved about half of the time, and the longer the more is
solved; the others are drawn from all. The tiny base thus starts as a writer whose specifications have tasks, prefers
what fits, and leaves something to learn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from envs.dialogue import Message
from envs.profile import FailureProfile
from envs.sources import GENERATED
from envs.specifications import Rejected, Specification, Writable, writable
from policies.tiny.proposals import draw_profile
from policies.writer.base import Known
from policies.writer.specification_text import SOUGHT, messages_for, telling

_FITTING = 0.6
"""Share of specifications whose category and depth are drawn for what is solved; the others are drawn from all."""
_DEEPEST = 3
"""The user's requests at most."""
_SHOWN = 4
"""Specifications of earlier windows that are shown at most."""


@dataclass(frozen=True, slots=True)
class SpecificationDemonstration:
    """What the writer reads, and what it answers."""

    messages: tuple[Message, ...]
    answer: str


def specification_demonstrations(seed: int) -> Iterator[SpecificationDemonstration]:
    """Demonstrations without end, the same for a seed in every process."""
    source = writable(GENERATED)
    number = 0
    while True:
        rng = random.Random(f"specification demonstration {seed} {number}")
        number += 1
        profile = draw_profile(rng)
        known = [
            Known(source.draw(rng, depth=rng.randint(1, _DEEPEST)), rng.randint(0, 8) / 8, 8)
            for _ in range(rng.choice((0, 0, rng.randint(1, _SHOWN))))
        ]
        messages = messages_for(profile, grammar=source.specification_help, known=telling(known, _SHOWN))
        yield SpecificationDemonstration(messages, _draw(rng, source, profile).dump())


def _draw(rng: random.Random, source: Writable, profile: FailureProfile) -> Specification:
    """A specification that can be composed."""
    keys = sorted(key for key in profile.window.tallies if key.startswith("category/") and key.count("/") == 1)
    categories = [key.removeprefix("category/") for key in keys]
    rates = {each: profile.window.get(f"category/{each}").success_rate for each in categories}
    success = profile.window.get("all").success_rate
    number = 0
    while True:
        category, depth = None, rng.randint(1, _DEEPEST)
        if rng.random() < _FITTING:
            (category,) = rng.choices(categories, [1.05 - 2 * abs(rates[each] - SOUGHT) for each in categories])
            depth = 1 + (success > 0.25) * rng.randint(0, 1) + (success > SOUGHT) * rng.randint(0, 1)
        specification = source.draw(rng, category=category, depth=depth)
        if not isinstance(source.compose(specification, number), Rejected):
            return specification
        number += 1
