"""Writes the requests of a task: beats are chosen one by one, put into words and joined to turns."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from envs.task import Category, ToolCall
from envs.toolworld.difficulty import Difficulty
from envs.toolworld.phrases import dressed, omittable, request, supply
from envs.toolworld.scene import Beat, Intent, NotNow, Scene
from envs.toolworld.scenes import bridges

_UNOWNED_SLOTS = frozenset(
    {
        *("word", "unit", "lines", "shares", "order", "id", "user_id", "tweet", "ticket", "priority"),
        *("door", "fan", "mode", "speed", "part"),
    }
)
"""Slots with values that no split owns: fixed choices, ids, and words of a text. `Words` draws all others."""


@dataclass(frozen=True, slots=True)
class Request:
    """One user turn before its category is applied: its text, its beats and, later, the missing value."""

    text: str
    beats: tuple[Beat, ...]
    supplied: str | None = None
    omitted: str | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for beat in self.beats for call in beat.calls)


def calls_as_text(beat: Beat) -> str:
    """The beat's calls in one line, to tell beats apart."""
    return "; ".join(str(call) for call in beat.calls)


def is_owned_by_split(beat: Beat) -> bool:
    """Whether both the request and its calls contain a value that the split owns."""
    said = owned_values(beat)
    return any(text.lstrip("#@") in said for call in beat.calls for text in values_of(call))


def owned_values(beat: Beat) -> frozenset[str]:
    """The values in a request that the split owns, without the signs of tags and names."""
    return frozenset(text.lstrip("#@") for slot, text in beat.slots.items() if slot not in _UNOWNED_SLOTS)


def values_of(call: ToolCall) -> list[str]:
    """A call's argument values as text, also those in lists and dicts."""
    values = []
    for value in call.arguments.values():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        values += [str(part) for part in parts]
    return values


MAX_WORDS = 25
"""Words of one user turn with at most two calls."""
_WORDS_A_CALL = 12
"""Words per call if a turn has more."""
_VARIED = 2
"""Factor on both in the varied register, without the text around a turn."""
_ONE_BEAT = 0.6
"""Probability of looking first for one request that takes all of a turn's calls."""
_RECALLING = 0.6
"""Probability that a turn begins with a request that needs a value of an earlier result, if there is one."""
_REFERRING = 0.4
"""Otherwise, probability of a request that reveals a value, or has a call that needs the result before it."""
_BRIDGES = 3
"""Weight of a request over two simulators."""
_BULKY = 0.8
"""Probability that a request of a long_context task has a long result; one request always does."""


class CannotWriteTurn(Exception):
    """Nothing that fits can be added to the task; it is drawn again."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """Requirements of a turn: conditions on its first request, and conditions that are dropped if they cannot be met.

    `omits` leaves a value of the first request out; an `alone` turn has one request, as far as the calls allow.
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


class TurnWriter:
    """Joins requests to turns, and keeps the scenes' pictures up to date."""

    def __init__(self, rng: random.Random, scenes: Sequence[Scene], difficulty: Difficulty) -> None:
        self._rng = rng
        self._intents = [intent for scene in scenes for intent in scene.intents]
        self._referring = self._recalling = frozenset[Intent]()
        if difficulty.referring:
            recalling = [intent for scene in scenes for intent in scene.recalling]
            referring = [*(intent for scene in scenes for intent in scene.referring), *bridges(scenes) * _BRIDGES]
            self._recalling, self._referring = frozenset(recalling), frozenset(referring)
            self._intents += [intent for intent in (*recalling, *referring) if intent not in self._intents]
        self._used: Counter[Intent] = Counter()
        self._asked: set[str] = set()
        self._made: set[str] = set()
        """The calls of the turn at hand."""
        self._difficulty = difficulty

    def requests(self, category: Category) -> tuple[list[Request], int]:
        """The user's requests, one per turn, and the index of the one that makes the category.

        The first contains a value that the split owns.
        """
        count = self._rng.randint(*self._difficulty.turns)
        special = self._rng.randrange(count)
        written: list[Request] = []
        for index in range(count):
            wish = self._wish(category, written) if index == special else _Wish()
            if category is Category.LONG_CONTEXT and self._rng.random() < _BULKY:
                wish = replace(wish, likes=(attrgetter("bulk"),))
            if index == 0:
                wish = replace(wish, needs=(*wish.needs, is_owned_by_split))
            written.append(self._request(wish, opens=index == 0))
        return written, special

    def _wish(self, category: Category, written: Sequence[Request]) -> _Wish:
        """The requirements of the turn that makes the category."""
        if category is Category.LONG_CONTEXT:
            return _Wish(needs=(attrgetter("bulk"),))
        if category is Category.MISS_PARAM:
            return _Wish(needs=(lambda beat: bool(omittable(beat)),), omits=True, alone=True)
        if category is Category.MISS_FUNC:
            known = {call.name for said in written for call in said.calls}
            return _Wish(needs=(lambda beat: any(call.name not in known for call in beat.calls),), alone=True)
        return _Wish()

    def _request(self, wish: _Wish, *, opens: bool) -> Request:
        left = total = self._rng.randint(*self._difficulty.calls_per_turn)
        room = (MAX_WORDS if total <= 2 else _WORDS_A_CALL * total) * (_VARIED if self._difficulty.varied else 1)
        said: list[_Said] = []
        self._made.clear()
        while left:
            exact = bool(said) or wish.alone or self._rng.random() < _ONE_BEAT
            draft = None
            if wish.likes and not said:
                draft = self._fitting(left, room, (*wish.needs, *wish.likes), omits=wish.omits, exact=exact, first=True)
            if draft is None:
                needs = () if said else wish.needs
                draft = self._fitting(left, room, needs, omits=wish.omits, exact=exact, first=not said)
            if draft is None:
                raise CannotWriteTurn
            draft.beat.effect()
            self._asked.add(calls_as_text(draft.beat))
            self._made.update(map(str, draft.beat.calls))
            said.append(draft)
            left -= len(draft.beat.calls)
            if wish.alone and total - left >= self._difficulty.calls_per_turn[0]:
                break
            room -= len(draft.text.split())
        return self._in_words(said, opens=opens)

    def _in_words(self, said: Sequence[_Said], *, opens: bool) -> Request:
        varied = self._difficulty.varied
        text, beats = " ".join(part.text for part in said), tuple(part.beat for part in said)
        if varied:
            text = dressed(self._rng, text, scene=beats[0].intent.partition(".")[0], opens=opens)
        slot = said[0].without
        if slot is None:
            return Request(text, beats)
        return Request(text, beats, supply(self._rng, beats[0], slot, varied=varied), beats[0].slots[slot])

    def _in_order(self, *, first: bool) -> list[Intent]:
        """The intents in the order in which they are tried, for the first request of a turn or a later one."""
        order = self._intents.copy()
        self._rng.shuffle(order)
        order.sort(key=lambda intent: self._used[intent])  # requests that were not used yet come first
        if self._referring:
            preferred = self._recalling if first and self._rng.random() < _RECALLING else self._referring
            if preferred is self._recalling or self._rng.random() < _REFERRING:
                order.sort(key=lambda intent: intent not in preferred)
        return order

    def _fitting(
        self, left: int, room: int, needs: Sequence[Callable[[Beat], bool]], *, omits: bool, exact: bool, first: bool
    ) -> _Said | None:
        """A beat of at most `left` calls (exactly so many, if `exact` and possible) in at most `room` words."""
        smaller: tuple[Intent, _Said] | None = None
        for intent in self._in_order(first=first):
            try:
                beat = intent()
            except NotNow:
                continue
            if len(beat.calls) > left or not all(need(beat) for need in needs):
                continue
            # Requests that refer to results may not repeat a call of their turn.
            repeated = self._referring and self._made.intersection(map(str, beat.calls))
            if repeated or calls_as_text(beat) in self._asked:
                continue
            too_small = exact and len(beat.calls) < left
            if too_small and smaller is not None:
                continue
            slot = self._rng.choice(omittable(beat)) if omits and first else None
            varied = self._difficulty.varied
            said = _Said(beat, request(self._rng, beat, first=first, without=slot, varied=varied), slot)
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
