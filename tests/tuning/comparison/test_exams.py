"""Exams as measures of a comparison: by hand, with the numbers that they must come to."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seal_ray.statistics import mean_estimate
from tests.refusal import refusal
from tests.tuning.comparison.folders import ROUNDS, finished, table_rows
from tuning.comparison.collect import collect, trial_folder
from tuning.comparison.findings import exam_lines, exam_measures
from tuning.comparison.measures import results_of
from tuning.comparison.merge import merge
from tuning.comparison.report import write_results

GAINED = {"a": (2, 2), "b": (1, 1), "c": (0, 1)}
LEVELS = {"vanilla": [0.5] * 3, "rules": [0.5] * 3}
LOST = {"a": (1, 2), "b": (0, 1), "c": (0, 1)}


def examine(
    out: Path,
    arm: str,
    seed: int,
    groups: Mapping[str, tuple[int, int]],
    *,
    after: int = ROUNDS,
    notes: Sequence[str] = (),
    **settings: object,
) -> None:
    folder = trial_folder(out, arm, seed) / "exams"
    folder.mkdir(exist_ok=True)
    model = f"/round_2/checkpoints/round_{after:06d}/model"
    document = {"groups": {"sums": groups}, "notes": notes, "settings": {"model": {"model": model, **settings}}}
    (folder / "exam.json").write_text(json.dumps(document))


@pytest.fixture
def examined(tmp_path: Path) -> Path:
    """Three seeds of two arms, of which the second is better at sums; one trial was not examined."""
    out = tmp_path / "comparison"
    finished(out, LEVELS)
    for seed in range(3):
        examine(out, "vanilla", seed, LOST)
        if seed:
            examine(out, "rules", seed, GAINED)
    return out


def test_an_exam_is_a_measure_with_paired_differences(examined: Path) -> None:
    comparison = collect(examined)
    (measure,) = exam_measures(comparison)
    assert measure.name == "exam/sums"
    vanilla, rules = results_of(comparison, measure)
    assert vanilla.estimate is not None
    assert (vanilla.estimate.mean, vanilla.estimate.count, vanilla.difference) == (0.25, 3, None)
    assert rules.estimate is not None
    assert (rules.estimate.mean, rules.estimate.count) == (0.75, 2)
    assert rules.difference is not None
    assert (rules.difference.mean, rules.difference.count, rules.difference.tasks) == (0.5, 2, 3)
    lines = "\n".join(exam_lines(comparison))
    assert "| arm | exam/sums % |" in lines
    assert "+50.0 [" in lines


def test_groups_count_by_their_items(tmp_path: Path) -> None:
    finished(tmp_path, LEVELS)
    better, worse = {"a": (10, 10), "b": (0, 1), "c": (1, 1)}, {"a": (5, 10), "b": (0, 1), "c": (1, 1)}
    for seed in range(3):
        for arm, right in (("vanilla", worse), ("rules", better)):
            examine(tmp_path, arm, seed, right)
    comparison = collect(tmp_path)
    (measure,) = exam_measures(comparison)
    (_, rules) = results_of(comparison, measure)
    assert rules.difference is not None
    assert rules.difference.mean == pytest.approx(5 / 12)
    assert rules.difference.tasks == 3
    # All of the difference is in one group, which has ten of the twelve items.
    expected = mean_estimate([5 * 3 / 12, 0.0, 0.0])
    assert (rules.difference.low, rules.difference.high) == pytest.approx((expected.low, expected.high))


def test_report_table_and_merging_take_exams_along(examined: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    merge([examined], both)
    for folder in (examined, both):
        write_results(folder)
        assert "## Exams" in (folder / "report.md").read_text()
        rows = [row for row in table_rows(folder) if row["measure"] == "exam/sums"]
        found = {(row["arm"], row["seed"]): row["value"] for row in rows}
        assert found["vanilla", "0"] == "0.250000"
        assert found["rules", "0"] == "", "it was not examined"
        assert found["rules", "all"] == "0.750000"


def test_exams_that_do_not_fit_are_refused_and_merging_writes_nothing(examined: Path, tmp_path: Path) -> None:
    def check(sentence: str) -> None:
        assert sentence in refusal(exam_measures, collect(examined))
        assert sentence in refusal(merge, [examined], tmp_path / "both")
        assert not (tmp_path / "both").exists()

    examine(examined, "rules", 0, {"a": (2, 2)})
    check("had other items of sums")
    examine(examined, "rules", 0, GAINED, after=4)
    check("rules-seed0 was examined after round 4 and has 8")
    path = trial_folder(examined, "rules", 0) / "exams" / "exam.json"
    path.write_text('{"groups": {"sums": {"a": [1, 2]}}}')
    check("does not say which model")


def test_exams_under_other_settings_are_refused(examined: Path) -> None:
    examine(examined, "rules", 1, GAINED, engine="vllm", dtype="bfloat16", notes=["others: of another suite."])
    assert exam_measures(collect(examined)), "these change nothing, or rounding alone"
    examine(examined, "rules", 1, GAINED, budgets={"response": 128})
    said = refusal(exam_measures, collect(examined))
    assert "had other budgets in sums: None and {'response': 128}" in said
    examine(examined, "rules", 1, GAINED, notes=["sums: the user is another."])
    assert "had other notes in sums" in refusal(exam_measures, collect(examined))
