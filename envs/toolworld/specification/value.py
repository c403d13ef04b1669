"""Task specifications as values: which ones are valid, and random ones."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

from envs.bfcl.tools import tool_names
from envs.errors import UserError, unknown_value
from envs.task import JSON, Category
from envs.toolworld.phrases import phrases
from envs.toolworld.scene import Scene
from envs.toolworld.scenes import COMPANIONS, LARGE, MAIN

SCENES: Mapping[str, type[Scene]] = {kind.__name__.lower(): kind for kind in COMPANIONS}
"""The scenes by name, in the order in which a specification lists them."""
_MAIN = tuple(name for name, kind in SCENES.items() if kind in MAIN)
_LARGE = tuple(name for name, kind in SCENES.items() if kind in LARGE)

MOST_SCENES = 2
MOST_TURNS = 6
MOST_INTENTS = 3
MOST_DISTRACTORS = 10
STATE_SIZES = (2, 8)
_SHOWN = 40
"""Escaped characters of a wrong name that a message shows."""

WITHHOLDING = frozenset({Category.MISS_FUNC, Category.MISS_PARAM})
"""The categories that withhold a tool or a value."""


@cache
def intents_of(scene: str) -> tuple[str, ...]:
    """The intents of a scene, as "files.show"."""
    return tuple(name for name in phrases() if name.startswith(f"{scene}."))


def slots_of(intent: str) -> tuple[str, ...]:
    """The values that a user can leave out of such a request."""
    return tuple(phrases()[intent].without)


@dataclass(frozen=True, slots=True)
class Withheld:
    """What turn `turn`, from 0, withholds and the next one gives.

    `what` is a tool in miss_func, a value in miss_param; None leaves the choice to the seed.
    """

    turn: int
    what: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSpecification:
    """A description of a task. Immutable, compared by value, and valid: raises `UserError` with the reason otherwise.

    It has the scenes, sorted as in `SCENES`; the intents of each user turn; the number of tools that nothing needs, as
    far as there are so many; and about the number of files, contacts, tickets or stocks at the start (times five in
    long_context).
    """

    category: Category
    scenes: tuple[str, ...]
    turns: tuple[tuple[str, ...], ...]
    distractors: int = 2
    state_size: int = 3
    withheld: Withheld | None = None

    def __post_init__(self) -> None:
        _check_name("category", self.category, tuple(map(str, Category)))
        object.__setattr__(self, "category", Category(self.category))
        self._check_scenes()
        object.__setattr__(self, "scenes", tuple(name for name in SCENES if name in self.scenes))
        self._check_turns()
        _check_number("distractors", self.distractors, 0, MOST_DISTRACTORS)
        _check_number("state", self.state_size, *STATE_SIZES)
        self._check_withheld()

    def _check_scenes(self) -> None:
        _check_length("scenes", self.scenes, MOST_SCENES)
        for name in self.scenes:
            _check_name("scenes", name, tuple(SCENES))
        if len(set(self.scenes)) < len(self.scenes):
            raise UserError(f"scenes: {self.scenes[0]!r} is named twice; name each scene once.")
        if set(_MAIN).isdisjoint(self.scenes):
            raise UserError(f"scenes: {self.scenes[0]!r} has no state of its own; it needs another scene beside it.")
        if self.category is Category.LONG_CONTEXT and set(_LARGE).isdisjoint(self.scenes):
            raise UserError(f"scenes: long_context needs one of {', '.join(sorted(_LARGE))}.")

    def _check_turns(self) -> None:
        _check_length("turns", self.turns, MOST_TURNS)
        for number, intents in enumerate(self.turns, start=1):
            _check_length(f"turns: turn {number}", intents, MOST_INTENTS)
            for name in intents:
                if type(name) is str and name in phrases():
                    if name.partition(".")[0] not in self.scenes:
                        raise UserError(f"turns: turn {number}: the scene of {name!r} is not one of the scenes.")
                else:
                    allowed = tuple(each for scene in self.scenes for each in intents_of(scene))
                    _check_name(f"turns: turn {number}", name, allowed)

    def _check_withheld(self) -> None:
        if self.withheld is None:
            if self.category in WITHHOLDING:
                raise UserError(f"withheld: {self.category} needs the turn in which something is withheld.")
            return
        if self.category not in WITHHOLDING:
            raise UserError(f"withheld: nothing is withheld in {self.category}; it must be null.")
        turn, what = self.withheld.turn, self.withheld.what
        _check_number("withheld: turn", turn, 0, len(self.turns) - 1)
        if self.category is Category.MISS_PARAM:
            allowed = slots_of(self.turns[turn][0])
            if not allowed:
                raise UserError(f"withheld: {self.turns[turn][0]} has no value that can be left out.")
        else:
            allowed = tuple(sorted(name for scene in self.scenes for name in tool_names(SCENES[scene].class_name)))
        if what is not None:
            _check_name("withheld: what", what, allowed)

    def to_dict(self) -> dict[str, JSON]:
        """The JSON form, with every key present."""
        withheld = self.withheld
        return {
            "category": str(self.category),
            "scenes": list(self.scenes),
            "turns": [list(intents) for intents in self.turns],
            "distractors": self.distractors,
            "state": self.state_size,
            "withheld": None if withheld is None else {"turn": withheld.turn, "what": withheld.what},
        }

    def dump(self) -> str:
        """The canonical JSON text, in one line."""
        return json.dumps(self.to_dict())

    @property
    def depth(self) -> int:
        """The number of the user's requests."""
        return len(self.turns)

    @property
    def features(self) -> frozenset[str]:
        """Scenes, intents, and "turn 1", "turn 2" and so on, for comparing specifications."""
        places = (f"turn {number}" for number in range(1, 1 + self.depth))
        return frozenset((*self.scenes, *self.intents, *places))

    @property
    def intents(self) -> tuple[str, ...]:
        return tuple(name for turn in self.turns for name in turn)

    @property
    def key(self) -> str:
        """16 hexadecimal digits, equal for equal specifications in every process."""
        return blake2b(self.dump().encode(), digest_size=8).hexdigest()


def help_text() -> str:
    """The instructions for a task writer: the keys of a specification and their values."""
    lines = [
        '"category": base, miss_func (a tool is withheld for one turn), miss_param (a value is), or long_context.',
        f'"scenes": one or two of {", ".join(SCENES)}.',
        f'"turns": 1 to {MOST_TURNS} lists of 1 to {MOST_INTENTS} intents, in the order in which the user asks:',
        *(f"{scene}: {', '.join(name.partition('.')[2] for name in intents_of(scene))}" for scene in SCENES),
        f'"distractors": 0 to {MOST_DISTRACTORS} tools that nothing needs.',
        f'"state": {STATE_SIZES[0]} to {STATE_SIZES[1]}, the size of the start state.',
        '"withheld": null, or in miss_func and miss_param {"turn": number from 0, "what": tool or value, or null}.',
    ]
    return "\n".join(lines)


def _check_name(key: str, value: object, allowed: Sequence[str]) -> None:
    if not isinstance(value, str):
        raise UserError(f"{key}: a {type(value).__name__} does not fit; it must be a name.")
    if value not in allowed:
        raise unknown_value(key, shown(value), allowed)


def shown(text: str) -> str:
    """The start of a model's text in printable ASCII, for a message."""
    return ascii(text[:_SHOWN])[1:-1][:_SHOWN]


def _check_number(key: str, value: object, low: int, high: int) -> None:
    if type(value) is not int:
        raise UserError(f"{key}: a {type(value).__name__} does not fit; it must be a whole number, {low} to {high}.")
    if not low <= value <= high:
        shown = value if abs(value) < 10**9 else "so large a number"
        raise UserError(f"{key}: {shown} is not allowed; it must be from {low} to {high}.")


def _check_length(key: str, value: Sequence[object], most: int) -> None:
    """Raises `UserError` for a list that is empty or has more items than `most`."""
    if not 1 <= len(value) <= most:
        raise UserError(f"{key}: {len(value)} are not allowed; it must be 1 to {most}.")


_TWO_SCENES = 0.25


def draw_specification(
    rng: random.Random, *, category: Category | None = None, depth: int | None = None
) -> TaskSpecification:
    """A random valid specification, of that category and depth if given. It may have no task."""
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
