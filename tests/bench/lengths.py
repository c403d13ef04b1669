"""`python -m tests.bench.lengths`: how long the benchmark's dialogues are, and those of the toolworld.

Prints a table of them, and how long a long task takes to generate.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from envs.bfcl.tasks import load_tasks
from envs.task import Task, ToolCall
from envs.toolworld import LONG, Difficulty, tasks
from envs.toolworld.compose import mentions
from envs.toolworld.words import SPLITS
from envs.toolworld.writing import values_of
from envs.verifier import prepare

MOST_STEPS = 20
"""Steps of a dialogue under the training protocol."""


class Read(Enum):
    """Where a call has a value from that a result says before the user does."""

    NOWHERE = 0
    SAME_TURN = 1
    EARLIER_TURN = 2


@dataclass(frozen=True, slots=True)
class Lengths:
    """Counts over many tasks; each list has one entry for each task, turn or call."""

    tools: list[int]
    turns: list[int]
    requests: list[int]
    calls: list[int]
    words: list[int]
    read: list[Read]
    beyond: float

    def share(self, *kinds: Read) -> float:
        """Share of calls with a value that a result says first, one of an earlier turn or of the same."""
        return sum(read in kinds for read in self.read) / len(self.read)


def lengths(made: Sequence[Task]) -> Lengths:
    answered = [[turn for turn in task.turns if turn.ground_truth] for task in made]
    totals = [sum(len(turn.ground_truth) for turn in turns) for turns in answered]
    return Lengths(
        tools=[len(task.tools) for task in made],
        turns=[len(task.turns) for task in made],
        requests=[len(turns) for turns in answered],
        calls=[len(turn.ground_truth) for turns in answered for turn in turns],
        words=[len(turn.user.split()) for task in made for turn in task.turns if turn.user],
        read=[read for task in made for _, read in reading(task)],
        beyond=sum(total > MOST_STEPS for total in totals) / len(made),
    )


def reading(task: Task) -> Iterator[tuple[ToolCall, Read]]:
    """Each call, and where it has a value from; an earlier turn counts where there is one.

    Values are compared as text; those of one character and truth values do not count.
    """
    said = before = ""
    for turn, truth in zip(task.turns, prepare(task).turns, strict=True):
        said, here = f"{said}\n{turn.user or ''}", ""
        for call, result in zip(turn.ground_truth, truth.results, strict=True):
            values = [value for value in values_of(call) if len(value) > 1 and value not in ("True", "False")]
            unsaid = [value for value in values if not mentions(said, value)]
            if any(mentions(before, value) for value in unsaid):
                yield call, Read.EARLIER_TURN
            else:
                yield call, Read.SAME_TURN if any(mentions(here, value) for value in unsaid) else Read.NOWHERE
            here = f"{here}\n{result}"
        before += here


def quantiles(numbers: Sequence[int]) -> str:
    """The 10 % quantile, the median and the 90 % quantile."""
    ordered = sorted(numbers)
    return " / ".join(str(ordered[round(part * (len(ordered) - 1))]) for part in (0.1, 0.5, 0.9))


def row(name: str, of: Lengths) -> str:
    cells = [quantiles(numbers) for numbers in (of.tools, of.turns, of.calls, of.words)]
    shares = (of.share(Read.EARLIER_TURN), of.share(Read.SAME_TURN), of.beyond)
    return f"| {' | '.join((name, *cells, *(f'{100 * share:.0f} %' for share in shares)))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=400, help="tasks of each split")
    given = parser.parse_args()
    print(row("BFCL V3, all 800", lengths(list(load_tasks().values()))))
    for name, difficulty in (("toolworld", Difficulty()), ("toolworld, long", LONG)):
        started = time.process_time()
        made = [task for split in SPLITS for task in tasks(given.n, split=split, difficulty=difficulty)]
        spent = time.process_time() - started
        print(row(name, lengths(made)))
        print(f"{1e3 * spent / len(made):.1f} ms of CPU a task")


if __name__ == "__main__":
    main()
