"""The pool of a run: read back, as table and picture, refused where there is none, safe in a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from envs.errors import UserError
from seal_ray.report.files import RunFolder
from seal_ray.report.pool import draw_pool, newest, pool_table, read_pool
from seal_ray.report.pools import KINDS, movement
from tests.command_line import run_main
from tests.seal_ray.proposing.test_task_pool import filled, play

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202e"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"task_writer": {"kind": "random"}})
    pool = filled(6)
    folder.pool.append({"round": 2, "tasks": pool.rows()})
    play(pool, [0.0, 0.25, 0.5, 0.5, 0.75, 1.0])
    folder.pool.append({"round": 4, "tasks": pool.rows()})
    return folder.path


def printed(tasks: Any, limit: int = 0) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(pool_table(newest(tasks, limit)))
    return out.getvalue()


def test_the_pool_is_read_back_as_a_table_and_a_picture(run: Path, tmp_path: Path) -> None:
    first, last = read_pool(run)
    assert (first.round, last.round) == (2, 4)
    assert [task.p for task in first.tasks] == [None] * 6
    text = printed(last.tasks)
    middle = last.tasks[2]
    assert f"0.50 [{middle.low:.2f}, {middle.high:.2f}]" in text
    assert printed(last.tasks, 2).count("random") == 2
    for windows in ([first], [first, last]):
        draw_pool(windows, tmp_path / "pool.png", title="run $x")
        assert (tmp_path / "pool.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_shows_it(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = run_main("pool", str(run), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    assert "6 tasks after round 4" in said
    assert f"1: {read_pool(run)[-1].tasks[0].specification}" in said
    assert (run / "pool.png").exists()
    code, said = run_main("pool", str(run), "--json", capsys=capsys, monkeypatch=monkeypatch)
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["p"] for row in rows] == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0]


def test_what_a_model_wrote_does_not_act_in_a_terminal(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**row, "specification": HOSTILE, "writer": HOSTILE} for row in filled(1).rows()]
    RunFolder(run).pool.append({"round": 6, "tasks": rows})
    _, said = run_main("pool", str(run), capsys=capsys, monkeypatch=monkeypatch)
    text = printed(read_pool(run)[-1].tasks) + said
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text


def test_a_folder_without_a_pool_is_one_sentence(tmp_path: Path, run: Path) -> None:
    with pytest.raises(UserError, match=r"is no folder of a run"):
        read_pool(tmp_path)
    (tmp_path / "config.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(UserError, match=r"has no pool.jsonl"):
        read_pool(tmp_path)
    RunFolder(run).pool.append({"round": 8, "tasks": [{"task": 3}]})
    with pytest.raises(UserError, match=r"line 3 is no window of a pool"):
        read_pool(run)


def moving(folder: Path, rates: dict[int, tuple[float, float]]) -> Path:
    """A run whose pool has two tasks after each window, written in it, with these rates; the older ones go."""
    run = RunFolder(folder)
    run.write_config({"task_writer": {"kind": "random"}})
    (row,) = filled(1).rows()
    for number, both in rates.items():
        tasks = [{**row, "p": p, "rollouts": 8, "played": number, "written": number - 2} for p in both]
        run.pool.append({"round": number, "tasks": tasks})
    return folder


def test_runs_of_several_seeds_show_whether_success_moves_towards_one_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        moving(tmp_path / "a", {2: (0.0, 0.2), 4: (0.4, 0.4)}),
        moving(tmp_path / "b", {2: (0.2, 0.2), 4: (0.6, 0.6)}),
        moving(tmp_path / "c", {2: (0.9, 1.0), 4: (0.5, 0.5)}),
    ]
    found = movement([read_pool(run) for run in runs])
    for kind in KINDS:
        first, last = found.means[kind]
        assert first is not None
        assert last is not None
        assert [first.value, last.value] == pytest.approx([0.4167, 0.5], abs=1e-4)
        assert [last.low, last.high] == pytest.approx([0.2516, 0.7484], abs=1e-4)
        nearer = found.nearer[kind]
        assert nearer is not None
        assert nearer.value == pytest.approx((0.3 + 0.2 + 0.45) / 3), "the distance to one half, not the difference"
    code, said = run_main("pool", *map(str, runs), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    assert "0.500 [+0.252, +0.748]" in said
    assert (runs[0] / "pools.png").read_bytes().startswith(b"\x89PNG")
    code, said = run_main("pool", *map(str, runs), "--json", capsys=capsys, monkeypatch=monkeypatch)
    assert (code, said.strip().endswith("--json: it takes one run.")) == (2, True)


def test_runs_of_other_windows_are_one_sentence(tmp_path: Path, run: Path) -> None:
    other = moving(tmp_path / "other", {2: (0.0, 0.2)})
    with pytest.raises(UserError, match="windows; give runs of one length"):
        movement([read_pool(run), read_pool(other)])
