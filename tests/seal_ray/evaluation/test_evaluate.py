"""`seal-ray evaluate` as a user meets it: tables, files, resuming, and what is refused before anything starts."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from envs.task import JSON
from seal_ray.report.files import JsonLines
from tests.command_line import Refusal, RunMain
from tests.policies.chat_models import random_chat_model
from tests.processes import PROGRAM, seal_ray


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_chat_model(tmp_path_factory.mktemp("models") / "random-qwen", "qwen")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_chat_model(tmp_path_factory.mktemp("models") / "random-llama", "llama3_json")


def rows_of(out: Path) -> list[dict[str, JSON]]:
    return JsonLines(out / "trajectories.jsonl").rows()


def test_a_llama_plays_the_toolworld_on_transformers_and_a_second_call_plays_nothing(
    llama: Path, tmp_path: Path, run_main: RunMain
) -> None:
    options = (str(llama), "--limit", "6", "--engine", "transformers", "--response", "24", "--seeds", "2")
    arguments = ("evaluate", *options, "--temperature", "1.0", "--out", str(tmp_path / "out"))
    first = seal_ray(*arguments)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 12
    assert len({row["task"] for row in rows}) == 6
    assert len({row["seed"] for row in rows}) == 12
    again = run_main(*arguments)
    assert "12 dialogues were already there" in again
    assert rows_of(tmp_path / "out") == rows
    tables = [re.sub(r"\d+ tokens sampled.*", "", shown).split("success %")[1][:900] for shown in (first, again)]
    assert tables[0] == tables[1]


def test_stopped_with_ctrl_c_it_goes_on_where_it_was(qwen: Path, tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "out"
    options = [str(qwen), "--limit", "24", "--engine", "transformers", "--response", "60"]
    options += ["--concurrent", "2"]
    whole = ("evaluate", *options, "--out", str(tmp_path / "whole"))
    said = run_main(*whole)
    running = subprocess.Popen(
        [*PROGRAM, "evaluate", *options, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    for _ in range(1800):
        if len(rows_of(out)) >= 5:
            break
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=180)
    assert running.returncode == 130, errors.decode()[-2000:]
    before = rows_of(out)
    assert 5 <= len(before) < 24
    with (out / "trajectories.jsonl").open("a") as file:
        file.write('{"task": "cut off')  # as a kill in the middle of a line leaves it
    said = run_main("evaluate", *options, "--out", str(out))
    assert f"{len(before)} dialogues were already there" in said
    by_task = [{row["task"]: row["token_ids"] for row in rows_of(folder)} for folder in (out, tmp_path / "whole")]
    assert by_task[0] == by_task[1]
    assert len(rows_of(out)) == 24


@pytest.mark.only_by(target="long")
def test_stopped_on_vllm_it_leaves_no_process_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--limit", "1000", "--concurrent", "8", "--context", "2048", "--response", "128", "--out", str(out)]
    running = subprocess.Popen([*PROGRAM, "evaluate", *options], stderr=subprocess.PIPE, start_new_session=True)
    for _ in range(3000):
        if running.poll() is not None or len(rows_of(out)) >= 3:
            break
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)  # the other signal takes the same way from here on
    _, errors = running.communicate(timeout=180)
    assert running.returncode == 130, errors.decode()[-2000:]
    assert len(rows_of(out)) >= 3
    for _ in range(150):
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("some process of the command is still there")


def test_another_evaluation_is_not_mixed_in(qwen: Path, tmp_path: Path, run_main: RunMain) -> None:
    options = ("evaluate", str(qwen), "--limit", "2", "--engine", "transformers", "--out", str(tmp_path / "out"))
    run_main(*options, "--response", "5")
    said = run_main(*options, "--response", "6", code=2)
    assert "holds another evaluation; give another folder, or --fresh" in said
    run_main(*options, "--response", "6", "--fresh")


def test_files_of_something_else_are_not_replaced_unless_asked(
    qwen: Path, tmp_path_factory: pytest.TempPathFactory, check_refused: Refusal
) -> None:
    for name in ("summary.json", "trajectories.jsonl"):
        out = tmp_path_factory.mktemp("mine") / "out"
        out.mkdir()
        (out / name).write_text("precious", encoding="utf-8")
        check_refused("evaluate", str(qwen), "--limit", "1", "--out", str(out), sentence="is of something else")
        assert {path.name: path.read_text("utf-8") for path in out.iterdir()} == {name: "precious"}


def test_official_results_of_another_evaluation_are_not_mixed_in(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("evaluate", str(qwen), "--env", "bfcl", "--limit", "1", "--engine", "transformers", "--response", "4")
    options = (*command, "--official-results", "official")

    def files() -> set[str]:
        return {path.name.removeprefix("BFCL_v4_multi_turn_") for path in Path("official").rglob("BFCL*")}

    for _ in range(2):  # the same may be written again
        run_main(*options, "--out", "a")
        assert files() == {"base_result.json"}
    said = run_main(*options, "--out", "b", "--category", "miss_func", code=2)
    assert "--official-results: official holds something else" in said
    assert not Path("b").exists()
    run_main(*options, "--out", "b", "--category", "miss_func", "--fresh")
    assert files() == {"miss_func_result.json"}


REFUSED: dict[tuple[str, ...], str] = {
    ("nowhere",): "model: 'nowhere' is no folder",
    ("--difficulty", "hard"): "difficulty: 'hard' cannot be read",
    ("--env", "bfcl", "--difficulty", "t1-1_c1-1_d1-1_s2-2"): "difficulty: bfcl has none; leave it out.",
    ("--env", "bfl"): "env: 'bfl' is not known; did you mean 'bfcl'?",
    ("--split", "tset"): "split: 'tset' is not known; did you mean 'test'?",
    ("--category", "mis_func"): "category: 'mis_func' is not known; did you mean 'miss_func'?",
    ("--engine", "vlm"): "engine: 'vlm' is not known; did you mean 'vllm'?",
    ("--dtype", "float23"): "dtype: 'float23' is not known; did you mean 'float32'",
    ("--seeds", "3"): "--seeds: 3 seeds give the same greedy dialogue; add --temperature 1.0.",
    ("--temperature", "0.005"): "--temperature: 0.005 is not possible; give 0, or 0.01 or more.",
    ("--context", "50"): "context: 50 tokens are too few for the prompt of toolworld_dev_",
    ("--context", "99999999"): "context: 99999999 is more than the model's",
    ("--out", __file__): f"--out: {__file__} is a file",
    ("--official-results", "there"): "--official-results: the files have tasks of a benchmark with a grader, once",
    ("--split", "train", "--env", "bfcl-renamed", "--limit", "2", "--official-results", "there"): (
        "--official-results: the benchmark's grader lacks tasks of bfcl-renamed, train;"
    ),
}


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: options[0])
def test_a_mistake_is_one_sentence_before_anything_starts(options: tuple[str, ...], check_refused: Refusal) -> None:
    check_refused("evaluate", *options, sentence=f"error: {REFUSED[options]}")


def test_a_model_whose_context_is_too_small_for_a_prompt(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    folder = Path(shutil.copytree(qwen, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2048}))
    monkeypatch.chdir(tmp_path)
    arguments = ("evaluate", str(folder), "--env", "bfcl", "--limit", "4")
    said = run_main(*arguments, code=2)
    assert re.search(
        r"context: 2048 tokens are too few for the prompt of multi_turn_\w+, which has \d+; a model with more",
        said,
    )
    assert not (tmp_path / "runs").exists()
