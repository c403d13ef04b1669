"""The histories of a run's arms and pool: read back, as tables and pictures, refused where there are none, and safe."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.json_form import interface_to_dict
from envs.text import visible
from seal_ray.report.arms import draw_gains, histories, history_as_rows, history_table, incumbent_of
from seal_ray.report.files import RunFolder
from seal_ray.report.page import drawn_picture
from seal_ray.report.pool import KINDS, POOL_PANELS, draw_spread, movement, newest, pool_table, read_pool
from seal_ray.rollout.types import Arm, arms_of
from tests.command_line import RunMain
from tests.seal_ray.proposing.test_task_pool import filled, play

GOOD, BAD = Interface(guidelines=("Ask $first.",)), Interface(guidelines=("Guess.",))
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202e \x9b2J \ud800"


def row(
    interfaces: list[Interface], gains: dict[int, tuple[float, float]], before: Interface, after: Interface
) -> dict[str, Any]:
    """A window of these arms, as the curator's loop reports it."""

    def arm_row(place: int, arm: Arm) -> dict[str, Any]:
        gain, error = gains.get(place, (0.0, 0.0) if arm.plain else (None, None))
        return {
            "id": arm.id,
            **interface_to_dict(arm.interface),
            "groups": 4,
            "rollouts": 32,
            "success": 0.5,
            "gain": gain,
            "error": error,
            "incumbent": arm.interface == before,
            "promoted": arm.interface == after != before,
        }

    return {"rounds": 2, "arms": [arm_row(place, arm) for place, arm in enumerate(arms_of(interfaces))]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"curator": {}})
    plain = Interface.plain()
    folder.arms.append({"round": 2, **row([GOOD, BAD], {1: (0.1, 0.05), 2: (-0.1, 0.05)}, plain, plain)})
    folder.arms.append({"round": 4, **row([GOOD], {1: (0.15, 0.04)}, plain, GOOD)})
    folder.arms.append({"round": 6, **row([GOOD, BAD], {1: (0.12, 0.03)}, GOOD, GOOD)})
    return folder.path


def printed(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=400).print(table)
    return out.getvalue()


def test_windows_are_joined_by_arm(run: Path, run_main: RunMain) -> None:
    plain, good, bad = histories(run)
    assert (plain.id, plain.shows) == ("plain", "nothing")
    assert good.promoted_at == (4,)
    assert [window.gain for window in good.windows] == [0.1, 0.15, 0.12]
    assert bad.last.gain is None
    assert incumbent_of([plain, good, bad]) == good
    text = run_main("curator", str(run))
    assert text.endswith("3 arms\n")
    text = printed(history_table(histories(run)))
    assert "+0.120 [+0.061, +0.179]" in text
    assert "4, in force" in text
    assert "1–6" in text
    assert "1–2, 5–6" in text
    assert [each["promoted_after"] for each in history_as_rows([good, bad])] == [[4], []]
    rows = map(json.loads, run_main("curator", str(run), "--json").splitlines())
    assert [each["gain"] for each in rows] == [0.0, 0.12, None]


def test_what_a_model_wrote_does_not_act(run: Path) -> None:
    folder = RunFolder(run)
    found = row([GOOD], {}, GOOD, GOOD)
    found["arms"][1] |= {"id": "x\x1b[2J", "guidelines": [HOSTILE, "[bold]not markup[/bold] $x_$"]}
    folder.arms.append({"round": 8, **found})
    text = printed(history_table(histories(run))) + "".join(f"{arm.id} {arm.shows}" for arm in histories(run))
    assert all(each.isprintable() for line in text.splitlines() for each in line)
    assert "not markup[/bold]" in text
    assert visible(HOSTILE).isprintable()


def test_gains_are_drawn_with_their_intervals_and_promotions(run: Path) -> None:
    axes = Figure().subplots()
    draw_gains(axes, histories(run))
    drawn = [[float(y) for y in np.asarray(line.get_ydata())] for line in axes.lines]
    for gains in ([0.1, 0.15, 0.12], [-0.1], [0.15]):
        assert pytest.approx(gains) in drawn, "the gains of an arm, or the promoted one"


@pytest.mark.parametrize("line", ["{", '{"round": 1}', '{"round": 2, "rounds": 1, "arms": [{"id": 3}]}'])
def test_a_broken_file_is_one_sentence(run: Path, line: str) -> None:
    with (run / "arms.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match="line 4"):
        histories(run)


@pytest.mark.parametrize("name", ["nowhere", "empty", "young"])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, name: str, run_main: RunMain) -> None:
    folder = tmp_path / name
    if name != "nowhere":
        folder.mkdir()
    if name == "young":
        (folder / "config.yaml").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    said = run_main("curator", str(folder), code=2)
    assert said.startswith("error: run: ")

    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def pool_run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"task_writer": {"kind": "random"}})
    pool = filled(6)
    folder.pool.append({"round": 2, "tasks": pool.rows()})
    play(pool, [0.0, 0.25, 0.5, 0.5, 0.75, 1.0])
    folder.pool.append({"round": 4, "tasks": pool.rows()})
    return folder.path


def test_the_pool_is_read_back_as_a_table_and_pictures(pool_run: Path, run_main: RunMain) -> None:
    first, last = read_pool(pool_run)
    assert (first.round, last.round) == (2, 4)
    assert [task.p for task in first.tasks] == [None] * 6
    text = printed(pool_table(newest(last.tasks, 0)))
    middle = last.tasks[2]
    assert f"0.50 [{middle.low:.2f}, {middle.high:.2f}]" in text
    assert printed(pool_table(newest(last.tasks, 2))).count("random") == 2
    for windows in ([first], [first, last]):
        for title, draw in {**POOL_PANELS, "spread": draw_spread}.items():
            assert "<svg" in drawn_picture(title, draw, windows, rows=()).svg
    said = run_main("pool", str(pool_run))
    assert "6 tasks after round 4" in said
    assert f"1: {last.tasks[0].specification}" in said
    rows = [json.loads(line) for line in run_main("pool", str(pool_run), "--json").splitlines()]
    assert [row["p"] for row in rows] == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0]


def test_what_a_model_wrote_does_not_act_in_a_terminal(pool_run: Path, run_main: RunMain) -> None:
    hostile = HOSTILE.removesuffix("\ud800")
    rows = [{**row, "specification": hostile, "writer": hostile} for row in filled(1).rows()]
    RunFolder(pool_run).pool.append({"round": 6, "tasks": rows})
    said = run_main("pool", str(pool_run))
    text = printed(pool_table(newest(read_pool(pool_run)[-1].tasks, 0))) + said
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text


def test_a_folder_without_a_pool_is_one_sentence(tmp_path: Path, pool_run: Path) -> None:
    with pytest.raises(UserError, match=r"is no folder of a run"):
        read_pool(tmp_path)
    (tmp_path / "config.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(UserError, match=r"has no pool.jsonl"):
        read_pool(tmp_path)
    RunFolder(pool_run).pool.append({"round": 8, "tasks": [{"task": 3}]})
    with pytest.raises(UserError, match=r"line 3 does not fit"):
        read_pool(pool_run)


def moving(folder: Path, rates: dict[int, tuple[float, float]]) -> Path:
    """A run whose pool has two tasks after each window, written in it, with these rates; the older ones go."""
    run = RunFolder(folder)
    run.write_config({"task_writer": {"kind": "random"}})
    (row,) = filled(1).rows()
    for number, both in rates.items():
        tasks = [{**row, "p": p, "rollouts": 8, "played": number, "written": number - 2} for p in both]
        run.pool.append({"round": number, "tasks": tasks})
    return folder


def test_runs_of_several_seeds_show_whether_success_moves_towards_one_half(tmp_path: Path, run_main: RunMain) -> None:
    runs = [
        moving(tmp_path / "a", {2: (0.0, 0.2), 4: (0.4, 0.4)}),
        moving(tmp_path / "b", {2: (0.2, 0.2), 4: (0.6, 0.6)}),
        moving(tmp_path / "c", {2: (0.9, 1.0), 4: (0.5, 0.5)}),
    ]
    found = movement([read_pool(run) for run in runs])
    with pytest.raises(UserError, match="windows; give runs of one length"):
        movement([read_pool(runs[0]), read_pool(moving(tmp_path / "other", {2: (0.0, 0.2)}))])
    for kind in KINDS:
        (first, last), nearer = found.means[kind], found.nearer[kind]
        assert first is not None
        assert last is not None
        assert nearer is not None
        assert [first.mean, last.mean] == pytest.approx([0.4167, 0.5], abs=1e-4)
        assert [last.low, last.high] == pytest.approx([0.2516, 0.7484], abs=1e-4)
        assert nearer.mean == pytest.approx((0.3 + 0.2 + 0.45) / 3), "the distance to one half, not the difference"
    said = run_main("pool", *map(str, runs))
    assert "0.500 [+0.252, +0.748]" in said
    assert run_main("pool", *map(str, runs), "--json", code=2).endswith("--json: it takes one run.\n")
