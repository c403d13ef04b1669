"""The run folder: what is written is read back, and a kill at any byte costs one line at most."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.errors import UserError
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.interface.json_form import interface_from_dict
from envs.profile import FailureProfile
from policies.trajectory import interface_id
from seal_ray.report.files import JsonLines, RunFolder, replace_folder, settle_folder

STRANGE = "one\u2028two\u2029three\x85four\x1c\ud800 ünd \x00 \r\n end"
"""Characters that `str.splitlines` takes for line ends, half of a surrogate pair, and others."""
SHOWN = Interface((SchemaCue(CueKind.REQUIRED),), RecoveryLevel.CLASS, ("Be brief.",))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "a_run")


def fill(folder: RunFolder, rounds: int) -> None:
    for number in range(1, rounds + 1):
        folder.append_metrics(number, {"solver/success": number / 100})
        folder.evaluations.append({"round": number, "suites": {"plain": {"base": {"a": 1, "b": None}}}})
        folder.append_interfaces(number, {2: SHOWN, 0: Interface.plain()})
        folder.profiles.append({"round": number, "profile": FailureProfile().to_dict()})
        for kind in ("round", "evaluation"):
            folder.log_of(kind, number).write_bytes(b"a log")


def rounds(lines: JsonLines) -> list[int]:
    return [row["round"] for row in lines.rows()]


def test_a_folder_is_created_and_opened_again_unchanged(folder: RunFolder) -> None:
    assert folder.checkpoints.is_dir()
    assert folder.metrics.rows() == []
    fill(folder, 2)
    with folder.metrics.path.open("ab") as file:
        file.write(b'{"round": 3, "solv')
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    again = RunFolder(folder.path)
    assert rounds(again.metrics) == [1, 2]
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_file_in_the_way_is_told_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "a_run").write_text("not a folder")
    with pytest.raises(UserError, match=r"run folder: .*a_run cannot be created"):
        RunFolder(tmp_path / "a_run")


def test_what_is_written_is_read_back(folder: RunFolder) -> None:
    fill(folder, 2)
    assert folder.metrics.rows() == [{"round": 1, "solver/success": 0.01}, {"round": 2, "solver/success": 0.02}]
    (_, row) = folder.interfaces.rows()
    assert [shown.pop("number") for shown in row["interfaces"]] == [0, 2]
    assert [shown.pop("id") for shown in row["interfaces"]] == ["plain", interface_id(SHOWN)]
    assert [interface_from_dict(shown) for shown in row["interfaces"]] == [Interface.plain(), SHOWN]
    assert folder.profiles.rows()[0]["profile"] == FailureProfile().to_dict()
    with pytest.raises(ValueError, match="metric: 'solver/sucess' is not known"):
        folder.append_metrics(3, {"solver/sucess": 0.5})
    with pytest.raises(TypeError, match="type object, which has no JSON form"):
        folder.metrics.append({"round": 3, "profile": object()})
    assert rounds(folder.metrics) == [1, 2]
    folder.metrics.append({"round": "3"})
    with pytest.raises(UserError, match="round: Input should be a valid integer"):
        folder.truncate_after(1)


def test_strange_text_stays_within_its_line(folder: RunFolder) -> None:
    folder.profiles.append({"round": 1, "profile": STRANGE})
    folder.profiles.append({"round": 2, "profile": "plain"})
    assert [row["profile"] for row in folder.profiles.rows()] == [STRANGE, "plain"]
    # Another program may write such characters as they are.
    text = json.dumps({"round": 3, "profile": "a\u2028b\x85c"}, ensure_ascii=False)
    with folder.profiles.path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
    assert folder.profiles.rows()[2]["profile"] == "a\u2028b\x85c"
    folder.truncate_after(3)
    assert [row["profile"] for row in folder.profiles.rows()] == [STRANGE, "plain", "a\u2028b\x85c"]


def test_numbers_that_are_not_finite_become_null(folder: RunFolder) -> None:
    folder.profiles.append(
        {"round": math.nan, "deep": [{"in": (1, -math.inf)}], "all": (0.5, 1.5), "some": [0.5, math.inf]}
    )
    line = folder.profiles.path.read_text()
    assert json.loads(line) == {"round": None, "deep": [{"in": [1, None]}], "all": [0.5, 1.5], "some": [0.5, None]}
    assert "NaN" not in line
    assert "Infinity" not in line


@given(cut=st.integers(0, 120))
@settings(deadline=None)
def test_a_kill_at_any_byte_costs_the_last_line_at_most(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    lines = JsonLines(tmp_path_factory.mktemp("cut") / "lines.jsonl")
    for number in range(4):
        lines.append({"round": number, "text": "some text"})
    content = lines.path.read_bytes()[:cut]
    lines.path.write_bytes(content)
    whole = content.count(b"\n")
    assert rounds(lines) == list(range(whole))
    lines.append({"round": 9})
    assert rounds(lines) == [*range(whole), 9]
    assert lines.path.read_bytes().endswith(b'\n{"round": 9}\n' if whole else b'{"round": 9}\n')


def test_later_rounds_are_dropped(folder: RunFolder) -> None:
    fill(folder, 5)
    for lines in (folder.metrics, folder.interfaces):
        with lines.path.open("ab") as file:
            file.write(b'{"round": 6, "int')
    folder.truncate_after(3)
    for lines in (folder.metrics, folder.evaluations, folder.interfaces, folder.profiles):
        assert rounds(lines) == [1, 2, 3]
        assert lines.path.read_bytes().endswith(b"}\n")
    kept = {folder.log_of(kind, number) for kind in ("round", "evaluation") for number in (1, 2, 3)}
    assert set(folder.logs.iterdir()) == kept
    folder.append_metrics(4, {"solver/success": 0.9})
    assert folder.metrics.rows()[-2:] == [{"round": 3, "solver/success": 0.03}, {"round": 4, "solver/success": 0.9}]
    folder.truncate_after(0)
    assert rounds(folder.metrics) == []
    assert list(folder.logs.iterdir()) == []


def test_dropping_leaves_other_files_alone(folder: RunFolder) -> None:
    folder.truncate_after(0)
    assert not folder.metrics.path.exists()
    (folder.logs / "notes.txt").write_text("mine")
    (folder.checkpoints / "round_000009.eval").write_text("mine")
    folder.truncate_after(0)
    assert (folder.logs / "notes.txt").exists()
    assert (folder.checkpoints / "round_000009.eval").exists()


@pytest.mark.parametrize("line", ["not json", "[1]", '"text"', '{"rou', "\udcff"])
def test_a_broken_line_in_the_middle_is_named(folder: RunFolder, line: str) -> None:
    content = b'{"round": 1}\n' + line.encode("utf-8", "surrogateescape") + b'\n{"round": 3}\n'
    folder.metrics.path.write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2 is n"):
        folder.metrics.rows()
    with pytest.raises(UserError, match="line 2"):
        folder.truncate_after(1)
    assert folder.metrics.path.read_bytes() == content


class Kind(StrEnum):
    RULES = "rules"


def test_a_config_is_written_and_read(folder: RunFolder) -> None:
    config = {
        "seed": 3,
        "curator": {"kind": Kind.RULES, "of_another_version": (STRANGE.replace("\ud800", ""), "ünd")},
        "solver": {"model": Path("a/model")},
        "training": {"lr": 1e-6},
    }
    folder.write_config(config)
    assert folder.read_config() == {
        **config,
        "curator": {"kind": "rules", "of_another_version": [STRANGE.replace("\ud800", ""), "ünd"]},
        "solver": {"model": "a/model"},
    }
    assert folder.config.read_text("utf-8").startswith("seed: 3\ncurator:\n")
    with pytest.raises(TypeError, match="no JSON form"):
        folder.write_config({"made": {1, 2}})
    assert folder.read_config()["seed"] == 3


def test_a_config_that_cannot_be_read_is_told_to_the_user(folder: RunFolder) -> None:
    with pytest.raises(UserError, match=r"config\.yaml cannot be read"):
        folder.read_config()
    for content, what in (
        ("a: [", "is not valid YAML"),
        ("- 1", "holds no sections"),
        ("training: 1", "training: 1 does not fit"),
        ("training: {lr: fast}", "training.lr: 'fast' does not fit"),
        ("training: {lr: .nan}", "NaN is no finite number"),
    ):
        folder.config.write_text(content)
        with pytest.raises(UserError, match=what):
            folder.read_config()


def test_the_report_loads_neither_ray_nor_what_only_some_need() -> None:
    program = (
        "import sys, seal_ray.report.files, seal_ray.report.trackers\n"
        "print([name for name in ('ray', 'torch', 'wandb', 'matplotlib') if name in sys.modules])\n"
        "import seal_ray.report.pictures\n"
        "print([name for name in ('ray', 'torch', 'wandb') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    found = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n[]\n"


@pytest.mark.parametrize("kill", range(4))
def test_a_kill_while_a_folder_is_replaced_leaves_one_of_both(
    kill: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    for number in ("1", "2"):
        new = tmp_path / "state.part"
        new.mkdir()
        (new / "number").write_text(number)
        if number == "1":
            replace_folder(path, new)
    steps = iter(range(4))

    def killed_at(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(steps) == kill:
                raise KeyboardInterrupt
            return step(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed_at(shutil.rmtree))
        patched.setattr(Path, "rename", killed_at(Path.rename))
        with pytest.raises(KeyboardInterrupt):
            replace_folder(path, new)
    settle_folder(path)
    assert (path / "number").read_text() == ("1" if kill < 3 else "2")
    assert {each.name for each in tmp_path.iterdir()} <= {"state", "state.part"}
