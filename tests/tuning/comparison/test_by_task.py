"""Intervals of differences that take in the choice of tasks, what is said where they cannot, and regressions."""

from pathlib import Path

import numpy as np
import pytest

from seal_ray.report.files import RunFolder
from seal_ray.statistics import Estimate, crossed_estimate, holm, mean_estimate
from tests.tuning.comparison.folders import constant, drawn, make_comparison, picked, play, report_of, table_rows
from tuning.comparison.collect import Comparison, collect, trial_folder
from tuning.comparison.measures import (
    AREA,
    FINAL,
    GAIN,
    ArmResult,
    Measure,
    by_task,
    in_category,
    regressions,
    results_of,
    value_of,
)
from tuning.comparison.report import write_results

BASELINE = {"base": 0.5, "miss_func": 0.8}
ARMS = {"vanilla": BASELINE, "rules": {"base": 0.9, "miss_func": 0.3}, "fixed": {"base": 0.55, "miss_func": 0.75}}


def play_all(out: Path) -> Path:
    """Three arms with four seeds, each evaluated on the same 80 tasks of two categories."""
    make_comparison(out, arms=tuple(ARMS), seeds=4)
    for arm, levels in ARMS.items():
        for seed in range(4):
            play(out, arm, seed, constant(0.5), solved=drawn(levels, 10 * seed + list(ARMS).index(arm)))
    return out


@pytest.fixture
def played(tmp_path: Path) -> Path:
    return play_all(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The same with its results, which tests only read."""
    return write_results(play_all(tmp_path_factory.mktemp("comparison")))


def of(results: list[ArmResult], arm: str) -> ArmResult:
    return {each.arm: each for each in results}[arm]


def crossed(table: list[list[float]], tasks: list[str]) -> Estimate:
    """The estimate over seeds and tasks, of a row a seed; the strata are the categories of the tasks."""
    strata = [task.partition("-")[0] for task in tasks]
    return crossed_estimate([float(np.mean(row)) for row in table], np.array(table), strata)


def rewrite(out: Path, arm: str, seed: int, change: object) -> None:
    """Changes the evaluations of a trial as they are written down."""
    lines = RunFolder(trial_folder(out, arm, seed)).evaluations
    rows = lines.rows()
    change(rows)  # type: ignore[operator]
    lines.replace(rows)


@pytest.mark.parametrize("measure", [FINAL, AREA, in_category(FINAL, "base"), in_category(AREA, "miss_func")])
def test_a_measure_is_the_mean_of_the_same_measure_by_task(written: Comparison, measure: Measure) -> None:
    for trial in written.trials:
        tasks = by_task(trial, measure)
        assert len(tasks) == (40 if "/" in measure.name else 80)
        assert np.mean(list(tasks.values())) == pytest.approx(value_of(trial, measure))


def test_the_interval_is_over_seeds_and_tasks(written: Comparison) -> None:
    results = results_of(written, FINAL)
    found = of(results, "rules").difference
    assert found is not None
    table = [
        [by_task(ours, FINAL)[task] - value for task, value in sorted(by_task(theirs, FINAL).items())]
        for ours, theirs in zip(written.arm_trials("rules"), written.arm_trials("vanilla"), strict=True)
    ]
    expected = crossed(table, sorted(by_task(written.trials[0], FINAL)))
    assert (found.count, found.tasks) == (4, 80)
    assert (found.mean, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))
    adjusted = holm([None if each.difference is None else each.difference.p for each in results])
    assert [each.adjusted_p for each in results] == adjusted
    assert adjusted[0] is None


def test_the_report_tells_pairs_tasks_and_corrected_p_values(written: Comparison) -> None:
    text = report_of(written.folder)
    assert "points of final success over 4 pairs and 80 tasks; the interval" in text
    assert "after Holm's correction" in text
    assert "2 arms are compared with the baseline: Holm's correction" in text
    row = picked(table_rows(written.folder), arm="rules", seed="all", measure="final")
    assert (row["pairs"], row["tasks"]) == ("4", "80")
    assert float(row["p_holm"]) >= float(row["p"])
    assert picked(table_rows(written.folder), arm="rules", seed="all", measure="hint_off")["tasks"] == "0"


def test_the_gain_is_over_the_model_before_training_by_seed_and_task(written: Comparison) -> None:
    table = []
    for trial in written.arm_trials("rules"):
        before, after = (
            {k: v for each in trial.evaluations[i]["suites"]["plain"].values() for k, v in each.items()}
            for i in (0, -1)
        )
        table.append([after[task] - before[task] for task in before])
    expected = crossed(table, list(before))
    found = of(results_of(written, GAIN), "rules").estimate
    assert found is not None
    assert expected.low is not None
    assert (found.mean, found.low) == pytest.approx((expected.mean, expected.low))
    assert found.given_seeds == pytest.approx(expected.given_seeds)
    section = report_of(written.folder).partition("## What training did")[2].partition("##")[0]
    low, high = (f"{100 * each:+.1f}" for each in expected.given_seeds or ())
    assert f"| – | {100 * expected.mean:+.1f} " in section
    assert f"| {100 * expected.mean:+.1f} [{low}, {high}] |" in section
    row = picked(table_rows(written.folder), arm="rules", seed="all", measure="gain")
    assert float(row["given_seeds_low"]) == pytest.approx(float(low) / 100, abs=1e-3)


def test_turns_have_a_section_where_evaluations_counted_them(played: Path, written: Comparison) -> None:
    assert "## Turns" not in report_of(written.folder)
    for trial in collect(played).trials:
        metrics = RunFolder(trial.folder).metrics
        after = 0.2 + 0.1 * (trial.arm == "rules") + 0.01 * trial.seed
        rows = metrics.rows()
        for row in rows:
            row["evaluation/turns_done"] = after if row["round"] else 0.125
        metrics.replace(rows)
    write_results(played)
    section = report_of(played).partition("## Turns")[2].partition("\n## ")[0]
    expected = mean_estimate([0.3, 0.31, 0.32, 0.33])
    assert expected.low is not None
    assert expected.high is not None
    interval = f"[{100 * expected.low:.1f}, {100 * expected.high:.1f}]"
    gain = f"[{100 * expected.low - 12.5:+.1f}, {100 * expected.high - 12.5:+.1f}]"
    assert f"| rules | 31.5 {interval} | +19.0 {gain} | +10.0 [+10.0, +10.0] |" in section
    assert "| vanilla | 21.5" in section
    assert "| baseline |" in section


def test_without_an_evaluation_before_training_there_is_no_gain(played: Path) -> None:
    for trial in collect(played).trials:
        metrics = RunFolder(trial.folder).metrics
        rows = metrics.rows()
        rows[0] = {name: value for name, value in rows[0].items() if not name.startswith("evaluation/")}
        metrics.replace(rows)
    assert [each.estimate for each in results_of(write_results(played), GAIN)] == [None] * 3
    assert "What training did" not in report_of(played)


def test_a_category_that_suffers_is_named(written: Comparison) -> None:
    found = [(category, each.arm, each.measure.name) for category, each in regressions(written)]
    assert ("miss_func", "rules", "final/miss_func") in found
    assert not [each for each in found if each[0] == "base" or each[1] == "fixed"]
    text = report_of(written.folder)
    assert "**Regressions**, categories in which an arm is below vanilla" in text
    assert "* **rules**, miss_func: -" in text
    assert "nothing is corrected for their number" in text


def test_without_results_by_task_in_one_seed_the_interval_is_over_seeds_and_says_so(played: Path) -> None:
    (trial_folder(played, "rules", 2) / "evaluations.jsonl").unlink()
    comparison = write_results(played)
    results = results_of(comparison, FINAL)
    found, other = of(results, "rules").difference, of(results, "fixed").difference
    values = [value_of(trial, FINAL) for arm in ("rules", "vanilla") for trial in comparison.arm_trials(arm)]
    assert found == mean_estimate([values[place] - values[place + 4] for place in range(4)])  # type: ignore[operator]
    assert other is not None
    assert other.tasks == 80
    text = report_of(played)
    assert "**Without results by task:** rules-seed2; differences with these have intervals over seeds only." in text
    assert "over 4 pairs, seeds only; the interval" in text
    assert "] seeds only |" in text


def test_an_evaluation_that_lacks_rounds_does_not_count_as_by_task(played: Path) -> None:
    rewrite(played, "rules", 1, lambda rows: rows.pop(0))
    assert by_task(collect(played).arm_trials("rules")[1], FINAL) == {}


def test_a_lost_dialogue_leaves_its_task_out_for_all(played: Path) -> None:
    rewrite(played, "rules", 1, lambda rows: rows[-1]["suites"]["plain"]["base"].update({"base-3": None}))
    lost = {"base-3": None, "base-4": None}
    rewrite(played, "vanilla", 3, lambda rows: rows[-1]["suites"]["plain"]["base"].update(lost))
    results = results_of(collect(played), FINAL)
    counts = [None if each.difference is None else each.difference.tasks for each in results]
    assert counts == [None, 78, 78]


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_task_lost_in_any_evaluation_has_no_area(played: Path, place: int) -> None:
    rewrite(played, "rules", 1, lambda rows: rows[place]["suites"]["plain"]["base"].update({"base-3": None}))
    trial = collect(played).arm_trials("rules")[1]
    assert len(by_task(trial, AREA)) == 79
    assert "base-3" not in by_task(trial, AREA).keys() | by_task(trial, in_category(AREA, "base")).keys()


def test_a_round_that_was_written_twice_counts_as_it_was_last(played: Path) -> None:
    before = by_task(collect(played).arm_trials("rules")[0], FINAL)
    folder = RunFolder(trial_folder(played, "rules", 0))
    last = folder.evaluations.rows()[-1]
    turned = {task: 1 - int(value) for task, value in last["suites"]["plain"]["base"].items()}
    suites = {"plain": {**last["suites"]["plain"], "base": turned}}
    folder.evaluations.append({"round": last["round"], "suites": suites})
    found = by_task(collect(played).arm_trials("rules")[0], FINAL)
    assert {task: value for task, value in found.items() if value != before[task]}.keys() == turned.keys()


def test_one_seed_has_no_interval_though_it_has_tasks(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=1)
    for place, arm in enumerate(("vanilla", "rules")):
        play(tmp_path, arm, 0, constant(0.5), solved=drawn(BASELINE, place))
    (_, found) = results_of(write_results(tmp_path), FINAL)
    assert found.difference is not None
    assert found.difference.low is None
    assert found.difference.given_seeds is not None
    assert found.adjusted_p is None
    assert "[n/a] points of final success over 1 pair; no interval from one pair" in report_of(tmp_path)


def test_equal_outcomes_are_no_difference(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=3)
    for arm in ("vanilla", "rules"):
        for seed in range(3):
            play(tmp_path, arm, seed, constant(0.5), solved=drawn(BASELINE, seed))
    comparison = write_results(tmp_path)
    (_, found) = results_of(comparison, FINAL)
    assert found.difference is not None
    assert (found.difference.low, found.difference.high, found.difference.p) == (0.0, 0.0, 1.0)
    assert list(regressions(comparison)) == []
    text = report_of(tmp_path)
    assert "the interval contains 0: no evidence that either is better (p = 1, 1 after" in text
    assert "**Regressions:** in no category is an arm below vanilla" in text
