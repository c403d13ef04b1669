"""`python -m tests.bench.agreement`: our verdicts against the official `bfcl evaluate`, end to end, dialect by dialect.

Ground truths and perturbed trajectories are played, written as result files of the official form, and graded by the
official command, which decodes the completions with its own handlers. Prints how many verdicts agree, and what the
others have in common.
"""

import argparse
import ast
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.bfcl.source import REGISTERED, SOURCE
from envs.bfcl.tasks import load_tasks
from envs.diagnosis import Label
from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue
from seal_ray.evaluation.records import Record
from tests.envs.perturbations import sample
from tests.envs.perturbing import Trajectory, truth
from tests.envs.players import play
from tests.seal_ray.evaluation.grading import official_failures

JSON_WORDS = re.compile(r"[:\[,] ?(true|false|null)\b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-kind", type=int, default=60, help="perturbed trajectories of each kind")
    parser.add_argument("--dialect", choices=list(DIALECTS), action="append", help="this dialect alone")
    given = parser.parse_args()
    for name in given.dialect or DIALECTS:
        for title, trajectories in (
            ("ground truths", [Trajectory("ground_truth", task, truth(task), 0) for task in load_tasks().values()]),
            ("perturbed trajectories", list(sample(per_kind=given.per_kind, seed=1))),
        ):
            agree, reasons = compare(DIALECTS[name], trajectories)
            total = agree + reasons.total()
            print(f"{name:12} {title:24} {agree:5} of {total:5} agree", flush=True)
            for reason, count in reasons.most_common():
                print(f"{'':12} {count:5} {reason}", flush=True)


def compare(dialect: Dialect, trajectories: Sequence[Trajectory]) -> tuple[int, Counter[str]]:
    """How many verdicts agree, and why the others do not."""
    agree, reasons = 0, Counter[str]()
    for batch in _with_one_a_task(trajectories):
        played = [play(each.task, each.turns, dialect=dialect) for each in batch]
        with tempfile.TemporaryDirectory() as folder:
            SOURCE.write_results(Path(folder) / "results", [_record(dialogue) for dialogue in played], dialect.name)
            name = REGISTERED[dialect.name]
            failed = official_failures(Path(folder) / "results", [name], Path(folder) / "scores")[name]
        for dialogue in played:
            if dialogue.success == (dialogue.task.id not in failed):
                agree += 1
            else:
                reasons[_reason(dialogue, dialect)] += 1
    return agree, reasons


def _with_one_a_task(trajectories: Sequence[Trajectory]) -> Iterator[list[Trajectory]]:
    """Batches in which each task stands once at most, as in an official result file."""
    left = list(trajectories)
    while left:
        batch = {each.task.id: each for each in reversed(left)}
        yield list(batch.values())
        chosen = {id(each) for each in batch.values()}
        left = [each for each in left if id(each) not in chosen]


def _record(dialogue: Dialogue) -> Record:
    completions = tuple(tuple(step.completion for step in turn) for turn in dialogue.trace.turns)
    labels = tuple(str(label) for label in dialogue.diagnosis.labels)
    reward = float(dialogue.success)
    return Record(dialogue.task.id, str(dialogue.task.category), 0, reward, "finished", labels, 0, 0, completions)


def _reason(dialogue: Dialogue, dialect: Dialect) -> str:
    texts = [step.completion for turn in dialogue.trace.turns for step in turn]
    ours = "we pass, it fails" if dialogue.success else "we fail, it passes"
    if dialect.name == "llama3_json" and any(map(JSON_WORDS.search, texts)):
        return f"{ours}: true, false or null in the JSON"
    if any(turn.label is Label.NOT_REACHED for turn in dialogue.diagnosis.turns):
        return f"{ours}: cut off"
    if dialect.name == "toolace" and not all(map(_is_python, texts)):
        return f"{ours}: a call that is not readable Python"
    return f"{ours}: something else, for instance {dialogue.task.id}"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text.strip())
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main()
