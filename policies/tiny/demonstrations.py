"""Demonstrations: generated tasks played with the rights and wrongs of `behaviours.py`, in the real environment.

Results are the simulators'. A demonstration without wrongs that fails is dropped.
"""

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from envs.dialects import DIALECTS
from envs.dialogue import Dialogue, Message, Protocol
from envs.interface import Interface
from envs.interface.value import CueKind, RecoveryLevel, SchemaCue
from envs.task import JSON, Category, ToolCall, ToolDoc
from policies.demonstrations import DONE, NO_TOOL, WHICH
from policies.tiny import behaviours
from policies.tiny.behaviours import RATES, SOLVER_WORDINGS, Behaviour, Rates, Wordings
from policies.tiny.world import DEFAULT, Beat, Composition, Difficulty, generate_composition

DIALECT = DIALECTS["qwen"]
"""The tiny base's dialect."""
FAILED = "That failed."
"""The end of a failed turn; all demonstrations share the other ends."""
LISTED, NOT_LISTED = "yes", "no"
"""The words of a plan for a tool that is listed, and for one that is not."""
PRECONDITIONS = frozenset(
    {"trading_login", "message_login", "authenticate_twitter", "ticket_login", "lockDoors", "pressBrakePedal"}
)
"""Tools without which later calls fail."""
_PLAIN = 0.3
"""Share of demonstrations on the plain interface."""
_ABSTENTION = 0.6
"""Share of tasks whose category needs abstaining or asking, which are harder to learn."""
_PRECONDITION = 0.5
"""Share of tasks that are drawn again until a call needs a precondition, for more recoveries."""
TASKS_A_DRAW = 8
"""Largest number of tasks that are drawn for one demonstration."""
_TWO = Difficulty(turns=(1, 2), calls_per_turn=(2, 2))
_MIXED = (DEFAULT, DEFAULT, Difficulty(turns=(1, 2)), Difficulty(turns=(1, 3), distractor_tools=(0, 5)), _TWO, _TWO)
_SHORT = (DEFAULT, Difficulty(turns=(1, 1)), Difficulty(turns=(1, 2)), _TWO, _TWO)


def split_plan(completion: str) -> tuple[str, str]:
    """A completion's plan with its line end (empty if it has none), and the rest."""
    line, end, rest = completion.partition("\n")
    return (line + end, rest) if end and not line.startswith("<") else ("", completion)


@dataclass(frozen=True, slots=True)
class Decision:
    """A behaviour done right or wrong, in the completion of that number."""

    completion: int
    behaviour: Behaviour
    right: bool


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A dialogue: the opening, then completions and the environment's answers.

    `answers[i]` follows `completions[i]` and is empty after the last.
    """

    task: str
    interface: Interface
    tools: tuple[ToolDoc, ...]
    opening: tuple[Message, ...]
    completions: tuple[str, ...]
    answers: tuple[tuple[Message, ...], ...]
    success: bool
    decisions: tuple[Decision, ...]


def demonstrations(
    seed: int,
    *,
    split: str = "train",
    short: bool = False,
    rare: Collection[str] = (),
    wordings: Wordings = SOLVER_WORDINGS,
) -> Iterator[Demonstration]:
    """Endless demonstrations, the same for a seed in every process.

    `short` draws tasks of one or two requests more often. `rare` behaviours are never right without their cues.
    """
    table = {each: replace(rates, plain=0.0) if each in rare else rates for each, rates in RATES.items()}
    for number in itertools.count():
        rng = random.Random(f"demonstration {split} {seed} {number}")
        composition = _draw_task(rng, seed, number, split, _SHORT if short else _MIXED)
        interface, rates = _draw_shown(rng, table, wordings)
        protocol = rng.choice([Protocol.OFFICIAL, Protocol.SEAL])
        demonstration = _DemonstrationPlayer(rng, composition, interface, rates, protocol).play()
        if demonstration is not None:
            yield demonstration


def _draw_task(
    rng: random.Random, seed: int, number: int, split: str, difficulties: Sequence[Difficulty]
) -> Composition:
    hard = (Category.MISS_FUNC, Category.MISS_PARAM)
    kinds = hard if rng.random() < _ABSTENTION else (Category.BASE, Category.BASE, Category.LONG_CONTEXT)
    # These seeds are far from the small seeds of runs and evaluations.
    first = (900_000 + seed) * 1_000_000 + number * TASKS_A_DRAW
    category, difficulty = rng.choice(kinds), rng.choice(difficulties)
    wanted = rng.random() < _PRECONDITION
    for draw in range(TASKS_A_DRAW):
        drawn = generate_composition(first + draw, split=split, category=category, difficulty=difficulty)
        if not wanted or any(call.name in PRECONDITIONS for turn in drawn.task.turns for call in turn.ground_truth):
            break
    return drawn


def draw_interface(rng: random.Random, wordings: Wordings) -> Interface:
    """An interface of demonstrations."""
    return _draw_shown(rng, RATES, wordings)[0]


def _draw_shown(
    rng: random.Random, table: Mapping[Behaviour, Rates], wordings: Wordings
) -> tuple[Interface, Mapping[Behaviour, float]]:
    """An interface, and the rates of the behaviours under it."""
    plain = {behaviour: each.plain for behaviour, each in table.items()}
    rates = dict(plain)
    if rng.random() < _PLAIN:
        return Interface.plain(), rates
    guidelines: list[str] = []
    for behaviour, each in table.items():
        if rng.random() < 0.5:
            guidelines.append(rng.choice(wordings.behaviours[behaviour]))
            rates[behaviour] = each.guided
    if rng.random() < 0.15:
        guidelines.append(rng.choice(wordings.both_abstentions))
        for behaviour in (Behaviour.ABSTAIN, Behaviour.ASK):
            rates[behaviour] = table[behaviour].guided
    helpful = set(guidelines)
    if rng.random() < 0.2:
        guidelines.append(rng.choice(wordings.idle))
    cues: list[SchemaCue] = []
    for kind in CueKind:
        if rng.random() < 0.08:
            cues.append(SchemaCue(kind))
            if kind is CueKind.REQUIRED:
                rates = _raised(rates, {b: each.required for b, each in table.items()})
    recovery = rng.choice(list(RecoveryLevel)) if rng.random() < 0.25 else RecoveryLevel.NONE
    if recovery is not RecoveryLevel.NONE:
        rates = _raised(rates, {b: each.feedback for b, each in table.items()})
    if rng.random() < 0.1:
        guidelines = [text for text in guidelines if text not in helpful]
        guidelines.append(rng.choice(wordings.harmful))
        rates = dict(plain)
        for behaviour in (Behaviour.ABSTAIN, Behaviour.ASK):
            rates[behaviour] = min(behaviours.HARMFUL_RATE, plain[behaviour])
        cues = []
    rng.shuffle(guidelines)
    return Interface(tuple(cues), recovery, tuple(guidelines)), rates


def _raised(rates: Mapping[Behaviour, float], least: Mapping[Behaviour, float | None]) -> dict[Behaviour, float]:
    return {behaviour: max(rate, least[behaviour] or 0.0) for behaviour, rate in rates.items()}


@dataclass
class _DemonstrationPlayer:
    """Plays one task through the environment, with decisions by the rates."""

    rng: random.Random
    composition: Composition
    interface: Interface
    rates: Mapping[Behaviour, float]
    protocol: Protocol
    completions: list[str] = field(default_factory=list)
    answers: list[tuple[Message, ...]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    _planned: str = ""

    def play(self) -> Demonstration | None:
        task = self.composition.task
        self._dialogue = Dialogue(task, dialect=DIALECT, interface=self.interface, protocol=self.protocol)
        _, info = self._dialogue.reset()
        opening, tools = info["messages"], info["tools"]
        beats = iter(self.composition.beats)
        believes_done = False
        for index, turn in enumerate(task.turns):
            if not turn.ground_truth:
                believes_done = self._unanswerable(index)
            else:
                self._turn(next(beats), believes_done=believes_done)
                believes_done = False
        if not self._dialogue.over:
            return None
        success = self._dialogue.success
        if not success and all(decision.right for decision in self.decisions):
            return None
        return Demonstration(
            task.id,
            self.interface,
            tools,
            opening,
            tuple(self.completions),
            tuple(self.answers),
            success,
            tuple(each for each in self.decisions if each.completion < len(self.completions)),
        )

    def _decide(self, behaviour: Behaviour) -> bool:
        right = self.rng.random() < self.rates[behaviour]
        self.decisions.append(Decision(len(self.completions), behaviour, right))
        return right

    def _unanswerable(self, index: int) -> bool:
        """A turn in which nothing should be called. Returns whether the solver believes to have done the request."""
        task = self.composition.task
        calls = task.turns[index + 1].ground_truth
        missing_tool = task.category is Category.MISS_FUNC
        self._plan(calls)
        if self._decide(Behaviour.ABSTAIN if missing_tool else Behaviour.ASK):
            self._say(NO_TOOL if missing_tool else WHICH)
            return False
        omitted = self.composition.omitted
        if omitted is not None:
            guess = _guess(self.rng, omitted)
            calls = tuple(ToolCall(call.name, _replaced(call.arguments, omitted, guess)) for call in calls)
        done = all(self._call(call) for call in calls)
        self._say(DONE if done else FAILED)
        return True

    def _turn(self, beats: Sequence[Beat], *, believes_done: bool) -> None:
        if believes_done:
            self._say(DONE)
            return
        count = next((n for n in range(1, len(beats)) if not self._decide(Behaviour.SECOND_REQUEST)), len(beats))
        self._plan([call for beat in beats[:count] for call in beat.calls])
        for beat in beats[:count]:
            if not self._fulfil(beat.calls):
                self._say(FAILED)
                return
        self._say(DONE)

    def _fulfil(self, calls: Sequence[ToolCall]) -> bool:
        """Makes the calls of one request. Returns whether the solver believes it done."""
        count = next((place for place, call in enumerate(calls) if call.name not in PRECONDITIONS), 0)
        before, rest = calls[:count], list(calls[count:])
        if not before or self.rng.random() >= behaviours.RASH:
            return all(self._call(call) for call in calls)
        for place, call in enumerate(rest):
            if self._call(call):
                continue
            if not self._decide(Behaviour.RECOVER):
                return False
            return all(self._call(again) for again in (*before, *rest[place:]))
        return True

    def _plan(self, calls: Sequence[ToolCall]) -> None:
        """Starts the next completion with the tools that a turn needs, and whether they are listed.

        The solver must find that out to abstain, which is far easier for a small model if it has just written the name:
        its copying heads look it up.
        """
        so_far = () if self._dialogue.over else self.composition.task.turns[: self._dialogue.turn + 1]
        shown = (*self.composition.task.tools, *(t for turn in so_far for t in turn.revealed))
        listed = {tool.name for tool in shown}
        names = dict.fromkeys(call.name for call in calls)
        self._planned = " ".join(f"{name} {LISTED if name in listed else NOT_LISTED}" for name in names) + "\n"

    def _call(self, call: ToolCall) -> bool:
        """Makes one call and returns whether it succeeded."""
        turn = self._dialogue.turn
        self._say(DIALECT.render_calls((call,)))
        return not self._dialogue.trace.turns[turn][-1].calls[0].is_error

    def _say(self, completion: str) -> None:
        if self._dialogue.over:
            return
        completion, self._planned = self._planned + completion, ""
        _, _, _, _, info = self._dialogue.step(completion)
        self.completions.append(completion)
        self.answers.append(info["messages"])


def _guess(rng: random.Random, omitted: str) -> str:
    """A random value of the same form: letters for letters of their kind, digits for digits."""

    def alike(character: str) -> str:
        if character.islower():
            return rng.choice("aeiou" if character in "aeiou" else "bdfgklmnprst")
        if character.isupper():
            return rng.choice("BDFGKLMNPRST")
        return rng.choice("123456789") if character.isdigit() else character

    return "".join(map(alike, omitted))


def _replaced(value: JSON, old: str, new: str) -> JSON:
    if isinstance(value, Mapping):
        return {key: _replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, old, new) for inner in value]
    if isinstance(value, bool) or str(value).lstrip("#@") != old.lstrip("#@"):
        return value
    return type(value)(new)
