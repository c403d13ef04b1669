"""Demonstrations for supervised learning: a task's ground truth, played and tokenised like a solver's dialogue."""

from collections.abc import Sequence

from envs.dialogue import Protocol
from envs.interface import Interface
from envs.task import Category, Task, ToolCall
from envs.text import leaves
from envs.verifier import prepare
from policies.prompting import ChatFormat
from policies.solver import TokenDialogue
from policies.trajectory import Sample

DONE, NO_TOOL, WHICH = "Done.", "No listed tool can do that.", "Please tell me what is missing."
"""The end of a turn: it is done, a tool is missing, or a value is missing."""
_SHORTEST = 3
"""Shortest value (characters) that must have been read before it is written; shorter ones are everywhere."""


def demonstrate(task: Task, form: ChatFormat, *, context: int) -> Sample | None:
    """The task solved by its ground truth, on the plain interface and by the benchmark's rules.

    The solver's tokens have the mask True, and log-probs and versions of 0. A call that needs a new value from a result
    of the calls before it comes in a later completion. A turn ends in a short sentence; a turn without ground truth has
    only that. Returns None if the dialogue is longer than `context` tokens, and raises `ValueError` if the ground truth
    does not pass.
    """
    played = TokenDialogue(task, form, interface=Interface.plain(), protocol=Protocol.OFFICIAL, context=context)
    truths = prepare(task).turns
    read, seen = 0, ""
    while not played.dialogue.over:
        number = played.dialogue.turn
        turn = task.turns[number]
        made = sum(len(step.calls) for step in played.dialogue.trace.turns[number])
        seen += form.text(played.record.token_ids_T[read:])
        read = len(played)
        calls = _ready(turn.ground_truth[made:], truths[number].results[made:], seen)
        missing = NO_TOOL if task.category == Category.MISS_FUNC else WHICH
        ending = DONE if turn.ground_truth else missing
        tokens = form.completion(form.dialect.render_calls(calls) if calls else ending)
        if len(played) + len(tokens) > context:
            return None
        played.say(tokens, [0.0] * len(tokens), [0] * len(tokens))
        played.act()
    if not played.dialogue.success:
        raise ValueError(f"the ground truth of {task.id} does not pass")
    return played.record.sample(0)


def _ready(calls: Sequence[ToolCall], results: Sequence[str], seen: str) -> list[ToolCall]:
    """The first calls, up to one that takes a new value from a result of those before it."""
    for place, call in enumerate(calls):
        texts = (str(leaf) for leaf in leaves(dict(call.arguments)) if not isinstance(leaf, bool | None))
        new = [text for text in texts if len(text) >= _SHORTEST and text not in seen]
        if any(value in result for value in new for result in results[:place]):
            return list(calls[:place])
    return list(calls)
