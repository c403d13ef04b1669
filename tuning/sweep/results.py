"""What a sweep has found: its trials by what they reached, the best as a preset, all of it written as files. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from seal_ray.report.files import TRIALS, replace_yaml
from tuning.record import State, TrialRecord, TrialsManifest, write_csv
from tuning.sweep.importance import importances
from tuning.sweep.parameter import SweptParameter
from tuning.sweep.pictures import draw_importances, draw_parallel

METRIC = "evaluation/success"
"""What a sweep goes by: success on the evaluation tasks, plain interface."""

CONFIG_FILE = "config.yaml"
"""The swept config."""

TABLE, BEST, PARALLEL, IMPORTANCE = "results.csv", "best.yaml", "parallel.png", "importance.png"
"""Names of the files that are written; without a finished trial there is no `BEST`."""


class SweepManifest(TrialsManifest):
    """What a sweep runs."""

    FILE, WHAT, COMMAND = "sweep.yaml", "sweep", "sweep"

    parameters: tuple[SweptParameter, ...] = Field(min_length=1, max_length=100)
    scheduler: str
    search: str
    trials: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for each in self.parameters:
            if not each.is_possible:
                raise ValueError(f"{each.name} can have no value")
        return self


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it stands: the trials that have started, the best first."""

    folder: Path
    manifest: SweepManifest
    trials: Sequence[TrialRecord]

    @property
    def best(self) -> TrialRecord | None:
        """The finished trial with the highest success in its last evaluation, the first by name of equal ones."""
        return next((each for each in self.trials if each.state is State.FINISHED and score(each) is not None), None)

    @property
    def common_round(self) -> int | None:
        """The latest round that all trials were evaluated in which were in any; None where there is none."""
        evaluated = [set(scores(each)) - {0} for each in self.trials]
        found = [each for each in evaluated if each]
        return max(set.intersection(*found), default=None) if found else None


def scores(trial: TrialRecord) -> dict[int, float]:
    """Round → success in its evaluation."""
    return {row["round"]: row[METRIC] for row in trial.rows if row.get(METRIC) is not None}


def score(trial: TrialRecord) -> float | None:
    """Success in the last evaluation in training; None where there was none."""
    found = scores(trial)
    last = max(found, default=0)
    return found[last] if last else None


def collect(out: Path) -> Sweep:
    """Reads the sweep in a folder, finished or not. Nothing is written. Raises `UserError` as `SweepManifest.read`."""
    manifest = SweepManifest.read(out)
    folders = sorted(path for path in (out / TRIALS).glob("*") if path.is_dir())
    trials = [TrialRecord.read(path, of_rounds=manifest.rounds) for path in folders]
    return Sweep(out, manifest, sorted(trials, key=_place))


def write_results(out: Path) -> Sweep:
    """Writes table, pictures and the best preset of a sweep as it stands, in the place of any written before."""
    sweep = collect(out)
    write_csv(out / TABLE, table_of(sweep))
    if sweep.best is not None:
        replace_yaml(out / BEST, best_as_preset(sweep, sweep.best))
    parameters = sweep.manifest.parameters
    trials = ended(sweep)
    points = [[parameter.value_in(each.config) for parameter in parameters] for each in trials]
    draw_parallel(parameters, points, [score(each) or 0.0 for each in trials], out / PARALLEL)
    at = sweep.common_round
    there = [(point, scores(each)[at]) for point, each in zip(points, trials, strict=True) if at in scores(each)]
    found = importances(parameters, [point for point, _ in there], [value for _, value in there])
    draw_importances(found, out / IMPORTANCE, trials=len(there), at_round=at)
    return sweep


def ended(sweep: Sweep) -> list[TrialRecord]:
    """The trials that were evaluated, and whose settings lie in the space."""
    parameters = sweep.manifest.parameters
    return [
        trial
        for trial in sweep.trials
        if score(trial) is not None and all(each.takes(each.value_in(trial.config)) for each in parameters)
    ]


def table_of(sweep: Sweep) -> Iterator[Sequence[object]]:
    """The head, and a row for each trial, the best first: state, last evaluation and the value of each parameter."""
    parameters = sweep.manifest.parameters
    yield "trial", "state", "rounds", "success", *(each.name for each in parameters), "failure"
    for trial in sweep.trials:
        values = [parameter.value_in(trial.config) for parameter in parameters]
        found = score(trial)
        shown = "" if found is None else f"{found:.6f}"
        yield trial.name, trial.state, trial.rounds, shown, *values, trial.failure or ""


def best_as_preset(sweep: Sweep, best: TrialRecord) -> dict[str, object]:
    """The best trial's settings, as a preset that `seal-ray train --preset FILE` takes."""
    ended = sum(each.state in (State.FINISHED, State.STOPPED) for each in sweep.trials)
    about = (
        f"The best of {ended} trials of a sweep, {100 * (score(best) or 0):.1f} % evaluation success after "
        f"{best.rounds} rounds; chosen as the best, it is flattered by chance."
    )
    return {"kind": "model", "about": about, "sections": {k: v for k, v in best.config.items() if k != "seed"}}


def _place(trial: TrialRecord) -> tuple[bool, float, str]:
    """Finished trials come first, then those that got less far; each by success."""
    found = score(trial)
    return trial.state is not State.FINISHED, -(found if found is not None else -1.0), trial.name
