"""The rows of a warm start: demonstrations by their number, so that an interrupted one goes on where it was."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from envs.errors import UserError
from envs.task import Task, ToolCall
from policies.demonstrations import demonstrate
from policies.prompting import ChatFormat
from policies.sample import Sample
from policies.tiny.behaviours import RARE_BEHAVIOURS
from policies.tiny.demonstrations import demonstrations
from policies.tiny.encoding import Example, encode, encode_proposal
from policies.tiny.proposals import proposal_demonstrations
from seal_ray.grpo.prefixes import added_tokens, sorted_categories
from seal_ray.grpo.rows import Row, make_row, row_of
from seal_ray.warm_start.plan import SEQUENCE, Source, WarmStart

_TOGETHER = 4
"""So many demonstrations on end are of one source and difficulty; where the source has an end, their tasks mostly show
the same tools."""


_MOST_LEFT_OUT = 300
"""So many demonstrations on end that are left out end a warm start."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one gradient step; `next` is the number of the first demonstration that was not drawn for it."""

    rows: tuple[Row, ...]
    next: int

    @property
    def tokens(self) -> int:
        """Those that rows share from their first one on count once, as they are computed."""
        return _tokens(self.rows)


def batches(plan: WarmStart, form: ChatFormat, *, context: int, begin: int = 0) -> Iterator[Batch]:
    """The batches from demonstration `begin` on, without end: each of as many rows as fit, one at least.

    A demonstration that is longer than `context` tokens is left out, and one that makes all calls of a dev or test task
    in their order, as the benchmark has some. One that would not fit into its batch is drawn again for the next. Raises
    `UserError` where hardly any is left.
    """
    rows: list[Row] = []
    number = begin
    for row in _rows(plan, form, context=context, begin=begin):
        if row is not None and rows and _tokens([*rows, row]) > plan.batch_tokens:
            yield Batch(tuple(rows), number)
            rows = []
        rows += [] if row is None else [row]
        number += 1


def held_out_rows(plan: WarmStart, form: ChatFormat, *, context: int) -> list[Row]:
    """Rows of the dev parts; of the training part where a source has no dev part."""
    found = (row for row in _rows(plan, form, context=context, begin=0, part="dev") if row is not None)
    return list(itertools.islice(found, plan.held_out))


def _rows(plan: WarmStart, form: ChatFormat, *, context: int, begin: int, part: str = "train") -> Iterator[Row | None]:
    """The rows from a number on; None for each that is left out. Raises `UserError` where so many on end are."""
    played = None if plan.demonstrations == "oracle" else _behaviours(plan, form, context=context, part=part)
    proposed = _proposals(plan, form, context=context, part=part)
    left_out = 0
    for number in itertools.count():
        if random.Random(f"proposal {plan.seed} {part} {number}").random() < plan.proposals:
            row = next(proposed)
        elif played is not None:
            row = next(played)
        elif number >= begin:
            sample = _oracle(plan, form, number, context=context, part=part)
            row = None if sample is None else row_of(sample, 1.0)
        if number >= begin:
            yield row
            left_out = 0 if row is not None else left_out + 1
            if left_out == _MOST_LEFT_OUT:
                raise UserError(f"solver.context: of {left_out} demonstrations on end none fits {context} tokens.")


def _oracle(plan: WarmStart, form: ChatFormat, number: int, *, context: int, part: str) -> Sample | None:
    """Demonstration `number`: of the source, difficulty and task that it draws by chance, as a function of the seed."""
    block, place = divmod(number, _TOGETHER)
    rng = random.Random(f"warm start {plan.seed} {part} {block}")
    (source,) = rng.choices(plan.sources, [each.share for each in plan.sources])
    tasks = source.tasks
    where = part if part in tasks.parts else "train"
    difficulty = rng.choice(plan.difficulties) if tasks.takes_difficulty else None
    pool = tasks.pool(where, difficulty=difficulty)
    if pool.size is None:
        drawn = number  # of a sequence of its own for this: no run plays it
    else:
        drawn = _by_tools(source, where, difficulty)[(rng.randrange(pool.size) + place) % pool.size]
    task = tasks.task(pool.task_id(drawn, SEQUENCE + plan.seed))
    if where == "train":
        own = _calls(task)
        if any(is_within(calls, own) for calls in _held_out_calls(source)):
            return None
    return demonstrate(task, form, context=context)


def is_within(calls: Sequence[ToolCall], others: Iterable[ToolCall]) -> bool:
    """Whether all these calls are among the others, in the same order."""
    left = iter(others)
    return all(call in left for call in calls)


@functools.cache
def _held_out_calls(source: Source) -> Sequence[Sequence[ToolCall]]:
    """The calls of each dev and test task that has any; none of a source whose tasks have no end."""
    tasks = source.tasks
    pools = [tasks.pool(part) for part in tasks.parts if part != "train"]
    found = (tasks.task(pool.task_id(number)) for pool in pools for number in range(pool.size or 0))
    return [calls for task in found if (calls := _calls(task))]


def _calls(task: Task) -> Sequence[ToolCall]:
    return [call for turn in task.turns for call in turn.ground_truth]


@functools.cache
def _by_tools(source: Source, part: str, difficulty: str | None) -> Sequence[int]:
    """The numbers of a pool that has an end, such that tasks that show the same tools follow each other."""
    tasks = source.tasks
    pool = tasks.pool(part, difficulty=difficulty)
    shown = [[tool.name for tool in tasks.task(pool.task_id(number)).tools] for number in range(pool.size or 0)]
    return sorted(range(len(shown)), key=shown.__getitem__)


def _tokens(rows: Sequence[Row]) -> int:
    return sum(added_tokens(sorted_categories(rows)))


def _behaviours(plan: WarmStart, form: ChatFormat, *, context: int, part: str) -> Iterator[Row | None]:
    rare = RARE_BEHAVIOURS if plan.demonstrations == "rare" else ()
    for each in demonstrations(plan.seed, split=part, rare=rare):
        yield _row(encode(each, form), context=context)


def _proposals(plan: WarmStart, form: ChatFormat, *, context: int, part: str) -> Iterator[Row | None]:
    for each in proposal_demonstrations(SEQUENCE * (1 if part == "train" else 2) + plan.seed):
        yield _row(encode_proposal(each, form), context=context)


def _row(example: Example, *, context: int) -> Row | None:
    if len(example.token_ids_T) > context:
        return None
    return make_row(example.token_ids_T, example.said_T, [0.0] * len(example.said_T), 1.0)
