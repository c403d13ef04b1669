"""Data efficiency: success against the different tasks and the rollouts that it took."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.tuning.comparison.folders import ROLLOUTS, ROUNDS, growing, make_comparison, play
from tuning.comparison.collect import collect
from tuning.comparison.findings import EFFICIENCY
from tuning.comparison.measures import value_of
from tuning.comparison.report import REPORT, TABLE, write_results
from tuning.comparison.results import results_of
from tuning.comparison.threshold import threshold_of
from tuning.statistics import mean_estimate

NEW_TASKS = {"vanilla": 16, "rules": 4}


def played(out: Path) -> Path:
    make_comparison(out, seeds=2)
    for arm, new in NEW_TASKS.items():
        for seed in range(2):
            play(out, arm, seed, growing(0.5 if arm == "vanilla" else 1.0), new_tasks=new)
    return out


def test_tasks_to_the_threshold_are_those_seen_by_then(tmp_path: Path) -> None:
    comparison = collect(played(tmp_path))
    threshold = threshold_of(comparison)
    assert threshold is not None
    # Vanilla is at 0.5 after round 8 of 128 tasks, rules after round 4 of 32; all were watched for 32.
    assert {value_of(each, threshold.tasks) for each in comparison.arm_trials("vanilla")} == {
        ROUNDS * NEW_TASKS["rules"]
    }
    assert {value_of(each, threshold.tasks) for each in comparison.arm_trials("rules")} == {4 * NEW_TASKS["rules"]}
    assert threshold.reached(comparison, "vanilla").median_tasks == ROUNDS * NEW_TASKS["vanilla"]
    _, rules = results_of(comparison, threshold.tasks)
    assert rules.difference == mean_estimate([-16.0, -16.0])


def test_the_report_has_a_table_and_a_picture(tmp_path: Path) -> None:
    write_results(played(tmp_path))
    text = (tmp_path / REPORT).read_text("utf-8")
    rollouts = ROUNDS * ROLLOUTS
    assert f"| vanilla | 128 | {rollouts} | 50.0 [50.0, 50.0] | 128 | 32 [32, 32] | baseline |" in text
    assert f"| rules | 32 | {rollouts} | 100.0 [100.0, 100.0] | 16 | 16 [16, 16] | -16 [-16, -16] |" in text
    assert f"]({EFFICIENCY})" in text
    assert (tmp_path / EFFICIENCY).read_bytes().startswith(b"\x89PNG")
    with (tmp_path / TABLE).open(encoding="utf-8", newline="") as file:
        found = {row["arm"]: row for row in csv.DictReader(file) if row["measure"] == "tasks_to_threshold"}
    assert (found["rules"]["seed"], float(found["rules"]["value"])) == ("all", 16.0)


def test_where_no_run_is_there_within_the_tasks_of_all_the_report_says_so(tmp_path: Path) -> None:
    write_results(played(tmp_path / "reached"))
    make_comparison(tmp_path / "never", seeds=2)
    for arm, new in NEW_TASKS.items():
        for seed in range(2):
            play(tmp_path / "never", arm, seed, growing(0.5 if arm == "vanilla" else 0.25), new_tasks=new)
    write_results(tmp_path / "never")
    assert "within fewer than" not in (tmp_path / "reached" / REPORT).read_text("utf-8")
    assert "**No run reached it within fewer than 32 tasks**" in (tmp_path / "never" / REPORT).read_text("utf-8")


def test_runs_that_did_not_count_tasks_have_neither(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=1)
    for arm in NEW_TASKS:
        play(tmp_path, arm, 0, growing(0.5))
    write_results(tmp_path)
    assert "Data efficiency" not in (tmp_path / REPORT).read_text("utf-8")
    assert not (tmp_path / EFFICIENCY).exists()
    assert "tasks_to_threshold" not in (tmp_path / TABLE).read_text("utf-8")
