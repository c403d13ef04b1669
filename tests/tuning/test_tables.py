"""The tables of all commands at 80 columns: names stay whole, and nothing is cut."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table

from seal_ray.cli.console import make_console
from seal_ray.evaluation.records import groups, label_table, success_table
from seal_ray.exams.report import exam_rows, exam_table
from seal_ray.report.arms import ArmWindow, History, history_table
from seal_ray.report.pool import pool_table, read_pool
from tests.command_line import RunMain
from tests.seal_ray.evaluation.test_suites import record
from tests.seal_ray.exams.test_report import answers, by_item
from tests.seal_ray.report.test_arms import moving
from tests.tuning.comparison.folders import constant, make_comparison
from tests.tuning.comparison.folders import play as play_arm
from tests.tuning.sweep.test_sweep_results import make_sweep, play
from tuning.commands.sweep import trials_table
from tuning.sweep.results import collect

ARM = "coevolved-varied-frozen-2"
LONG = f"{ARM}-{'and-its-' * 3}length"
"""A name that leaves no room for the other columns."""


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def printed(table: Table, width: int = 80) -> str:
    file = io.StringIO()
    make_console(file=file, width=width).print(table)
    assert max(map(len, file.getvalue().splitlines())) <= width
    return file.getvalue()


def swept(folder: Path, name: str) -> Table:
    make_sweep(folder / "sweep")
    play(folder / "sweep", name, 1e-4, "dynamic", {0: 0.2, 4: 0.6}, rounds=4)
    return trials_table(collect(folder / "sweep"))


def pooled(folder: Path, name: str) -> Table:
    (task, _) = read_pool(moving(folder / "run", {2: (0.25, 0.5)}))[0].tasks
    return pool_table([task.model_copy(update={"category": name, "writer": "tiny-writer", "profile": "a profile"})])


METHODS = ("vanilla", "coevolved-truncated", "coevolved-varied", "llm-shown-unweighted")
WINDOW = {
    "schema_cues": [],
    "recovery": "none",
    "guidelines": ["Ask."],
    "groups": 10,
    "rollouts": 80,
    "success": 0.5,
    "gain": 0.1,
    "error": 0.1,
    "incumbent": True,
    "promoted": True,
    "round": 1200,
    "rounds": 200,
}
TABLES: dict[str, Callable[[Path, str], Table]] = {
    "evaluate": lambda _, name: success_table(groups([record("t", 1.0, category=name)]), f"{ARM} on bfcl dev"),
    "labels": lambda _, name: label_table(groups([record("t", 1.0, category=name), record("u", 0.0)])),
    "exam": lambda _, name: exam_table(
        exam_rows(name, answers([True, False]), by_item(answers([True, True]))), f"{ARM} and base"
    ),
    "curator": lambda _, name: history_table([History(name, (ArmWindow.model_validate(WINDOW | {"id": name}),))]),
    "sweep": swept,
    "pool": pooled,
}


@pytest.mark.parametrize("name", [ARM, LONG])
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_shows_every_name_whole(kind: str, name: str, tmp_path: Path) -> None:
    text = printed(TABLES[kind](tmp_path, name))
    assert "…" not in text
    assert name in text


@pytest.mark.parametrize("arms", [(ARM, "vanilla"), (ARM, LONG)])
def test_a_comparison_shows_every_arm_whole(arms: tuple[str, ...], tmp_path: Path, run_main: RunMain) -> None:
    make_comparison(tmp_path / "run", arms)
    for arm in arms:
        for seed in range(3):
            play_arm(tmp_path / "run", arm, seed, constant(0.5 + 0.1 * seed))
    said = run_main("compare", "--report", str(tmp_path / "run"))
    assert "…" not in said
    assert [arm for arm in arms if arm not in said] == []
    assert "60.0" in said


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("tasks --counts", ("MessageAPI", "miss_param")),
        ("tasks --limit 0 --category base", ("multi_turn_base_0 ", "base")),
        ("presets", METHODS),
        ("train --dry-run --preset tiny --preset llm-shown-unweighted", ("learner", "learning rate")),
        (f"compare --dry-run --preset qwen2.5-7b --arms {','.join(METHODS)}", METHODS),
        ("sweep --dry-run --preset qwen2.5-7b --preset coevolved", ("training.lr", "to")),
    ],
)
def test_the_tables_of_commands_and_plans_are_whole(words: str, texts: tuple[str, ...], run_main: RunMain) -> None:
    said = run_main(*words.split())
    assert "…" not in said
    assert [text for text in texts if text not in said] == []
