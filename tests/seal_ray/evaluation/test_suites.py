"""Counting an evaluation by suite, category and turn, and the official result files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from envs.bfcl.source import SOURCE
from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.errors import UserError
from envs.task import Task, sorted_categories
from envs.verifier import Outcome, TurnVerdict
from policies.trajectory import Trajectory
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.evaluation.records import Record, groups, success_interval
from seal_ray.evaluation.suites import PLAIN, PlainSuite, Suites
from seal_ray.metrics import Metric


class Played:
    """What counting needs of a dialogue."""

    def __init__(self, task: str, reward: float, category: str = "base", *labels: Label) -> None:
        self.task, self.reward, self.category = task, reward, category
        turns = tuple(TurnDiagnosis(n, each, "", TurnVerdict(n, Outcome.PASS)) for n, each in enumerate(labels))
        self.diagnosis = Diagnosis(task, category, turns, bool(reward))


class FirstSuite(PlainSuite):
    """The first of the plain suite's tasks, which is played once for both."""

    name = "first"

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]:
        return super().tasks(environment, evaluation)[:1]


def test_every_task_has_its_outcome_and_a_lost_one_none() -> None:
    suites = Suites([PlainSuite(), FirstSuite()], EnvironmentSection(), EvaluationSection(tasks=8))
    first, lost, *others = suites.tasks
    played = [Played(first.id, 1.0), *(Played(task.id, 0.0) for task in others)]
    outcomes = suites.outcomes(cast(list[Trajectory], played))
    assert outcomes["first"] == {first.category: {first.id: 1}}
    found = outcomes[PLAIN]
    assert list(found) == sorted_categories(task.category for task in suites.tasks)
    assert {name: category for category, tasks in found.items() for name in tasks} == {
        task.id: task.category for task in suites.tasks
    }
    assert {name: each for tasks in found.values() for name, each in tasks.items()} == {
        first.id: 1,
        lost.id: None,
        **{task.id: 0 for task in others},
    }


class BackwardSuite(PlainSuite):
    """The plain suite's tasks from the last to the first."""

    name = "backward"
    metrics = (Metric("first_won", "share", "Whether the first of its dialogues was won."),)

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]:
        return super().tasks(environment, evaluation)[::-1]

    def count(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {"first_won": trajectories[0].reward}


def test_a_suite_counts_its_dialogues_in_its_own_order() -> None:
    suites = Suites([PlainSuite(), BackwardSuite()], EnvironmentSection(), EvaluationSection(tasks=4))
    *others, last = suites.tasks
    played = [*(Played(task.id, 0.0, task.category) for task in others), Played(last.id, 1.0, last.category)]
    assert suites.count(cast(list[Trajectory], played))["backward/first_won"] == 1.0


def test_turns_are_counted_over_all_dialogues() -> None:
    suites = Suites([PlainSuite()], EnvironmentSection(), EvaluationSection(tasks=2))
    first, second = suites.tasks
    played = [
        Played(first.id, 0.0, first.category, Label.PASS, Label.CORRECT_ABSTENTION, Label.STATE_MISMATCH),
        Played(second.id, 0.0, second.category, Label.NOT_REACHED),
    ]
    assert suites.count(cast(list[Trajectory], played))["turns_done"] == 0.5


def record(task: str, reward: float, *labels: str, category: str = "base", seed: int = 0) -> Record:
    completions = tuple((f"call in turn {turn}", "done") for turn in range(len(labels)))
    return Record(task, category, seed, reward, "finished", labels or ("pass",), 10, 20, completions)


@pytest.mark.parametrize(
    ("won", "of", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17, table I, and the well-known value for all of ten.
    [(81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718), (10, 10, 0.7225, 1.0)],
)
def test_the_interval_is_wilsons(won: int, of: int, low: float, high: float) -> None:
    interval = success_interval([record(f"t{number}", float(number < won)) for number in range(of)])
    assert interval.share == pytest.approx(won / of)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_more_seeds_of_the_same_tasks_do_not_narrow_the_interval() -> None:
    one = success_interval([record(f"t{number}", float(number < 5)) for number in range(20)])
    many = success_interval(
        [record(f"t{number}", float(number < 5), seed=seed) for number in range(20) for seed in range(9)]
    )
    assert many == one
    assert (success_interval([]).low, success_interval([]).high) == (0.0, 1.0)


def test_counts_by_category() -> None:
    records = [
        record("a", 1.0, "pass", "pass"),
        record("b", 0.0, "pass", "state_mismatch"),
        record("c", 0.0, "correct_abstention", "spurious_tool_call", "not_reached", category="miss_func"),
    ]
    base, miss_func, everything = groups(records)
    assert (base.name, miss_func.name, everything.name) == ("base", "miss_func", "all")
    assert base.to_dict()["label_shares"] == {"pass": 0.75, "state_mismatch": 0.25}
    assert everything.to_dict()["success"] == pytest.approx(1 / 3)
    assert (miss_func.tasks, everything.dialogues) == (1, 3)
    assert [group.turns_done for group in (base, miss_func, everything)] == pytest.approx([3 / 4, 1 / 3, 4 / 7])


def test_result_files_leave_out_what_was_cut_off(tmp_path: Path) -> None:
    records = [
        record("multi_turn_base_3", 1.0, "pass", "pass"),
        record("multi_turn_base_1", 0.0, "pass", "not_reached"),
        record("multi_turn_miss_func_1", 0.0, "not_reached", category="miss_func"),
    ]
    SOURCE.write_results(tmp_path, records, "qwen")
    where = tmp_path / "Qwen_Qwen3-8B-FC" / "multi_turn"
    base, other = (where / f"BFCL_v4_multi_turn_{each}_result.json" for each in ("base", "miss_func"))
    rows = [json.loads(line) for line in base.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["multi_turn_base_1", "multi_turn_base_3"]
    assert rows[0]["result"] == [["call in turn 0", "done"]]
    assert len(rows[1]["result"]) == 2
    assert json.loads(other.read_text())["result"] == []
    SOURCE.write_results(tmp_path, records[:1], "qwen")
    assert list(where.iterdir()) == [base], "files of other categories are removed"


def test_several_dialogues_of_a_task_cannot_be_graded_officially(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one dialogue a task"):
        SOURCE.write_results(tmp_path, [record("a", 1.0), record("a", 1.0, seed=1)], "qwen")
    assert not list(tmp_path.iterdir())
