"""The table of a comparison as CSV: a row for each trial and measure, and for each arm and measure."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from seal_ray.report.files import replace_file
from tuning.comparison.collect import Comparison
from tuning.comparison.measures import arm_result, measures_of, value_of
from tuning.record import State
from tuning.statistics import Estimate

COLUMNS = (
    *("arm", "seed", "state", "rounds", "measure", "value", "low", "high", "seeds"),
    *("difference", "difference_low", "difference_high", "pairs"),
)
"""A trial's rows have its seed and value. An arm's have the seed "all", the mean over its finished trials as the value
with its interval, and the paired difference to the baseline with its own. What there is not is empty."""


def write_table(comparison: Comparison, path: Path) -> None:
    """Writes the table in the place of any written before."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    measures = measures_of(comparison)
    for trial in comparison.trials:
        for measure in measures:
            found = (trial.arm, trial.seed, trial.state, trial.rounds, measure.name, _number(value_of(trial, measure)))
            writer.writerow([*found, *[""] * (len(COLUMNS) - len(found))])
    for arm in comparison.manifest.arms:
        for measure in measures:
            result = arm_result(comparison, arm, measure)
            state = f"{len(comparison.of(arm, State.FINISHED))} of {len(comparison.of(arm))} finished"
            cells = [*_cells(result.estimate), *_cells(result.difference)]
            writer.writerow([arm, "all", state, comparison.manifest.rounds, measure.name, *cells])
    replace_file(path, text.getvalue().encode("utf-8"))


def _cells(estimate: Estimate | None) -> list[object]:
    if estimate is None:
        return ["", "", "", 0]
    return [_number(estimate.mean), _number(estimate.low), _number(estimate.high), estimate.count]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
