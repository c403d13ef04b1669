"""A random writer's specifications, composed, checked and counted.

Each is rejected with a reason, or yields a task that is checked from outside: a dialogue plays its ground truth, and
again without each of its calls; it is compared with generated tasks of dev and test, and all of BFCL's; and it is
composed again from its id.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from envs.bfcl.tasks import load_tasks
from envs.specifications import Rejected
from envs.task import Task, ToolCall
from envs.toolworld import tasks
from envs.toolworld.compose import Composition
from envs.toolworld.specification import compose, read_specification, specified_task
from envs.toolworld.specification.composing import KnownTasks, specification_in
from envs.toolworld.specification.value import TaskSpecification, draw_specification
from envs.toolworld.words import owner
from envs.toolworld.writing import owned_values
from tests.envs.players import Action, play, play_ground_truth
from tests.envs.test_toolworld import content

USELESS = ToolCall("no_such_tool", {})
_EVALUATED = 200
"""Generated tasks of dev and of test that composed ones are compared with."""


@cache
def evaluation_tasks() -> tuple[Task, ...]:
    """Generated tasks of dev and test, written ones of test, and BFCL's."""
    written = [compose(random_specification(1, number), number, split="test") for number in range(60)]
    return (
        *load_tasks().values(),
        *(task for split in ("dev", "test") for task in tasks(_EVALUATED, split=split)),
        *(made.task for made in written if not isinstance(made, Rejected)),
    )


@cache
def known_tasks() -> KnownTasks:
    return KnownTasks(evaluation_tasks())


@cache
def _evaluated() -> tuple[frozenset[str], frozenset[str]]:
    """The user texts and the ground-truth calls of the evaluation tasks."""
    turns = [turn for task in evaluation_tasks() for turn in task.turns]
    texts = frozenset(turn.user for turn in turns if turn.user is not None)
    return texts, frozenset(json.dumps(call.to_dict()) for turn in turns for call in turn.ground_truth)


def random_specification(seed: int, number: int) -> TaskSpecification:
    return draw_specification(random.Random(f"specification {seed} {number}"))


def check_reason(reason: str) -> None:
    """Asserts that it is one sentence."""
    assert re.fullmatch(r"[a-z]\w*: .{10,300}[.?]", reason), reason
    assert reason.isprintable()


def check_task(made: Composition) -> None:
    """Asserts that the ground truth passes, and that no turn passes without each of its calls."""
    task = made.task
    assert play_ground_truth(task).success, task.id
    for index, turn in enumerate(task.turns):
        for place in range(len(turn.ground_truth)):
            actions = _actions(task)
            actions[index] = [(*turn.ground_truth[:place], *turn.ground_truth[place + 1 :]) or (USELESS,)]
            assert not play(task, actions).turn_diagnoses[index].verdict.passed, (
                f"{task.id}: {turn.ground_truth[place]}"
            )


def _actions(task: Task) -> list[Sequence[Action]]:
    return [[turn.ground_truth] if turn.ground_truth else [] for turn in task.turns]


def check_apart(made: Composition) -> None:
    """Asserts that the task shares nothing with an evaluation task, and that its own values are of its split."""
    values = {value for beats in made.beats for beat in beats for value in owned_values(beat)}
    assert {owner(value) for value in values} == {"train"}, made.task.id
    texts, calls = _evaluated()
    for turn in made.task.turns:
        for call in turn.ground_truth:
            written = json.dumps(call.to_dict())
            held = any(value in re.findall(r"[^\s\"\[\],{}:#@]+|(?<=\")[^\"#@]+", written) for value in values)
            assert not (held and written in calls), f"{made.task.id}: {call}"
        if turn.user in texts:
            assert not any(re.search(rf"\b{re.escape(value)}\b", turn.user or "") for value in values), made.task.id


def check_again(made: Composition, specification: TaskSpecification) -> None:
    """Asserts that its id gives the task again."""
    assert specification_in(made.task.id) == specification
    assert content(specified_task(made.task.id)) == content(made.task)


@dataclass
class Counted:
    """What specifications came to: composed tasks by category, and rejections by reason."""

    composed: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, specification: TaskSpecification, seed: int) -> None:
        """Composes a specification, checks what comes of it, and counts it."""
        assert read_specification(specification.dump()) == specification
        made = compose(specification, seed)
        if not isinstance(made, Rejected):
            shared = known_tasks().shared(made)
            if shared is not None:
                made = Rejected(f"specification: its task shares {shared.partition('(')[0]}… with another.")
        if isinstance(made, Rejected):
            check_reason(made.reason)
            self.reasons[re.sub(r"turn \d+|the call \w+|\w+\.\w+|not need \w+", "…", made.reason)] += 1
            return
        check_task(made)
        check_apart(made)
        check_again(made, specification)
        self.composed[specification.category] += 1
