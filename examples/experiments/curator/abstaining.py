"""`python -m examples.experiments.curator.abstaining TRIAL… > FILE.csv`: wrong abstentions after training.

A false abstention is an evaluation dialogue of `base` or `long_context`, where each turn needs calls, whose first
failed turn made none.
"""

import csv
import sys
from pathlib import Path

from envs.diagnosis import Label
from envs.task import Category
from seal_ray.report.inspect_log import read_samples

NEED_CALLS = (Category.BASE, Category.LONG_CONTEXT)


def main() -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("arm", "seed", "dialogues", "false_abstentions"))
    for trial in map(Path, sys.argv[1:]):
        arm, _, seed = trial.name.rpartition("-seed")
        labels = labels_of(max((trial / "logs").glob("evaluation_*.eval")))
        table.writerow((arm, seed, len(labels), labels.count(Label.MISSING_TOOL_CALL)))


def labels_of(log: Path) -> list[str]:
    """The label of each dialogue of the log that needs calls in all turns."""
    return [str(each.scores["label"].value) for each in read_samples(log) if each.metadata["category"] in NEED_CALLS]


if __name__ == "__main__":
    main()
