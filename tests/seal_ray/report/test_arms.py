"""The history of a run's arms: read back, as table and picture, refused where there is none, safe in a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.json_form import interface_to_dict
from envs.text import visible
from seal_ray.report.arms import draw_history, history_as_rows, history_table, incumbent_of, read_history
from seal_ray.report.files import RunFolder
from seal_ray.rollout.types import Arm, arms_of
from tests.command_line import run_main

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


def printed(run: Path) -> str:
    out = io.StringIO()
    Console(file=out, width=400).print(history_table(read_history(run)))
    return out.getvalue()


def test_windows_are_joined_by_arm(run: Path) -> None:
    plain, good, bad = read_history(run)
    assert (plain.id, plain.shows) == ("plain", "nothing")
    assert good.promoted_at == (4,)
    assert [window.gain for window in good.windows] == [0.1, 0.15, 0.12]
    assert bad.last.gain is None
    assert incumbent_of([plain, good, bad]) == good
    text = printed(run)
    assert "+0.120 [+0.061, +0.179]" in text
    assert "4, in force" in text
    assert "1–6" in text
    assert "1–2, 5–6" in text
    assert [each["promoted_after"] for each in history_as_rows([good, bad])] == [[4], []]


def test_what_a_model_wrote_does_not_act(run: Path) -> None:
    folder = RunFolder(run)
    found = row([GOOD], {}, GOOD, GOOD)
    found["arms"][1] |= {"id": "x\x1b[2J", "guidelines": [HOSTILE, "[bold]not markup[/bold] $x_$"]}
    folder.arms.append({"round": 8, **found})
    text = printed(run) + "".join(f"{arm.id} {arm.shows}" for arm in read_history(run))
    assert all(each.isprintable() for line in text.splitlines() for each in line)
    assert "not markup[/bold]" in text
    draw_history(read_history(run), run / "picture.png")
    assert visible(HOSTILE).isprintable()


def test_the_picture_is_drawn_with_and_without_arms(run: Path) -> None:
    for arms in (read_history(run), []):
        draw_history(arms, run / "arms.png", title="a run")
        assert (run / "arms.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("line", ["{", '{"round": 1}', '{"round": 2, "rounds": 1, "arms": [{"id": 3}]}'])
def test_a_broken_file_is_one_sentence(run: Path, line: str) -> None:
    with (run / "arms.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match="line 4"):
        read_history(run)


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = run_main("curator", str(run), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 0
    assert "3 arms, picture in" in said
    assert (run / "arms.png").is_file()
    code, said = run_main("curator", str(run), "--json", capsys=capsys, monkeypatch=monkeypatch)
    assert [json.loads(each)["gain"] for each in said.splitlines()] == [0.0, 0.12, None]


@pytest.mark.parametrize("name", ["nowhere", "empty", "young"])
def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    if name != "nowhere":
        folder.mkdir()
    if name == "young":
        (folder / "config.yaml").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    code, said = run_main("curator", str(folder), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert said.startswith("error: run: ")
    assert said.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
