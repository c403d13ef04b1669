"""Demonstrations for a task writer: made-up failure profiles, each with specifications that mostly fit it.

All specifications can be composed. Most have a category that is solved about half of the time, and more requests if
more is solved; the others are drawn from all. So the tiny base starts as a writer whose specifications have tasks.
"""

import itertools
import random
from collections.abc import Iterator

from envs.profile import FailureProfile
from envs.sources import GENERATED
from envs.specifications import Rejected, Specification, Writable, writable
from envs.task import Category
from policies.task_writer.base import Known
from policies.task_writer.llm import SOUGHT, messages_for, most_informative
from policies.tiny.proposals import ProposalDemonstration, draw_profile

_FITTING = 0.6
"""Share of specifications whose category and depth are drawn by success; the others are drawn from all."""
DEEPEST = 2
"""Largest number of the user's requests, as in the small presets (`task_writer.depth`)."""
_NOTHING_PLAYED = 0.1
"""Share of empty profiles, as in a run's first window."""
_SHOWN = 6
"""Largest number of shown specifications of earlier windows, as in a writer's prompt."""
_ONE_REQUEST = 0.25
"""Success up to which specifications that are drawn by success have one request."""
_DRAWS = 16
"""Specifications of one category and depth that are tried for one that can be composed."""


def specification_demonstrations(seed: int, *, answers: int = 1) -> Iterator[ProposalDemonstration]:
    """Endless demonstrations with so many answers, the same for a seed in every process."""
    source = writable(GENERATED)
    for number in itertools.count():
        rng = random.Random(f"specification demonstration {seed} {number}")
        profile = FailureProfile() if rng.random() < _NOTHING_PLAYED else draw_profile(rng)
        known = draw_known(rng)
        messages = messages_for(profile, grammar=source.specification_help, known=most_informative(known, _SHOWN))
        drawn = tuple(_draw(rng, source, profile).dump() for _ in range(answers))
        yield ProposalDemonstration(messages, drawn)


def draw_known(rng: random.Random) -> list[Known]:
    """Made-up specifications of earlier windows with their success: none, some, or as many as are shown."""
    source = writable(GENERATED)
    return [
        Known(source.draw(rng, depth=rng.randint(1, DEEPEST)), rng.randint(0, 8) / 8, 8)
        for _ in range(rng.choice((0, _SHOWN, rng.randint(1, _SHOWN))))
    ]


def _draw(rng: random.Random, source: Writable, profile: FailureProfile) -> Specification:
    """A specification that can be composed."""
    keys = sorted(key for key in profile.window.tallies if key.startswith("category/") and key.count("/") == 1)
    categories = [key.removeprefix("category/") for key in keys]
    rates = {each: profile.window.get(f"category/{each}").success_rate for each in categories}
    success = profile.window.get("all").success_rate
    numbers = itertools.count(1)
    while True:
        category, depth = rng.choice(list(Category)), rng.randint(1, DEEPEST)
        if categories and rng.random() < _FITTING:
            (name,) = rng.choices(categories, [1.05 - 2 * abs(rates[each] - SOUGHT) for each in categories])
            category, depth = Category(name), rng.randint(1, DEEPEST) if success > _ONE_REQUEST else 1
        for number in itertools.islice(numbers, _DRAWS):
            specification = source.draw(rng, category=category, depth=depth)
            if not isinstance(source.compose(specification, number), Rejected):
                return specification
