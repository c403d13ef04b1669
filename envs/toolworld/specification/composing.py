"""The task of a specification and a seed, composed and executed, or the reason why there is none.

A value is a task's own if a slot of one of its requests contains it and a split owns it: a name, a title, a message, a
number of the lexicon. A composed task **shares** something with another task if the two have in common

* a user text that contains one of the composed task's own values, or all user texts in order;
* a ground-truth call with one of these values, or all ground-truth calls in order.

Other texts and calls ("List the files here.", `ls()`) may occur in any task.
"""

import random
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter

from envs.bfcl.tools import DOCUMENT_FILES
from envs.errors import UserError, check_known
from envs.specifications import Rejected
from envs.task import Category, Task
from envs.toolworld.compose import LONGER, Composition, assemble, fault_of, mentions
from envs.toolworld.phrases import request, supply
from envs.toolworld.scene import Beat, NotNow, Scene
from envs.toolworld.shown_tools import can_be_held_out
from envs.toolworld.specification.json_form import code_of, specification_of
from envs.toolworld.specification.value import SCENES, TaskSpecification, slots_of
from envs.toolworld.words import SPLITS, UsedUp, Words
from envs.toolworld.writing import Request, calls_as_text, is_owned_by_split, owned_values, values_of

PREFIX = "toolworld_written_"
"""Prefix of every id of a composed task; its split follows."""

_ATTEMPTS = 24
"""Draws for one task: start states and values. More draws find a task for few further specifications."""
_PROPOSALS = 12
"""Proposals of one intent, which may return another one by chance."""
_MOST_SEED = 10**12
_ID = re.compile(rf"{PREFIX}({'|'.join(SPLITS)})_({'|'.join(Category)})_(\d{{6,12}})_(.*)")


class _Misfit(Exception):
    """A draw without a task, and how far it came: (stage, turn)."""

    def __init__(self, reason: str, *way: int) -> None:
        super().__init__(reason)
        self.way = way


def task_name(specification: TaskSpecification, seed: int, *, split: str = "train") -> str:
    """The id of the task that `compose` returns; it contains specification and seed. Raises `UserError`."""
    if type(seed) is not int or not 0 <= seed < _MOST_SEED:
        raise UserError(f"seed: {seed!r:.80} is not allowed; it must be a whole number from 0 to {_MOST_SEED - 1}.")
    check_known("split", SPLITS, split)
    return f"{PREFIX}{split}_{specification.category}_{seed:06d}_{code_of(specification)}"


def compose(specification: TaskSpecification, seed: int, *, split: str = "train") -> Composition | Rejected:
    """The first sound task of several draws, as a function of the arguments: the same in every process.

    Its ground truth was executed, no call of it fails, and each is needed for its turn to pass. If no draw is sound,
    the reason is that of the draw that came furthest.
    """
    name = task_name(specification, seed, split=split)
    furthest = _Misfit("the lexicon has no values left", -1)
    for attempt in range(_ATTEMPTS):
        try:
            return _composed(specification, random.Random(f"{name} {attempt}"), name, split)
        except UsedUp:
            continue
        except _Misfit as misfit:
            furthest = max(furthest, misfit, key=attrgetter("way"))
    return Rejected(f"specification: {furthest}; {_ATTEMPTS} draws were tried.")


def specified_task(name: str) -> Task:
    """The task of that id, composed again. Raises `UserError` for an id that `compose` never gives."""
    match = _ID.fullmatch(name)
    if match is None:
        raise UserError(f"task: {name!r:.80} is not the id of a task of a specification.")
    split, category, seed, code = match.groups()
    specification = specification_of(Category(category), code)
    if task_name(specification, int(seed), split=split) != name:
        raise UserError(f"task: {name!r:.80} is not written as ids of specifications are.")
    made = compose(specification, int(seed), split=split)
    if isinstance(made, Rejected):
        raise UserError(f"task: {name!r:.80} cannot be composed; {made.reason}")
    return made.task


def specification_in(task_id: str) -> TaskSpecification | None:
    """The specification in a task's id, if any. Raises `UserError` if it cannot be read."""
    match = _ID.fullmatch(task_id)
    return None if match is None else specification_of(Category(match[2]), match[4])


def _composed(specification: TaskSpecification, rng: random.Random, name: str, split: str) -> Composition:
    long = specification.category is Category.LONG_CONTEXT
    words = Words(rng, split)
    size = specification.state_size * (LONGER if long else 1)
    scenes = {scene: SCENES[scene](words, size, rich=long) for scene in specification.scenes}
    configs = {scene.class_name: dict(scene.start_config()) for scene in scenes.values()}
    requests = _requests(specification, rng, scenes)
    beats = [beat for said in requests for beat in said.beats]
    if long and not any(beat.bulk for beat in beats):
        raise _Misfit("long_context needs an intent whose result grows with the state, as a list or a whole file", 1)
    if not any(map(is_owned_by_split, beats)):
        raise _Misfit("no request names a value of its own, such as a file or a person", 1)
    special = None if specification.withheld is None else specification.withheld.turn
    made = assemble(
        rng,
        *(name, specification.category, requests, special),
        configs={kind: configs[kind] for kind in DOCUMENT_FILES if kind in configs},
        hidden=_hidden(specification, rng, requests),
        distractors=(specification.distractors, specification.distractors),
    )
    fault = fault_of(made)
    if fault is not None:
        raise _Misfit(fault, 3)
    return made


def _requests(specification: TaskSpecification, rng: random.Random, scenes: dict[str, Scene]) -> list[Request]:
    """The requests turn by turn, each intent in the state after those before it."""
    written: list[Request] = []
    asked: set[str] = set()
    withheld = specification.withheld
    for turn, intents in enumerate(specification.turns):
        slot = None
        if specification.category is Category.MISS_PARAM and withheld is not None and withheld.turn == turn:
            slot = withheld.what or rng.choice(slots_of(intents[0]))  # the value that the first request leaves out
        said: list[tuple[Beat, str]] = []
        for intent in intents:
            beat = _proposed(scenes, intent, turn)
            if calls_as_text(beat) in asked:
                raise _Misfit(f"turn {turn + 1}: {intent} would be asked for twice with the same values", 0, turn)
            first = not said
            said.append((beat, request(rng, beat, first=first, without=slot if first else None)))
            beat.effect()
            asked.add(calls_as_text(beat))
        text, beats = " ".join(text for _, text in said), tuple(beat for beat, _ in said)
        if slot is None:
            written.append(Request(text, beats))
        else:
            written.append(Request(text, beats, supply(rng, beats[0], slot), beats[0].slots[slot]))
    return written


def _hidden(specification: TaskSpecification, rng: random.Random, requests: list[Request]) -> str | None:
    """The tool that miss_func holds out."""
    withheld = specification.withheld
    if specification.category is not Category.MISS_FUNC or withheld is None:
        return None
    choices = can_be_held_out(requests, withheld.turn)
    if withheld.what is None and choices:
        return rng.choice(choices)
    if withheld.what is None:
        raise _Misfit(f"turn {withheld.turn + 1} needs no tool that can be withheld", 2)
    if withheld.what not in choices:
        raise _Misfit(
            f"turn {withheld.turn + 1} does not need {withheld.what}, or not for the first time, or another needed "
            "tool can do its work",
            2,
        )
    return withheld.what


def _proposed(scenes: dict[str, Scene], intent: str, turn: int) -> Beat:
    scene, _, name = intent.partition(".")
    propose = scenes[scene].proposing(name)
    for _ in range(_PROPOSALS):
        try:
            beat = propose()
        except NotNow:
            continue
        if beat.intent == intent:
            return beat
    raise _Misfit(f"turn {turn + 1}: {intent} makes no sense in the state at hand", 0, turn)


class KnownTasks:
    """Tasks that composed ones are compared with."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._texts: set[str] = set()
        self._calls: set[str] = set()
        self._stories: set[tuple[str, ...]] = set()
        for task in tasks:
            self._texts.update(_texts(task))
            self._calls.update(_calls(task))
            self._stories.update(_stories(task))

    def shared(self, made: Composition) -> str | None:
        """A phrase that names the shared texts or values of the task and one of these; None if there are none."""
        own = {value for beats in made.beats for beat in beats for value in owned_values(beat)}
        for text in _texts(made.task):
            if text in self._texts and any(mentions(text, value) for value in own):
                return f"the user text {text!r:.80}"
        for turn in made.task.turns:
            for call in turn.ground_truth:
                if str(call) in self._calls and any(value.lstrip("#@") in own for value in values_of(call)):
                    return f"the call {call!s:.80}"
        return self.story(made.task)

    def story(self, task: Task) -> str | None:
        """ "all user texts" or "all calls" if one of these tasks has the same; else None."""
        texts, calls = _stories(task)
        return "all user texts" if texts in self._stories else "all calls" if calls in self._stories else None


def _texts(task: Task) -> Iterator[str]:
    return (turn.user for turn in task.turns if turn.user is not None)


def _calls(task: Task) -> Iterator[str]:
    return (str(call) for turn in task.turns for call in turn.ground_truth)


def _stories(task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("user", *_texts(task)), ("calls", *_calls(task))
