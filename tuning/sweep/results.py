"""What a sweep has found: its trials by what they reached, the best as a preset, all of it written as files. No Ray."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from seal_ray.report.files import replace_file, replace_yaml
from tuning.record import State, TrialRecord, read_document
from tuning.sweep.importance import importances
from tuning.sweep.parameter import Parameter
from tuning.sweep.pictures import draw_importances, draw_parallel

METRIC = "evaluation/success"
"""What a sweep goes by: success on the evaluation tasks, plain interface."""

CONFIG_FILE = "config.yaml"
"""The swept config."""

TABLE, BEST, PARALLEL, IMPORTANCE = "results.csv", "best.yaml", "parallel.png", "importance.png"
"""Names of the files that are written; without a finished trial there is no `BEST`."""

_MANIFEST = "sweep.yaml"


class Manifest(BaseModel):
    """What a sweep runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: tuple[Parameter, ...] = Field(min_length=1)
    scheduler: str
    search: str
    trials: int = Field(ge=1)
    rounds: int = Field(ge=1)
    folder: str
    """Where the sweep was started, as an absolute path."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as it stands: the trials that have started, the best first."""

    folder: Path
    manifest: Manifest
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


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Writes down what the sweep runs."""
    replace_yaml(out / _MANIFEST, manifest.model_dump())


def read_manifest(out: Path) -> Manifest:
    """What the sweep runs. Raises `UserError` where the folder holds no sweep."""
    return read_document(out / _MANIFEST, Manifest, what="sweep", command="sweep")


def collect(out: Path) -> Sweep:
    """Reads the sweep in a folder, finished or not. Nothing is written. Raises `UserError` as `read_manifest`."""
    manifest = read_manifest(out)
    folders = sorted(path for path in (out / "trials").glob("*") if path.is_dir())
    trials = [TrialRecord.read(path, of_rounds=manifest.rounds) for path in folders]
    return Sweep(out, manifest, sorted(trials, key=_place))


def write_results(out: Path) -> Sweep:
    """Writes table, pictures and the best preset of a sweep as it stands, in the place of any written before."""
    sweep = collect(out)
    replace_file(out / TABLE, table_as_csv(sweep).encode("utf-8"))
    if sweep.best is not None:
        replace_yaml(out / BEST, best_as_preset(sweep, sweep.best))
    parameters = sweep.manifest.parameters
    ended = [each for each in sweep.trials if score(each) is not None]
    points = [[parameter.value_in(each.config) for parameter in parameters] for each in ended]
    draw_parallel(parameters, points, [score(each) or 0.0 for each in ended], out / PARALLEL)
    at = sweep.common_round
    there = [(point, scores(each)[at]) for point, each in zip(points, ended, strict=True) if at in scores(each)]
    found = importances(parameters, [point for point, _ in there], [value for _, value in there])
    draw_importances(found, out / IMPORTANCE, trials=len(there), at_round=at)
    return sweep


def table_as_csv(sweep: Sweep) -> str:
    """A row for each trial, the best first: its state, its last evaluation and the value of each parameter."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parameters = sweep.manifest.parameters
    writer.writerow(["trial", "state", "rounds", "success", *(each.name for each in parameters), "failure"])
    for trial in sweep.trials:
        values = [parameter.value_in(trial.config) for parameter in parameters]
        found = score(trial)
        shown = "" if found is None else f"{found:.6f}"
        writer.writerow([trial.name, trial.state, trial.rounds, shown, *values, trial.failure or ""])
    return text.getvalue()


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
