"""Shares, differences and their intervals, the two files of an exam, and its logs, which Inspect reads."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envs.exams import Exam
from seal_ray.exams.exam_run import Answer, AnswerLog
from seal_ray.exams.report import exam_rows, exam_table, write, write_exam_log
from seal_ray.report.inspect_log import LoggedSample, read_samples
from seal_ray.statistics import Interval, mcnemar, paired_difference, wilson
from tests.command_line import RunMain
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.exams.test_sitting import EXAM, adds, sit
from tests.seal_ray.inspect_reader import read_by_inspect


def answers(right: Sequence[bool], *, category: str = "c", per_group: int = 1, end: str = "stop") -> list[Answer]:
    return [
        Answer(f"{category}{n}", category, f"{category}{n // per_group}", True, each, "", end, None, 1, 1)
        for n, each in enumerate(right)
    ]


def by_item(found: Sequence[Answer]) -> dict[str, Answer]:
    return {each.item: each for each in found}


def test_mcnemar_is_the_exact_binomial() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == mcnemar(0, 5) == 2 / 32
    assert mcnemar(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert mcnemar(4, 4) == 1.0


def test_a_paired_difference_is_agrestis_and_mins() -> None:
    """Their interval, from its formula with half a pair added to each cell of the table."""
    both, better, worse, neither = 53, 16, 8, 9
    values = [0.0] * both + [1.0] * better + [-1.0] * worse + [0.0] * neither
    found = paired_difference({str(place): [value] for place, value in enumerate(values)})
    n, b, c = both + better + worse + neither + 2, better + 0.5, worse + 0.5
    centre, half = (b - c) / n, 1.959964 * (((b + c) - (b - c) ** 2 / n) ** 0.5) / n
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-6)
    assert found.share == pytest.approx(8 / 86)


def test_no_difference_is_not_taken_for_certain_and_groups_widen_the_interval() -> None:
    same = paired_difference({str(n): [0.0] for n in range(20)})
    assert same.share == 0
    assert same.low < -0.05 < 0.05 < same.high
    rng = random.Random(1)
    values = [float(rng.choice((-1, 1))) for _ in range(20)]
    alone = paired_difference({str(n): [values[n // 5]] for n in range(100)})
    together = paired_difference({str(n): [values[n]] * 5 for n in range(20)})
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert paired_difference({}) == Interval(0.0, -1.0, 1.0)
    assert paired_difference({"story": [1.0] * 20 + [0.0] * 11}) == Interval(20 / 31, -1.0, 1.0), (
        "one group says nothing of others"
    )


@pytest.mark.parametrize("groups", [2, 20])
def test_the_paired_interval_covers_the_truth_where_groups_are_few_and_large(groups: int) -> None:
    """Shares that differ from group to group, by 20 points, and nowhere on the whole."""
    rng, covered = random.Random(0), 0
    for _ in range(600):
        drawn: dict[str, list[float]] = {}
        for group in range(groups):
            lean = min(0.3, max(-0.3, rng.gauss(0, 0.2)))
            drawn[str(group)] = rng.choices((1.0, 0.0, -1.0), (0.15 + lean / 2, 0.7, 0.15 - lean / 2), k=31)
        found = paired_difference(drawn)
        covered += found.low <= 0 <= found.high
    assert covered >= 558


@pytest.mark.parametrize("agreement", [0.0, 1.0])
@pytest.mark.parametrize("sizes", [[5] * 20, [1] * 40 + [20] * 5], ids=["equal", "unequal"])
def test_intervals_cover_the_truth_with_groups_of_any_size(sizes: list[int], agreement: float) -> None:
    """An item repeats the first of its group with the probability `agreement`; the base is right in 40 %, not 60."""
    rng, draws = random.Random(0), 600
    shares = differences = 0

    def right(probability: float, size: int) -> list[bool]:
        first = rng.random() < probability
        return [first if rng.random() < agreement else rng.random() < probability for _ in range(size)]

    for _ in range(draws):
        groups = [(right(0.6, size), right(0.4, size)) for size in sizes]
        model, base = (
            [
                replace(answers([won])[0], item=f"{group}-{place}", group=str(group))
                for group, each in enumerate(groups)
                for place, won in enumerate(each[side])
            ]
            for side in (0, 1)
        )
        (row,) = exam_rows("s", model, by_item(base))
        assert row.compared is not None
        shares += row.model.low <= 0.6 <= row.model.high
        differences += row.compared.difference.low <= 0.2 <= row.compared.difference.high
    assert min(shares, differences) >= 0.92 * draws


def test_intervals_count_groups_and_rows_stand_by_category() -> None:
    model = [*answers([True] * 6 + [False] * 4, per_group=5), *answers([True] * 3, category="d")]
    first, second, whole = exam_rows("s", model)
    assert [row.category for row in (first, second, whole)] == ["c", "d", "all"]
    assert (first.items, first.groups, first.model) == (10, 2, wilson(0.6, 2))
    assert (whole.items, whole.groups) == (13, 5)
    assert len(exam_rows("s", answers([True]))) == 1
    unscored = Answer("p", "c", "p", False, False, "", "stop", None, 1, 1)
    assert exam_rows("s", [*answers([True]), unscored])[0].items == 1
    assert exam_rows("s", [])[0].items == 0


def test_only_items_that_both_answered_are_paired(tmp_path: Path) -> None:
    model, base = answers([True, True, False, True]), answers([False, True, True])
    (row,) = exam_rows("s", model, by_item(base))
    assert (row.items, row.model.share, row.compared and row.compared.base.share) == (3, 2 / 3, 2 / 3)
    assert row.compared is not None
    assert (row.compared.difference.share, row.compared.p) == (0, 1.0)
    rows = [row, *exam_rows("t", answers([True, False], end="response"), by_item(answers([False, False])))]
    write(tmp_path, rows, model="new", base="old", notes=["s: a note."], settings={"seed": 1}, answers={"s": model})
    document = json.loads((tmp_path / "exam.json").read_text())
    assert (document["model"], document["base"], document["notes"]) == ("new", "old", ["s: a note."])
    assert document["suites"]["t"]["c"]["difference"]["share"] == 0.5
    assert document["suites"]["t"]["c"]["ends"] == {"response": 2}
    text = (tmp_path / "exam.md").read_text()
    assert text.startswith("# Exam of new, next to old\n\n| suite | category | items |")
    assert "| t | c | 2 | 2 | 50.0 |" in text
    assert "2 answers did not come to an end, and count as wrong (response 2)." in text
    assert "s: a note." in text
    assert exam_table(rows, "title").row_count == 2


def written(folder: Path) -> Path:
    """The log of an exam whose second small sum was answered with nothing."""
    exam: Exam = EXAM
    sit(ScriptedEngine(adds(wrong=(" 1 and",))), folder)
    return write_exam_log(AnswerLog(folder, {"model": "x"}), "arithmetic", "tiny", [item.id for item in exam.items()])


def test_a_log_has_every_item_with_what_was_asked_and_said(tmp_path: Path, run_main: RunMain) -> None:
    path = written(tmp_path)
    assert run_main("show", str(tmp_path), "--failed").count(" · small_1 · right I\nuser    Add ") == 1
    samples = {each.id: each for each in read_samples(path)}
    assert len(samples) == 14
    said = [(each.role, each.content) for each in samples["small_0"].messages]
    assert said == [("user", "Add 0 and 1"), ("assistant", "1")]
    assert {each.scores["right"].value for name, each in samples.items() if name != "small_1"} == {"C", "N"}, (
        "the preparation of a story does not count"
    )
    assert samples["small_1"].scores["right"] == LoggedSample.Score(value="I", explanation="nothing")
    content = path.read_bytes()
    again = write_exam_log(AnswerLog(tmp_path, {"model": "x"}), "arithmetic", "tiny", list(samples))
    assert (again, again.read_bytes()) == (path, content)


def test_inspect_lists_and_reads_it(tmp_path: Path) -> None:
    (log,) = read_by_inspect(written(tmp_path).parent).values()
    assert (log["status"], log["model"], log["accuracy"]) == ("success", "tiny", 12 / 13)
    assert log["tokens"] > 0
    samples = {each["id"]: each for each in log["dialogues"]}
    assert [samples[name]["scores"]["right"] for name in ("small_0", "small_1", "first")] == ["C", "I", "N"]
    assert samples["small_0"]["messages"] == [["user", "Add 0 and 1"], ["assistant", "1"]]
