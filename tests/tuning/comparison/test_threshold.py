"""Rounds, rollouts and tasks to a threshold: trials that never reach it are censored, counted and named."""

from pathlib import Path

import pytest

from seal_ray.statistics import mean_estimate
from tests.tuning.comparison.folders import (
    ROLLOUTS,
    ROUNDS,
    constant,
    finished,
    growing,
    make_comparison,
    picked,
    play,
    report_of,
    table_rows,
)
from tuning.comparison.collect import Comparison, collect, set_reading, trial_folder
from tuning.comparison.findings import EFFICIENCY
from tuning.comparison.measures import results_of, value_of
from tuning.comparison.report import write_results
from tuning.comparison.threshold import Threshold, threshold_of
from tuning.record import mark_failed

LEVELS = {"vanilla": (0.6, 0.4, 0.5), "rules": (1.0, 1.0, 0.5)}
"""Success after the last round; evaluated at 0, 4 and 8, it grows in a straight line."""


@pytest.fixture
def played(tmp_path: Path) -> Path:
    return finished(tmp_path, LEVELS, growing)


def of(comparison: Comparison) -> Threshold:
    found = threshold_of(comparison)
    assert found is not None
    return found


def test_the_threshold_is_the_baselines_mean_final_success_or_what_is_given(played: Path) -> None:
    found = of(collect(played))
    assert found.level == pytest.approx(0.5)
    assert not found.given
    set_reading(played, threshold=0.3)
    found = of(collect(played))
    assert (found.level, found.given) == (0.3, True)


def test_the_first_evaluation_at_or_above_it_counts(played: Path) -> None:
    comparison = collect(played)
    threshold = of(comparison)
    rounds = {trial.name: value_of(trial, threshold.times["rounds"]) for trial in comparison.trials}
    assert rounds == {
        "vanilla-seed0": 8,
        "vanilla-seed1": 8,  # at 0.4 when it ended
        "vanilla-seed2": 8,
        "rules-seed0": 4,
        "rules-seed1": 4,
        "rules-seed2": 8,
    }
    for trial in comparison.trials:
        assert value_of(trial, threshold.times["rollouts"]) == ROLLOUTS * rounds[trial.name]  # type: ignore[operator]
    baseline, rules = results_of(comparison, threshold.times["rounds"])
    assert baseline.estimate == mean_estimate([8.0, 8.0, 8.0])
    assert rules.estimate == mean_estimate([4.0, 4.0, 8.0])
    assert rules.difference == mean_estimate([-4.0, -4.0, 0.0])
    assert rules.adjusted_p == pytest.approx(rules.difference.p)


def test_trials_that_never_reach_it_are_censored_and_named(played: Path) -> None:
    comparison = write_results(played)
    threshold = of(comparison)
    found, other = threshold.reached(comparison, "vanilla"), threshold.reached(comparison, "rules")
    assert (found.trials, found.never, found.medians["rounds"]) == (3, ["vanilla-seed1"], 8)
    assert (other.never, other.medians["rounds"], other.medians["rollouts"]) == ([], 4, 4 * ROLLOUTS)
    text = report_of(played)
    assert "success of 50.0 %, the mean final success of vanilla." in text
    assert "| vanilla | 2 of 3 | 8 | 8.0 [8.0, 8.0] | baseline | 128 | 128 [128, 128] | baseline |" in text
    assert "| rules | 3 of 3 | 4 | 5.3 [-0.4, 11.1] | -2.7 [-8.4, +3.1] | 64 | 85 [-6, 177] | -43 [-134, +49] |" in text
    assert "**1 never reached it, and are censored at their last round:** vanilla-seed1." in text
    rows = table_rows(played)
    censored = {(row["arm"], row["seed"]): row["censored"] for row in rows if row["measure"] == "rounds_to_threshold"}
    assert censored["vanilla", "1"] == "1"
    assert censored["vanilla", "0"] == "0"
    assert (censored["vanilla", "all"], censored["rules", "all"]) == ("1", "0")
    assert {row["censored"] for row in rows if row["measure"] == "final"} == {""}
    # These runs did not count their tasks.
    assert "Data efficiency" not in text
    assert not (played / EFFICIENCY).exists()
    assert "tasks_to_threshold" not in {row["measure"] for row in rows}


def test_where_nobody_gets_there_there_is_no_median(played: Path) -> None:
    set_reading(played, threshold=1.0)
    (trial_folder(played, "rules", 0) / "metrics.jsonl").unlink()
    (trial_folder(played, "rules", 1) / "metrics.jsonl").unlink()
    comparison = write_results(played)
    found = of(comparison).reached(comparison, "rules")
    assert (found.trials, found.never, found.medians["rounds"]) == (1, ["rules-seed2"], None)
    assert "as given by `--threshold`" in report_of(played)
    assert "| rules | 0 of 1 | – | 8.0 [n/a] | +0.0 [n/a] |" in report_of(played)


def test_rollouts_are_restricted_to_the_time_for_which_all_were_watched(tmp_path: Path) -> None:
    finished(tmp_path, {"vanilla": [0.5, 0.5], "rules": [0.5, 0.5]}, growing)
    # One trial plays half as many: what others did later than it could be seen does not count.
    path = trial_folder(tmp_path, "vanilla", 0) / "metrics.jsonl"
    halved = path.read_text("utf-8").replace(f'"solver/rollouts": {ROLLOUTS}', f'"solver/rollouts": {ROLLOUTS // 2}')
    path.write_text(halved)
    comparison = collect(tmp_path)
    assert {value_of(trial, of(comparison).times["rollouts"]) for trial in comparison.trials} == {8 * ROLLOUTS // 2}
    path.write_text(path.read_text("utf-8").replace('"solver/rollouts"', '"solver/groups"'))
    comparison = collect(tmp_path)
    rollouts = [value_of(trial, of(comparison).times["rollouts"]) for trial in comparison.arm_trials("vanilla")]
    assert rollouts == [None, 8 * ROLLOUTS]
    assert of(comparison).reached(comparison, "vanilla").medians["rollouts"] is None


def test_failed_trials_are_in_no_time_and_without_a_baseline_there_is_none(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=1)
    play(tmp_path, "rules", 0, constant(0.5), rounds=4)
    mark_failed(trial_folder(tmp_path, "rules", 0), "it broke")
    assert threshold_of(collect(tmp_path)) is None
    write_results(tmp_path)
    assert "## To the threshold" not in report_of(tmp_path)
    play(tmp_path, "vanilla", 0, constant(0.5))
    comparison = write_results(tmp_path)
    assert of(comparison).reached(comparison, "rules").trials == 0
    assert of(comparison).reached(comparison, "vanilla").medians["rounds"] == 0
    assert "| rules | 0 of 0 | – | – | – | – | – | – |" in report_of(tmp_path)


NEW_TASKS = {"vanilla": 16, "rules": 4}


def with_new_tasks(out: Path, **levels: float) -> Path:
    make_comparison(out, seeds=2)
    for arm, level in levels.items():
        for seed in range(2):
            play(out, arm, seed, growing(level), new_tasks=NEW_TASKS[arm])
    return out


def test_tasks_to_the_threshold_are_those_seen_by_then(tmp_path: Path) -> None:
    """Success against the different tasks and the rollouts that it took, as values, table and picture."""
    comparison = write_results(with_new_tasks(tmp_path, vanilla=0.5, rules=1.0))
    threshold = of(comparison)
    # Vanilla is at 0.5 after round 8 of 128 tasks, rules after round 4 of 32; all were watched for 32.
    tasks = {
        arm: {value_of(each, threshold.times["tasks"]) for each in comparison.arm_trials(arm)} for arm in NEW_TASKS
    }
    assert tasks == {"vanilla": {ROUNDS * NEW_TASKS["rules"]}, "rules": {4 * NEW_TASKS["rules"]}}
    assert threshold.reached(comparison, "vanilla").medians["tasks"] == ROUNDS * NEW_TASKS["vanilla"]
    _, rules = results_of(comparison, threshold.times["tasks"])
    assert rules.difference == mean_estimate([-16.0, -16.0])
    text, rollouts = report_of(tmp_path), ROUNDS * ROLLOUTS
    assert f"| vanilla | 128 | {rollouts} | 50.0 [50.0, 50.0] | 128 | 32 [32, 32] | baseline |" in text
    assert f"| rules | 32 | {rollouts} | 100.0 [100.0, 100.0] | 16 | 16 [16, 16] | -16 [-16, -16] |" in text
    assert f"]({EFFICIENCY})" in text
    assert "within fewer than" not in text
    assert (tmp_path / EFFICIENCY).read_bytes().startswith(b"\x89PNG")
    row = picked(table_rows(tmp_path), arm="rules", seed="all", measure="tasks_to_threshold")
    assert float(row["value"]) == 16.0


def test_where_no_run_is_there_within_the_tasks_of_all_the_report_says_so(tmp_path: Path) -> None:
    write_results(with_new_tasks(tmp_path, vanilla=0.5, rules=0.25))
    assert "**No run reached it within fewer than 32 tasks**" in report_of(tmp_path)
