"""The results of a sweep: its trials by success, the best as a preset, and the files with both. No Ray."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from seal_ray.report.files import TRIALS, replace_yaml
from tuning.record import State, TrialRecord, TrialsManifest, write_csv
from tuning.sweep.importance import importances
from tuning.sweep.parameter import MOST, SweptParameter
from tuning.sweep.pictures import draw_importances, draw_parallel

METRIC = "evaluation/success"
"""The metric that a sweep maximises: success on the evaluation tasks, plain interface."""

CONFIG_FILE = "config.yaml"
"""The swept config."""

TABLE, BEST, PARALLEL, IMPORTANCE = "results.csv", "best.yaml", "parallel.png", "importance.png"
"""Names of the written files; without a finished trial there is no `BEST`."""


class SweepManifest(TrialsManifest):
    """The plan of a sweep."""

    FILE, WHAT, COMMAND = "sweep.yaml", "sweep", "sweep"

    parameters: tuple[SweptParameter, ...] = Field(min_length=1, max_length=MOST)
    scheduler: str
    search: str
    trials: int = Field(ge=1)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The plan of a sweep and the trials that have started, the best first."""

    folder: Path
    manifest: SweepManifest
    trials: Sequence[TrialRecord]

    @property
    def planned(self) -> int:
        return self.manifest.trials

    @property
    def best(self) -> TrialRecord | None:
        """The finished trial with the highest success in its last evaluation; the first by name of equal ones."""
        return next(
            (trial for trial in self.trials if trial.state is State.FINISHED and score(trial) is not None), None
        )

    @property
    def common_round(self) -> int | None:
        """The last round after which all evaluated trials were evaluated; None if there is none."""
        evaluated = [rounds for trial in self.trials if (rounds := set(scores(trial)) - {0})]
        return max(set.intersection(*evaluated), default=None) if evaluated else None


def scores(trial: TrialRecord) -> dict[int, float]:
    """Round → success in its evaluation."""
    return {row["round"]: row[METRIC] for row in trial.rows if row.get(METRIC) is not None}


def score(trial: TrialRecord) -> float | None:
    """Success in the last evaluation in training; None without one."""
    by_round = scores(trial)
    last = max(by_round, default=0)
    return by_round[last] if last else None


def collect(out: Path) -> Sweep:
    """Reads the sweep in a folder, finished or not. Raises `UserError` as `SweepManifest.read`."""
    manifest = SweepManifest.read(out)
    folders = sorted(path for path in (out / TRIALS).glob("*") if path.is_dir())
    trials = [TrialRecord.read(path, planned_rounds=manifest.rounds) for path in folders]
    return Sweep(out, manifest, sorted(trials, key=_order))


def write_results(out: Path) -> Sweep:
    """Writes table, pictures and the best preset of a sweep, finished or not."""
    sweep = collect(out)
    write_csv(out / TABLE, table_of(sweep))
    if sweep.best is not None:
        replace_yaml(out / BEST, best_as_preset(sweep, sweep.best))
    parameters = sweep.manifest.parameters
    trials = evaluated_trials(sweep)
    points = [[parameter.value_in(trial.config) for parameter in parameters] for trial in trials]
    draw_parallel(parameters, points, [score(trial) or 0.0 for trial in trials], out / PARALLEL)
    number = sweep.common_round
    common = [
        (point, scores(each)[number]) for point, each in zip(points, trials, strict=True) if number in scores(each)
    ]
    values = importances(parameters, [point for point, _ in common], [success for _, success in common])
    draw_importances(values, out / IMPORTANCE, trials=len(common), at_round=number)
    return sweep


def evaluated_trials(sweep: Sweep) -> list[TrialRecord]:
    """The trials that were evaluated, and whose settings lie in the space."""
    parameters = sweep.manifest.parameters
    return [
        trial
        for trial in sweep.trials
        if score(trial) is not None and all(each.takes(each.value_in(trial.config)) for each in parameters)
    ]


def table_of(sweep: Sweep) -> Iterator[Sequence[object]]:
    """The head, and a row for every trial, the best first: state, last evaluation and the value of every parameter."""
    parameters = sweep.manifest.parameters
    yield "trial", "state", "rounds", "success", *(parameter.name for parameter in parameters), "failure"
    for trial in sweep.trials:
        values = [parameter.value_in(trial.config) for parameter in parameters]
        success = score(trial)
        text = "" if success is None else f"{success:.6f}"
        yield trial.name, trial.state, trial.rounds, text, *values, trial.failure or ""


def best_as_preset(sweep: Sweep, best: TrialRecord) -> dict[str, object]:
    """The best trial's settings, as a preset that `seal-ray train --preset FILE` takes."""
    ended = sum(trial.state in (State.FINISHED, State.STOPPED) for trial in sweep.trials)
    about = (
        f"The best of {ended} trials of a sweep, {100 * (score(best) or 0):.1f} % evaluation success after "
        f"{best.rounds} rounds; chosen as the best, its success is biased upwards."
    )
    return {"kind": "model", "about": about, "sections": {k: v for k, v in best.config.items() if k != "seed"}}


def _order(trial: TrialRecord) -> tuple[bool, float, str]:
    """Finished trials come first, then all others, by success."""
    success = score(trial)
    return trial.state is not State.FINISHED, -(-1.0 if success is None else success), trial.name
