"""The rows of a warm start: demonstrations by number, so that an interrupted one can be resumed."""

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
from seal_ray.grpo.packing import Row, added_tokens, make_row, row_of, sorted_by_tokens
from seal_ray.warm_start.plan import SEQUENCE, Source, WarmStart

_TOGETHER = 4
"""Consecutive demonstrations of one source and difficulty; in a finite source most have the same tools."""
_MOST_LEFT_OUT = 300
"""Consecutive demonstrations without a row that end a warm start."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one gradient step; `next` is the number of the first demonstration after them."""

    rows: tuple[Row, ...]
    next: int

    @property
    def tokens(self) -> int:
        """Tokens to compute: a prefix that rows share counts once."""
        return _tokens(self.rows)


def batches(plan: WarmStart, form: ChatFormat, *, context: int, begin: int = 0) -> Iterator[Batch]:
    """Endless batches from demonstration `begin` on, each with as many rows as fit, but at least one.

    A demonstration is left out if it is longer than `context` tokens, or makes all calls of a dev or test task in their
    order, as some of the benchmark do. Raises `UserError` if hardly any is left.
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
    """Rows of the dev splits; of the training split if a source has no dev split."""
    rows = (row for row in _rows(plan, form, context=context, begin=0, part="dev") if row is not None)
    return list(itertools.islice(rows, plan.held_out))


def _rows(plan: WarmStart, form: ChatFormat, *, context: int, begin: int, part: str = "train") -> Iterator[Row | None]:
    """The rows from a number on; None for one that is left out. Raises `UserError` if too many are."""
    rare = RARE_BEHAVIOURS if plan.demonstrations == "rare" else ()
    played = (encode(each, form) for each in demonstrations(plan.seed, split=part, rare=rare))
    seed = SEQUENCE * (1 if part == "train" else 2) + plan.seed
    proposed = (encode_proposal(each, form) for each in proposal_demonstrations(seed))
    left_out = 0
    for number in itertools.count():
        if random.Random(f"proposal {plan.seed} {part} {number}").random() < plan.proposals:
            row = _row(next(proposed), context=context)
        elif plan.demonstrations != "oracle":
            row = _row(next(played), context=context)
        elif number >= begin:
            sample = _oracle(plan, form, number, context=context, part=part)
            row = None if sample is None else row_of(sample, 1.0)
        if number >= begin:
            yield row
            left_out = 0 if row is not None else left_out + 1
            if left_out == _MOST_LEFT_OUT:
                raise UserError(f"solver.context: of {left_out} demonstrations on end none fits {context} tokens.")


def _oracle(plan: WarmStart, form: ChatFormat, number: int, *, context: int, part: str) -> Sample | None:
    """Demonstration `number`, of a source, difficulty and task that are drawn by the seed."""
    block, place = divmod(number, _TOGETHER)
    rng = random.Random(f"warm start {plan.seed} {part} {block}")
    (source,) = rng.choices(plan.sources, [each.share for each in plan.sources])
    tasks = source.tasks
    where = part if part in tasks.parts else "train"
    difficulty = rng.choice(plan.difficulties) if tasks.takes_difficulty else None
    pool = tasks.pool(where, difficulty=difficulty)
    if pool.size is None:
        drawn = number  # of a separate sequence, which no run plays
    else:
        drawn = _by_tools(source, where, difficulty)[(rng.randrange(pool.size) + place) % pool.size]
    task = tasks.task(pool.task_id(drawn, SEQUENCE + plan.seed))
    if where == "train":
        made = _calls(task)
        if any(is_within(calls, made) for calls in _held_out_calls(source)):
            return None
    return demonstrate(task, form, context=context)


def is_within(calls: Sequence[ToolCall], others: Iterable[ToolCall]) -> bool:
    """Whether all these calls are among the others, in the same order."""
    left = iter(others)
    return all(call in left for call in calls)


@functools.cache
def _held_out_calls(source: Source) -> Sequence[Sequence[ToolCall]]:
    """The calls of the dev and test tasks of a finite source, without empty ones."""
    tasks = source.tasks
    pools = [tasks.pool(part) for part in tasks.parts if part != "train"]
    held_out = (tasks.task(pool.task_id(number)) for pool in pools for number in range(pool.size or 0))
    return [calls for task in held_out if (calls := _calls(task))]


def _calls(task: Task) -> Sequence[ToolCall]:
    return [call for turn in task.turns for call in turn.ground_truth]


@functools.cache
def _by_tools(source: Source, part: str, difficulty: str | None) -> Sequence[int]:
    """The numbers of a finite pool, sorted by the tools of their tasks."""
    tasks = source.tasks
    pool = tasks.pool(part, difficulty=difficulty)
    shown = [[tool.name for tool in tasks.task(pool.task_id(number)).tools] for number in range(pool.size or 0)]
    return sorted(range(len(shown)), key=shown.__getitem__)


def _tokens(rows: Sequence[Row]) -> int:
    return sum(added_tokens(sorted_by_tokens(rows)))


def _row(example: Example, *, context: int) -> Row | None:
    if len(example.token_ids_T) > context:
        return None
    return make_row(example.token_ids_T, example.said_T, [0.0] * len(example.said_T), 1.0)
