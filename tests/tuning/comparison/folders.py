"""Folders of comparisons made by hand, with no training behind them."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from envs.diagnosis import Label
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.task import Category
from seal_ray.metrics import mean
from seal_ray.report.files import RunFolder
from tuning.comparison.collect import ComparisonManifest, trial_folder
from tuning.comparison.report import REPORT, TABLE

ROUNDS = 8
ROLLOUTS = 16
"""Training rollouts of a round."""
Solved = Callable[[int], Mapping[str, Mapping[str, int | None]]]
"""Round → category → task → what came of it."""
CUES = Interface(schema_cues=(SchemaCue(CueKind.REQUIRED),))
GUIDED = Interface(CUES.schema_cues, RecoveryLevel.CLASS, ("Call nothing when a needed value is missing.",))


def make_comparison(
    out: Path,
    arms: tuple[str, ...] = ("vanilla", "rules"),
    seeds: int = 3,
    *,
    first_seed: int = 0,
    settings: Mapping[str, Mapping[str, object]] | None = None,
    **changes: object,
) -> None:
    """A comparison of which no trial has started. `settings` are for all trials, apart from the curator's."""
    manifest = ComparisonManifest(
        arms={arm: f"About {arm}." for arm in arms},
        seeds=tuple(range(first_seed, first_seed + seeds)),
        rounds=ROUNDS,
        baseline=arms[0],
        folder=str(out.resolve()),
    )
    for arm, seed in manifest.trials():
        config = {"seed": seed, "curator": {"kind": "none" if arm == "vanilla" else "rules"}, **(settings or {})}
        RunFolder(trial_folder(out, arm, seed)).write_config(config)
    manifest.model_copy(update=changes).write(out)


def constant(level: float) -> Callable[[int], float]:
    """Success that is the same in every round."""
    return lambda _: level


def growing(level: float) -> Callable[[int], float]:
    """Success that grows from 0 to a level in a straight line."""
    return lambda number: level * number / ROUNDS


def play(
    out: Path,
    arm: str,
    seed: int,
    success: Callable[[int], float],
    *,
    rounds: int = ROUNDS,
    shown: Mapping[int, Interface] | None = None,
    solved: Solved | None = None,
    new_tasks: int | None = None,
) -> None:
    """The rows of a trial up to `rounds`: evaluated at 0, 4 and 8, with `success` of the round everywhere.

    `shown` is round → the interface from then on; `solved` the outcome of each task, instead of `success` in
    evaluations; `new_tasks` the number of new tasks of each round.
    """
    folder = RunFolder(trial_folder(out, arm, seed))
    interface = Interface.plain()
    for number in range(rounds + 1):
        metrics: dict[str, float] = {}
        if number:
            interface = (shown or {}).get(number, interface)
            folder.append_interfaces(number, dict(enumerate(dict.fromkeys([Interface.plain(), interface]))))
            metrics = {
                "solver/rollouts": ROLLOUTS,
                "solver/success_plain": success(number) / 2,
                f"diagnosis/share/{Label.PASS}": success(number),
                f"diagnosis/share/{Label.STATE_MISMATCH}": 1 - success(number),
            }
            if new_tasks is not None:
                metrics["solver/tasks_seen"] = number * new_tasks
        if number % 4 == 0 and solved:
            outcomes = solved(number)
            folder.evaluations.append({"round": number, "suites": {"plain": outcomes}})
            every = [each for tasks in outcomes.values() for each in tasks.values() if each is not None]
            metrics["evaluation/success"] = mean(every)
            for category, tasks in outcomes.items():
                found = [each for each in tasks.values() if each is not None]
                metrics[f"evaluation/success/{category}"] = mean(found)
        elif number % 4 == 0:
            metrics["evaluation/success"] = success(number)
            metrics |= {f"evaluation/success/{each}": success(number) / (i + 1) for i, each in enumerate(Category)}
        folder.append_metrics(number, metrics)


def finished(
    out: Path,
    levels: Mapping[str, Sequence[float]],
    success: Callable[[float], Callable[[int], float]] = constant,
    **changes: object,
) -> Path:
    """A comparison of which all trials are finished: arm → the level of each seed."""
    make_comparison(out, tuple(levels), len(next(iter(levels.values()))), **changes)  # type: ignore[arg-type]
    for arm, of_seeds in levels.items():
        for seed, level in enumerate(of_seeds):
            play(out, arm, seed, success(level))
    return out


def drawn(levels: Mapping[str, float], seed: int, *, tasks: int = 40) -> Solved:
    """In each category so many tasks, solved by chance at its level, less in earlier rounds."""

    def solved(number: int) -> Mapping[str, Mapping[str, int | None]]:
        rng = np.random.default_rng([seed, number])
        return {
            category: {
                f"{category}-{task}": int(value)
                for task, value in enumerate(rng.random(tasks) < level * (0.2 + 0.1 * number))
            }
            for category, level in levels.items()
        }

    return solved


def table_rows(out: Path) -> list[dict[str, str]]:
    """The rows of a comparison's table."""
    with (out / TABLE).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def picked(rows: list[dict[str, str]], **wanted: str) -> dict[str, str]:
    """The one row with these values."""
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def report_of(out: Path) -> str:
    """The text of a comparison's report."""
    return (out / REPORT).read_text("utf-8")
