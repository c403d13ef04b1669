"""Composes a task: draws scenes, writes requests, makes one turn what the category needs, and checks the result.

`fault_of` checks that the ground truth executes and that every one of its calls is needed.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.bfcl.tools import DOCUMENT_FILES
from envs.bfcl.world import Simulators
from envs.task import JSON, Category, Task, Turn
from envs.toolworld.difficulty import Difficulty, Range
from envs.toolworld.scene import Beat
from envs.toolworld.scenes import COMPANIONS, LARGE, MAIN
from envs.toolworld.shown_tools import can_be_held_out, compact_tool, further_scenes, some_tools, whole_tools
from envs.toolworld.words import Words
from envs.toolworld.writing import CannotWriteTurn, Request, TurnWriter
from envs.verifier import Prepared, differing, prepare

_TWO_SCENES = 0.25
"""Share of tasks that involve two simulators."""
_TWO_WHOLE_SCENES = 0.6
"""The same if simulators are shown whole; two thirds of the benchmark's tasks involve two."""
LONGER = 5
"""Factor on the state size of a long_context task."""


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed task, with what its check needs.

    `beats` are the requests behind each turn with ground truth, in order; `omitted` is the value that a miss_param task
    leaves out at first.
    """

    task: Task
    beats: tuple[tuple[Beat, ...], ...]
    omitted: str | None


def compose(rng: random.Random, *, name: str, split: str, category: Category, difficulty: Difficulty) -> Composition:
    """The task with id `name`, as a function of the arguments. Raises `CannotWriteTurn` or `UsedUp`."""
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
        kinds = further_scenes(rng, chosen, hidden, whole)
        further = [kind(words, rng.randint(*difficulty.state_size)) for kind in kinds]
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
    """The task of these requests, of which `special` (an index) makes the category and first needs the tool `hidden`.

    `configs` has start states by simulator, in the order of documents, `distractors` the range of the number of tools
    that nothing needs. With `shown`, simulators are shown whole, up to so many tools.
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
    task = Task(name, category, name, tuple(turns), tools, classes, Simulators(classes, configs))
    omitted = next((said.omitted for said in requests if said.omitted is not None), None)
    return Composition(task, tuple(said.beats for said in requests), omitted)


_MAX_RESULTS = 2_000
"""Characters of a task's results, so that a dialogue fits into about 1,000 tokens of a small vocabulary."""
_MAX_RESULTS_A_CALL = 350
"""The same per call, if a task has more calls than by default."""


def fault_of(made: Composition) -> str | None:
    """Executes the ground truth. Returns a phrase with the first fault of the task, if there is one.

    No call may fail, every call must be needed for its turn to pass, results must not be too long, a value that is left
    out must not appear before it is supplied, and one that is to be read must appear in a result.
    """
    task, ready = made.task, prepare(made.task)
    results = [text for truth in ready.turns for text in truth.results]
    if any(any(truth.errors) for truth in ready.turns):
        return "a call of its ground truth fails"
    if sum(map(len, results)) > max(_MAX_RESULTS, _MAX_RESULTS_A_CALL * len(results)):
        return "its results are too long"
    if not _can_be_read(made, ready):
        return "a value that is to be read stands in no result"
    seen: set[str] = set()
    told = ""
    for index, (turn, truth) in enumerate(zip(task.turns, ready.turns, strict=True)):
        told = f"{told}\n{turn.user or ''}"
        if not turn.ground_truth and made.omitted is not None and mentions(told, made.omitted):
            return "the value that is withheld was told before"
        for place, text in enumerate(truth.results):
            # A result that has not appeared before this turn would be missing without its call.
            if text in seen and _can_go_without(task, ready, index, place):
                return f"the call {turn.ground_truth[place].name} is not needed"
        seen.update(truth.results)
        told = "\n".join((told, *truth.results))
    return None


def _can_be_read(made: Composition, ready: Prepared) -> bool:
    """Whether each value that a request reads appears in a result of its turn, or of one before it."""
    answered = [truth.results for turn, truth in zip(made.task.turns, ready.turns, strict=True) if turn.ground_truth]
    shown = ""
    for beats, results in zip(made.beats, answered, strict=True):
        shown = "\n".join((shown, *results))
        if not all(mentions(shown, value) for beat in beats for value in beat.reads):
            return False
    return True


def _can_go_without(task: Task, ready: Prepared, index: int, place: int) -> bool:
    """Whether turn `index` ends in the ground truth's state without its call at `place`."""
    world = ready.start()
    made = [call for turn in task.turns[:index] for call in turn.ground_truth]
    turn = task.turns[index].ground_truth
    for call in (*made, *turn[:place], *turn[place + 1 :]):
        world.execute(call)
    return not differing(world.state(), ready.turns[index].state)


def mentions(text: str, value: str) -> bool:
    """Whether the text contains the value as a word or number of its own."""
    return value in text and re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text) is not None
