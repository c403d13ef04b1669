"""Comparisons at equal sampled tokens: curves are read at the tokens that all runs of a pair sampled."""

from pathlib import Path

import pytest

from seal_ray.report.files import JsonLines, Row
from tests.command_line import RunMain
from tests.tuning.comparison.folders import (
    ROUNDS,
    constant,
    drawn,
    finished,
    growing,
    make_comparison,
    picked,
    play,
    report_of,
    table_rows,
)
from tuning.comparison.collect import collect, trial_folder
from tuning.comparison.measures import (
    AREA,
    FINAL,
    HINT_OFF,
    by_task,
    results_of,
    rows_over_tokens,
    spent_tokens,
    token_budget,
    tokens_until,
    value_of,
)
from tuning.comparison.report import write_results
from tuning.comparison.threshold import threshold_of


def count_tokens(out: Path, arm: str, seed: int, solver: float, probes: float = 0.0) -> None:
    """Adds the sampled tokens of each round to the metrics of a trial."""
    lines = JsonLines(trial_folder(out, arm, seed) / "metrics.jsonl")
    counts = {"solver/tokens_sampled": solver, **({"curator/probe_tokens": probes} if probes else {})}
    lines.replace([row | (counts if row["round"] else {}) for row in lines.rows()])


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Both arms grow to 0.8; the one with a curator samples twice as many tokens, half of them in probes."""
    finished(tmp_path, {"vanilla": [0.8] * 2, "rules": [0.8] * 2}, growing, match="tokens", threshold=0.4)
    for seed in range(2):
        for arm, probes in (("vanilla", 0.0), ("rules", 100.0)):
            count_tokens(tmp_path, arm, seed, 100.0, probes)
    return tmp_path


def test_tokens_of_probes_and_of_all_agents_count() -> None:
    counts = {"solver/tokens_sampled": 5.0, "curator/probe_tokens": 3.0, "task_writer/tokens_sampled": 1.0}
    rows: list[Row] = [
        {"round": 0},
        {"round": 1, **counts},
        {"round": 2, "solver/tokens_sampled": 1.0, "solver/tokens": 9.0},
    ]
    assert spent_tokens(rows) == {0: 0.0, 1: 9.0, 2: 10.0}
    assert [tokens_until(rows, number) for number in (0, 2, 3)] == [0.0, 10.0, None]
    assert spent_tokens([*rows, {"round": 3}]) == {}, "a round without a count leaves the sum unknown"


def test_evaluations_are_read_in_a_straight_line_between_their_neighbours() -> None:
    rows: list[Row] = [
        {"round": number, "evaluation/success": value} for number, value in ((0, 0.0), (4, 0.4), (8, 0.6))
    ]
    spent = {number: 10.0 * number for number in range(9)}
    found = rows_over_tokens(rows, spent, 60.0, 8)
    assert [row["round"] for row in found] == pytest.approx([0, 8 * 40 / 60, 8])
    assert found[-1]["evaluation/success"] == pytest.approx(0.5)
    assert rows_over_tokens(rows, spent, 80.0, 8) == rows, "at the last round it is the evaluation itself"
    lost: list[Row] = [*rows[:2], {**rows[2], "evaluation/success": None}]
    assert rows_over_tokens(lost, spent, 60.0, 8)[-1]["evaluation/success"] is None


def test_arms_are_compared_at_the_tokens_that_both_sampled(played: Path) -> None:
    comparison = write_results(played)
    assert token_budget(comparison, "rules") == 100.0 * ROUNDS
    vanilla, rules = results_of(comparison, FINAL)
    assert vanilla.estimate is not None
    assert rules.estimate is not None
    assert rules.difference is not None
    # After half of its rounds, where the curve is at half of its height; the baseline alone is read at its end.
    assert (vanilla.estimate.mean, rules.estimate.mean) == pytest.approx((0.8, 0.4))
    assert rules.difference.mean == pytest.approx(-0.4)
    assert results_of(comparison, AREA)[1].estimate.mean == pytest.approx(0.2)  # type: ignore[union-attr]
    assert results_of(comparison, HINT_OFF)[1].difference.mean < 0  # type: ignore[union-attr]
    assert "is read at the tokens that all their runs sampled" in report_of(played)
    threshold = threshold_of(comparison)
    assert threshold is not None
    assert [value_of(each, threshold.times["tokens"]) for each in comparison.trials] == [400.0, 400.0, 800.0, 800.0]
    assert picked(table_rows(played), arm="rules", seed="all", measure="tokens_to_threshold")["value"] == "800.000000"


def test_tasks_are_read_at_the_same_tokens(tmp_path: Path) -> None:
    make_comparison(tmp_path, seeds=2, match="tokens")
    for place, arm in enumerate(("vanilla", "rules")):
        for seed in range(2):
            play(tmp_path, arm, seed, constant(0.5), solved=drawn({"base": 0.9}, 10 * place + seed))
            count_tokens(tmp_path, arm, seed, 100.0 * (1 + place))
    comparison = collect(tmp_path)
    budget = token_budget(comparison, "rules")
    for trial in comparison.trials:
        tasks = by_task(trial, FINAL, budget)
        assert sum(tasks.values()) / len(tasks) == pytest.approx(value_of(trial, FINAL, budget))
    difference = results_of(comparison, FINAL)[1].difference
    assert difference is not None
    assert difference.tasks == 40


def test_runs_without_a_count_of_tokens_are_refused(tmp_path: Path, run_main: RunMain) -> None:
    make_comparison(tmp_path, seeds=1)
    play(tmp_path, "vanilla", 0, constant(0.25))
    said = run_main("compare", "--report", str(tmp_path), "--match", "tokens", code=2)
    assert "--match: vanilla-seed0 has no count of its sampled tokens; use --match rollouts." in said
    run_main("compare", "--report", str(tmp_path), "--match", "rollouts")
    assert collect(tmp_path).manifest.match == "rollouts"
