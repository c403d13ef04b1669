"""Runs that learnt, exact tests, guided − plain, and the warning of arms that learn with some seeds alone."""

import re

import pytest

from seal_ray.report.files import JsonLines
from seal_ray.statistics import fisher_p, share_estimate, sign_flip_p
from tests.tuning.comparison.folders import finished, picked, report_of, table_rows
from tuning.comparison.collect import Comparison, trial_folder
from tuning.comparison.measures import FINAL, GUIDED, results_of
from tuning.comparison.report import write_results
from tuning.comparison.threshold import threshold_of

FINALS = {"vanilla": (0.2, 0.25, 0.2, 0.22), "rules": (0.6, 0.65, 0.55, 0.6), "coevolved": (0.6, 0.61, 0.2, 0.6)}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A comparison, guided better than plain by 10 points in one run, with its results written."""
    out = finished(tmp_path_factory.mktemp("played"), FINALS, threshold=0.5)
    lines = JsonLines(trial_folder(out, "rules", 0) / "metrics.jsonl")
    lines.replace([{**row, "solver/success_shown": row.get("solver/success_plain", 0.0) + 0.1} for row in lines.rows()])
    return write_results(out)


def test_runs_that_learnt_are_counted_with_wilsons_interval_and_fishers_test(played: Comparison) -> None:
    threshold = threshold_of(played)
    assert threshold is not None
    vanilla, rules, coevolved = results_of(played, threshold.learnt)
    assert [each.estimate for each in (vanilla, rules)] == [share_estimate([0.0] * 4), share_estimate([1.0] * 4)]
    assert (rules.exact_p, coevolved.exact_p) == (fisher_p(4, 4, 0, 4), fisher_p(3, 4, 0, 4))
    assert rules.adjusted_exact_p == pytest.approx(2 * fisher_p(4, 4, 0, 4)), "Holm's, for two arms"
    assert rules.difference is not None
    assert (rules.difference.mean, rules.difference.low, rules.difference.p) == (1.0, None, None)
    text = report_of(played.folder)
    assert "| coevolved | 3 of 4 [30, 95] | 0.14 (0.14) | 0.25 (0.25) | 0.25 (0.25) |" in text
    assert "| vanilla | 0 of 4 [0, 49] | baseline | baseline | baseline |" in text
    row = picked(table_rows(played.folder), arm="rules", seed="all", measure="learnt")
    assert (row["value"], row["p"], row["p_exact"]) == ("1.000000", "", "0.028571")


def test_the_sign_flip_test_stands_next_to_the_t_test(played: Comparison) -> None:
    _, rules, _ = results_of(played, FINAL)
    differences = [ours - theirs for ours, theirs in zip(FINALS["rules"], FINALS["vanilla"], strict=True)]
    assert rules.exact_p == sign_flip_p(differences) == 0.125
    assert "; sign-flip p = 0.12, 0.25)" in report_of(played.folder)
    row = picked(table_rows(played.folder), arm="rules", seed="all", measure="final")
    assert (row["p_exact"], row["p_exact_holm"]) == ("0.125000", "0.250000")


def test_an_arm_that_learns_with_some_seeds_alone_is_named(played: Comparison) -> None:
    (line,) = [line for line in report_of(played.folder).splitlines() if line.startswith("**All or nothing:**")]
    assert "coevolved in final (1 of 4 at 20 % or less, others from 60 %)" in line
    assert not re.search("rules|vanilla", line)


def test_guided_minus_plain_is_in_every_report(played: Comparison) -> None:
    _, rules, _ = results_of(played, GUIDED)
    assert rules.estimate is not None
    assert rules.estimate.mean == pytest.approx(0.1)
    assert "| rules | +10.0 [n/a] | +0.0 [" in report_of(played.folder)
