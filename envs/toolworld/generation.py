"""Generates tasks from seeds: ids and draws. `compose.py` makes and checks each draw."""

import random
import re

from envs.errors import EnvironmentFault, UserError, check_known
from envs.sources import SEEDS
from envs.task import Category, Task
from envs.toolworld.compose import Composition, compose, fault_of
from envs.toolworld.difficulty import DEFAULT, Difficulty, difficulty_of
from envs.toolworld.words import SPLITS, UsedUp
from envs.toolworld.writing import CannotWriteTurn

PREFIX = "toolworld_"
BLOCK = 1_000_000
"""Tasks per seed of `tasks`."""

_ATTEMPTS = 200
"""Draws for one task. Of 3,000 default tasks five in six took one and none more than 8; the hardest took up to 21."""
_MAX_SEED = SEEDS * BLOCK
_ID = re.compile(rf"{PREFIX}({'|'.join(SPLITS)})_({'|'.join(Category)})_(\d{{6,12}})(?:_(t\d.*))?")


def generate(
    seed: int, *, split: str = "train", category: Category | None = None, difficulty: Difficulty = DEFAULT
) -> Task:
    """The task of that seed, split, category and difficulty: the same in every process.

    Without a category the four alternate with the seed. Raises `UserError` for a wrong argument.
    """
    return generate_composition(seed, split=split, category=category, difficulty=difficulty).task


def generate_composition(
    seed: int, *, split: str = "train", category: Category | None = None, difficulty: Difficulty = DEFAULT
) -> Composition:
    """As `generate`, with the requests behind the task."""
    name = task_name(seed, split=split, category=category, difficulty=difficulty)
    kind = _kind(seed, category)
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{name} {attempt}")
        try:
            made = compose(rng, name=name, split=split, category=kind, difficulty=difficulty)
        except (CannotWriteTurn, UsedUp):
            continue
        if fault_of(made) is None:
            return made
    raise EnvironmentFault(f"{name}: no sound task in {_ATTEMPTS} draws")


def task_name(
    seed: int, *, split: str = "train", category: Category | None = None, difficulty: Difficulty = DEFAULT
) -> str:
    """The id of the task that `generate` returns for these arguments, without generating it. Raises `UserError`."""
    if type(seed) is not int or not 0 <= seed < _MAX_SEED:
        raise UserError(f"seed: {seed!r:.80} is not allowed; it must be a whole number from 0 to {_MAX_SEED - 1}.")
    check_known("split", SPLITS, split)
    check_known("category", Category, category)
    name = f"{PREFIX}{split}_{_kind(seed, category)}_{seed:06d}"
    return name if difficulty == DEFAULT else f"{name}_{difficulty.code}"


def _kind(seed: int, category: Category | None) -> Category:
    return list(Category)[seed % len(Category)] if category is None else Category(category)


def tasks(n: int, *, split: str, seed: int = 0, difficulty: Difficulty = DEFAULT) -> tuple[Task, ...]:
    """`n` tasks, the four categories in turn. Different seeds give different tasks. Raises `UserError`."""
    if type(n) is not int or not 0 <= n <= BLOCK:
        raise UserError(f"n: {n!r:.80} is not allowed; it must be a whole number from 0 to {BLOCK}.")
    if type(seed) is not int or not 0 <= seed < SEEDS:
        raise UserError(f"seed: {seed!r:.80} is not allowed; it must be a whole number from 0 to {SEEDS - 1}.")
    return tuple(generate(seed * BLOCK + index, split=split, difficulty=difficulty) for index in range(n))


def task_from_id(name: str) -> Task:
    """The task of that id, generated again. Raises `UserError` for an id that `generate` never gives."""
    match = _ID.fullmatch(name)
    if match is not None:
        split, category, seed, code = match.groups()
        difficulty = difficulty_of(code)
        task = generate(int(seed), split=split, category=Category(category), difficulty=difficulty)
        if task.id == name:
            return task
    raise UserError(
        f"task: {name!r:.80} is not the id of a generated task; the form is {PREFIX}train_base_000123, with a split of "
        f"{', '.join(SPLITS)} and a category of {', '.join(Category)}."
    )
