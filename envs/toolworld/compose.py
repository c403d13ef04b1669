"""Composing a task: scenes are drawn, requests strung into turns, and one turn turned into what its category asks for.

Nothing is executed here; `generation.py` checks what is composed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from envs.bfcl.tools import DOCUMENT_FILES, tool_names
from envs.bfcl.world import Simulators
from envs.task import JSON, Category, Task, ToolCall, ToolDoc, Turn
from envs.toolworld.difficulty import Difficulty, Range
from envs.toolworld.documents import SUBSTITUTES, compact_tool
from envs.toolworld.phrases import omittable, request, supply
from envs.toolworld.scene import Beat, Intent, NotNow, Scene
from envs.toolworld.scenes import COMPANIONS, LARGE, MAIN
from envs.toolworld.words import Words

MAX_WORDS = 25
"""Words of one user turn, where it holds two calls at most."""
_WORDS_A_CALL = 12
"""Words for each call where a turn holds more."""
_TWO_SCENES = 0.25
"""Share of tasks that involve two simulators."""
_ONE_BEAT = 0.6
"""How often one request is sought that takes all of a turn's calls, before several are strung together."""
_UNOWNED_SLOTS = frozenset(
    {
        *("word", "unit", "lines", "shares", "order", "id", "user_id", "tweet", "ticket", "priority"),
        *("door", "fan", "mode", "speed", "part"),
    }
)
"""Slots with values that no split owns: fixed choices, ids, and words out of a text. `Words` draws all others."""
_BULKY = 0.8
"""How often a request of a long_context task is sought among those with long results; one request always is."""
LONGER = 5
"""State of a long_context task, as a multiple of the size drawn."""


class Stuck(Exception):
    """Nothing that fits can be added to the task at hand; it is drawn anew."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed task, with what its check needs to know.

    `beats` are the requests behind each turn that has ground truth, in order; `omitted` is the value that a miss_param
    task leaves out at first.
    """

    task: Task
    beats: tuple[tuple[Beat, ...], ...]
    omitted: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """One user turn before its category is applied: what is said, the beats behind it and, later, what was missing."""

    text: str
    beats: tuple[Beat, ...]
    supplied: str | None = None
    omitted: str | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for beat in self.beats for call in beat.calls)


def compose(rng: random.Random, *, name: str, split: str, category: Category, difficulty: Difficulty) -> Composition:
    """The task of id `name`, a function of the arguments. Raises `Stuck` or `UsedUp` where a draw leads nowhere."""
    words = Words(rng, split)
    long = category is Category.LONG_CONTEXT
    size = rng.randint(*difficulty.state_size) * (LONGER if long else 1)
    chosen = [rng.choice(LARGE if long else MAIN)]
    if rng.random() < _TWO_SCENES:
        chosen.append(rng.choice([kind for kind in COMPANIONS if kind not in chosen]))
    scenes = [kind(words, size, rich=long) for kind in chosen]
    configs = {scene.class_name: scene.start_config() for scene in scenes}
    classes = tuple(kind for kind in DOCUMENT_FILES if kind in configs)

    requests, special = _Writer(rng, scenes, difficulty).requests(category)
    hidden = None
    if category is Category.MISS_FUNC:
        choices = can_be_held_out(requests, special)
        if not choices:
            raise Stuck
        hidden = rng.choice(choices)
    return assemble(
        rng,
        *(name, category, requests, special),
        configs={kind: dict(configs[kind]) for kind in classes},
        hidden=hidden,
        distractors=difficulty.distractor_tools,
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
) -> Composition:
    """The task of these requests. The tool `hidden` is held out in request `special`, the first that needs it.

    `configs` are the start states by simulator, in the order of documents; `distractors` is drawn from.
    """
    classes = tuple(configs)
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
        tools=_tools(rng, requests, classes, hidden, distractors),
        classes=classes,
        setting=Simulators(classes, configs),
    )
    omitted = next((said.omitted for said in requests if said.omitted is not None), None)
    return Composition(task, tuple(said.beats for said in requests), omitted)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a turn should be like: `needs` hold for its first request, `likes` if that is possible.

    `omits` leaves a value of the first request out; `alone` wants one request to a turn, as far as the calls per turn
    allow, so that what cannot be done yet stands alone.
    """

    needs: tuple[Callable[[Beat], bool], ...] = ()
    likes: tuple[Callable[[Beat], bool], ...] = ()
    omits: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    """A beat in words, and the slot that they leave out."""

    beat: Beat
    text: str
    without: str | None


class _Writer:
    """Strings requests into turns, keeping the scenes' pictures up to date."""

    def __init__(self, rng: random.Random, scenes: Sequence[Scene], difficulty: Difficulty) -> None:
        self._rng = rng
        self._intents = [intent for scene in scenes for intent in scene.intents]
        self._used: Counter[Intent] = Counter()
        self._asked: set[str] = set()
        self._difficulty = difficulty

    def requests(self, category: Category) -> tuple[list[Request], int]:
        """The user's requests, one a turn, and the index of the one that makes the category. The first is anchored."""
        count = self._rng.randint(*self._difficulty.turns)
        special = self._rng.randrange(count)
        written: list[Request] = []
        for index in range(count):
            wish = self._wish(category, written) if index == special else _Wish()
            if category is Category.LONG_CONTEXT and self._rng.random() < _BULKY:
                wish = replace(wish, likes=(attrgetter("bulk"),))
            if index == 0:
                wish = replace(wish, needs=(*wish.needs, is_anchored))
            written.append(self._request(wish))
        return written, special

    def _wish(self, category: Category, written: Sequence[Request]) -> _Wish:
        """What the turn must be that makes the category."""
        if category is Category.LONG_CONTEXT:
            return _Wish(needs=(attrgetter("bulk"),))
        if category is Category.MISS_PARAM:
            return _Wish(needs=(lambda beat: bool(omittable(beat)),), omits=True, alone=True)
        if category is Category.MISS_FUNC:
            known = {call.name for said in written for call in said.calls}
            return _Wish(needs=(lambda beat: any(call.name not in known for call in beat.calls),), alone=True)
        return _Wish()

    def _request(self, wish: _Wish) -> Request:
        left = total = self._rng.randint(*self._difficulty.calls_per_turn)
        room = MAX_WORDS if total <= 2 else _WORDS_A_CALL * total
        said: list[_Said] = []
        while left:
            exact = bool(said) or wish.alone or self._rng.random() < _ONE_BEAT
            found = None
            if wish.likes and not said:
                found = self._fitting(left, room, (*wish.needs, *wish.likes), omits=wish.omits, exact=exact, first=True)
            if found is None:
                needs = () if said else wish.needs
                found = self._fitting(left, room, needs, omits=wish.omits, exact=exact, first=not said)
            if found is None:
                raise Stuck
            found.beat.effect()
            self._asked.add(calls_as_text(found.beat))
            said.append(found)
            left -= len(found.beat.calls)
            if wish.alone and total - left >= self._difficulty.calls_per_turn[0]:
                break
            room -= len(found.text.split())
        text, beats = " ".join(part.text for part in said), tuple(part.beat for part in said)
        slot = said[0].without
        if slot is None:
            return Request(text, beats)
        return Request(text, beats, supply(self._rng, beats[0], slot), beats[0].slots[slot])

    def _fitting(
        self, left: int, room: int, needs: Sequence[Callable[[Beat], bool]], *, omits: bool, exact: bool, first: bool
    ) -> _Said | None:
        """A beat of at most `left` calls (of just so many, if `exact` and there is one) in at most `room` words."""
        order = self._intents.copy()
        self._rng.shuffle(order)
        order.sort(key=lambda intent: self._used[intent])  # what has not been asked for yet comes first
        smaller: tuple[Intent, _Said] | None = None
        for intent in order:
            try:
                beat = intent()
            except NotNow:
                continue
            if len(beat.calls) > left or not all(need(beat) for need in needs):
                continue
            if calls_as_text(beat) in self._asked:  # asked again, it would tell nothing new
                continue
            too_small = exact and len(beat.calls) < left
            if too_small and smaller is not None:
                continue
            slot = self._rng.choice(omittable(beat)) if omits and first else None
            said = _Said(beat, request(self._rng, beat, first=first, without=slot), slot)
            if len(said.text.split()) > room:
                continue
            if too_small:
                smaller = (intent, said)
                continue
            self._used[intent] += 1
            return said
        if smaller is None:
            return None
        self._used[smaller[0]] += 1
        return smaller[1]


def calls_as_text(beat: Beat) -> str:
    """The beat's calls in one line, to tell it from others."""
    return "; ".join(str(call) for call in beat.calls)


def is_anchored(beat: Beat) -> bool:
    """Whether both the request and its calls hold a value that the split owns."""
    said = owned_values(beat)
    return any(text.lstrip("#@") in said for call in beat.calls for text in values_of(call))


def owned_values(beat: Beat) -> frozenset[str]:
    """What the request says that belongs to the split: the texts of its slots, without the signs of tags and names."""
    return frozenset(text.lstrip("#@") for slot, text in beat.slots.items() if slot not in _UNOWNED_SLOTS)


def values_of(call: ToolCall) -> list[str]:
    """A call's argument values as written, those in lists and dicts included."""
    values = []
    for value in call.arguments.values():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        values += [str(part) for part in parts]
    return values


def can_be_held_out(requests: Sequence[Request], index: int) -> list[str]:
    """Tools that request `index` needs, and none before it; nothing else that is needed can stand in for them."""
    helpers = {name for said in requests for beat in said.beats for name in beat.helpers}
    needed = {call.name for said in requests for call in said.calls} | helpers
    known = {call.name for said in requests[:index] for call in said.calls} | helpers
    new = dict.fromkeys(call.name for call in requests[index].calls if call.name not in known)
    return [name for name in new if not SUBSTITUTES.get(name, frozenset()) & needed]


def _tools(
    rng: random.Random,
    requests: Sequence[Request],
    classes: Sequence[str],
    hidden: str | None,
    distractors: Range,
) -> tuple[ToolDoc, ...]:
    """The tools shown from the start, in random order: needed ones, helpers and distractors."""
    beats = [beat for said in requests for beat in said.beats]
    needed = dict.fromkeys(name for beat in beats for name in (*(call.name for call in beat.calls), *beat.helpers))
    barred = set(needed) if hidden is None else set(needed) | SUBSTITUTES.get(hidden, frozenset())
    others = sorted(name for class_name in classes for name in tool_names(class_name) if name not in barred)
    count = min(rng.randint(*distractors), len(others))
    names = [name for name in needed if name != hidden] + rng.sample(others, count)
    rng.shuffle(names)
    return tuple(compact_tool(name) for name in names)
