"""The runs of `docs/results/`, and the text of each cell in the tables of the results pages."""

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from envs.task import Category
from seal_ray.statistics import fisher_p, mean_estimate, share_estimate
from tuning.comparison import measures
from tuning.comparison.collect import ArmTrial, Comparison, ComparisonManifest, Match, collect
from tuning.comparison.exact import shown_count
from tuning.comparison.findings import shown
from tuning.comparison.measures import SHARE, ArmResult, Measure
from tuning.comparison.merge import merge
from tuning.comparison.threshold import tasks_until, threshold_of
from tuning.record import State

RESULTS = Path(__file__).parent.parent / "docs" / "results"
PIECES: dict[str, tuple[str, str | None]] = {
    "tiny-rare": ("plain-skill/tiny-rare-*", "vanilla"),
    "tiny": ("plain-skill/tiny-[1-9]", "vanilla"),
    "curators-tiny-rare": ("curators/tiny-rare-*", None),
    "smollm2": ("smollm2/rare-*", "vanilla"),
    "smollm2-bfcl": ("smollm2-bfcl/bfcl-*", "vanilla"),
    "written-tasks": ("written-tasks/*", "static-tasks"),
}
"""Experiment → its packed pieces and its baseline; None if it is preregistered."""
TABLES = ("seal-vanilla", "all-arms")
"""Experiments of which only the table is kept."""
BFCL_TEST = "bfcl-test"
"""The evaluations of smollm2-bfcl on BFCL's test split."""
_TINY_ON_DEV = {"final": "34.5", "base": "58", "miss_func": "0", "miss_param": "10", "long_context": "70"}
"""Before training in `TABLES`: `seal-ray evaluate tiny --split dev --limit 200 --difficulty t1-2_c1-2_d1-3_s2-4`."""
_EQUAL_TOKENS = ", equal tokens"
"""End of the name of a column that compares arms at equal sampled tokens."""
_SAMPLED = Measure("tokens", "", measures.tokens_until, "tokens")
_SCRATCH = TemporaryDirectory()


_MEASURES = {
    "final": measures.FINAL,
    "area": measures.AREA,
    "turns done": measures.TURNS,
    **{str(each): measures.in_category(measures.FINAL, each) for each in Category},
    "guided − plain": measures.GUIDED,
    "different tasks": Measure("tasks", "", tasks_until, "tasks"),
}


@cache
def comparison(experiment: str) -> Comparison:
    """The finished runs of an experiment, from its packed pieces or its table."""
    if experiment in PIECES:
        pieces, baseline = PIECES[experiment]
        out = Path(_SCRATCH.name, experiment)
        threshold = None if baseline is None else 0.5
        merge(sorted(RESULTS.glob(f"{pieces}.tar.xz")), out, baseline=baseline, threshold=threshold)
        return collect(out)
    runs: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    rounds = 1
    if experiment == BFCL_TEST:
        for line in (RESULTS / "smollm2-bfcl/bfcl-test.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            runs[row["arm"], row["seed"]] |= row["results"]["all"]
    else:
        for row in csv.DictReader((RESULTS / f"{experiment}.csv").read_text("utf-8").splitlines()):
            if row["seed"] != "all":
                runs[row["arm"], int(row["seed"])][row["measure"].removeprefix("final/")] = float(row["value"])
                rounds = int(row["rounds"])
    trials = [
        ArmTrial(folder=RESULTS, state=State.FINISHED, rounds=rounds, rows=[row], arm=arm, seed=seed)
        for (arm, seed), row in runs.items()
    ]
    arms, seeds = dict.fromkeys((each.arm for each in trials), ""), tuple(sorted({each.seed for each in trials}))
    manifest = ComparisonManifest(arms=arms, seeds=seeds, rounds=rounds, folder="", baseline="vanilla")
    return Comparison(RESULTS, manifest, trials)


def measure_of(experiment: str, column: str) -> Measure:
    """The measure in a column of an experiment's page."""
    if column in ("rounds to 50 %", "ends at 50 %"):
        threshold = threshold_of(comparison(experiment))
        assert threshold is not None
        return threshold.learnt if column == "ends at 50 %" else threshold.times["rounds"]
    if experiment in PIECES:
        return _MEASURES[column]
    name = {"hint-off": "hint_off", "BFCL success": "success", "BFCL turns done": "turns_done"}.get(column, column)
    return Measure(column, "", lambda rows, _: rows[0].get(name))


def result_of(experiment: str, arm: str, column: str, minus: str, match: Match = "rollouts") -> ArmResult:
    """The result of an arm in a column, with its difference to the arm `minus`."""
    return {each.arm: each for each in _results(experiment, column, minus, match)}[arm]


@cache
def _results(experiment: str, column: str, minus: str, match: Match) -> Sequence[ArmResult]:
    runs = comparison(experiment)
    runs = replace(runs, manifest=runs.manifest.model_copy(update={"baseline": minus, "match": match}))
    return measures.results_of(runs, measure_of(experiment, column))


def values_of(experiment: str, arm: str, measure: Measure) -> dict[int, float]:
    """Seed → the measure of an arm's run."""
    values = {each.seed: measures.value_of(each, measure) for each in comparison(experiment).arm_trials(arm)}
    return {seed: value for seed, value in values.items() if value is not None}


def _learnt(experiment: str, arm: str) -> list[float]:
    finals = values_of(experiment, arm, measure_of(experiment, "miss_func")).values()
    return [float(each > 0.2) for each in finals]


def _learnt_share(experiment: str, arm: str, _: str) -> str:
    return shown_count(share_estimate(_learnt(experiment, arm)))


def _fisher(experiment: str, arm: str, baseline: str) -> str:
    ours, theirs = (_learnt(experiment, each) for each in (arm, baseline))
    p = fisher_p(round(sum(ours)), len(ours), round(sum(theirs)), len(theirs))
    return "" if arm == baseline else f"{p:.2g}"


def _holm(experiment: str, arm: str, baseline: str) -> str:
    p = result_of(experiment, arm, "final", baseline).adjusted_p
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"


def _ended_at_threshold(experiment: str, arm: str, _: str) -> str:
    ended = values_of(experiment, arm, measure_of(experiment, "ends at 50 %"))
    return shown_count(share_estimate(list(ended.values())))


def _corrected_exact_p(column: str) -> Callable[[str, str, str], str]:
    def text(experiment: str, arm: str, baseline: str) -> str:
        p = result_of(experiment, arm, column, baseline).adjusted_exact_p
        return "" if p is None else f"{p:.2g}"

    return text


def _tokens(experiment: str, arm: str, baseline: str) -> str:
    ours, theirs = (np.mean(list(values_of(experiment, each, _SAMPLED).values())) for each in (arm, baseline))
    return f"{ours / theirs:.2f}"


def _false_abstentions(experiment: str, arm: str, _: str) -> str:
    rows = csv.DictReader((RESULTS / f"{experiment}-abstaining.csv").read_text("utf-8").splitlines())
    shares = [int(row["false_abstentions"]) / int(row["dialogues"]) for row in rows if row["arm"] == arm]
    return shown(mean_estimate(shares), unit=SHARE)


_TESTS: dict[str, Callable[[str, str, str], str]] = {
    "learnt": _learnt_share,
    "Fisher's p": _fisher,
    "Holm's p": _holm,
    "ends at 50 %": _ended_at_threshold,
    "final, corrected p": _corrected_exact_p("final"),
    "ends at 50 %, corrected p": _corrected_exact_p("ends at 50 %"),
    "tokens, share of GRPO's": _tokens,
    "false abstentions": _false_abstentions,
}
"""Column → its text for an experiment, an arm and the baseline. A run has learnt if it ends above 20 % of miss_func."""


def cell(experiment: str, arm: str, column: str) -> str:
    """The text of a cell: a measure of an arm, `by seed` or minus another arm, or a test."""
    experiment = BFCL_TEST if column.startswith("BFCL") else experiment
    baseline = comparison(experiment).manifest.baseline
    if column in _TESTS:
        return _TESTS[column](experiment, arm, baseline)
    match: Match = "tokens" if column.endswith(_EQUAL_TOKENS) else "rollouts"
    column = column.removesuffix(_EQUAL_TOKENS)
    name, _, minus = (column, "", "") if column in _MEASURES else column.partition(" − ")
    measure = measure_of(experiment, name.removesuffix(" by seed"))
    if name.endswith(" by seed"):
        values = values_of(experiment, arm, measure).values()
        return ", ".join(_plain(value, name.removesuffix(" by seed"), measure) for value in values)
    if minus == arm:
        return ""
    result = result_of(experiment, arm, name, minus or baseline, match)
    return shown(result.difference if minus else result.estimate, unit=measure.unit, sign=bool(minus) or measure.paired)


def before(experiment: str, column: str) -> str:
    """The text of a cell of the model before training."""
    if column.startswith("BFCL"):
        return cell(experiment, "before", column)
    if experiment not in PIECES:
        return _TINY_ON_DEV[column]
    measure = measure_of(experiment, column)
    values = (measure.compute(trial.rows, 0) for trial in comparison(experiment).trials)
    return _plain(next(each for each in values if each is not None), column, measure)


def _plain(value: float, column: str, measure: Measure) -> str:
    if measure.unit != SHARE:
        return f"{value:.0f}"
    return f"{round(100 * value, 6):.{0 if column in set(Category) else 1}f}"
