"""The task writer `shuffled`: the specifications of another run, each window those of another window."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from envs.errors import UserError
from envs.specifications import writable
from seal_ray.proposing.task_writer import start_task_writer_loop
from seal_ray.report.files import RunFolder
from tests.seal_ray.proposing.test_task_writer import begin, close, config_of

SOURCE = writable("toolworld")


def record(folder: Path, *, windows: int = 4, update_every: int = 2, seed: int = 0) -> Path:
    """A run in which two specifications a window were written, one of which could not be read."""
    run = RunFolder(folder / f"run-seed{seed}")
    run.write_config({"task_writer": {"kind": "llm", "update_every": update_every}})
    for number in range(1, 1 + windows * update_every):
        rng = random.Random(f"{seed} {(number - 1) // update_every}")
        drafts = [{"specification": SOURCE.draw(rng, depth=1).dump()}, {"specification": None}]
        run.drafts.append({"round": number, "drafts": drafts})
    return run.path


def test_it_writes_the_specifications_of_another_run_in_other_windows(tmp_path: Path) -> None:
    record(tmp_path, seed=5)
    config = config_of(kind="shuffled", recorded=f"{tmp_path}/run-seed{{seed}}")
    config.seed = 5
    config.validate()
    loop = start_task_writer_loop(config.spec, None, tested=(), play=lambda _: ())
    assert loop is not None
    rows: list[Any] = RunFolder(tmp_path / "run-seed5").drafts.rows()
    texts = [row["drafts"][0]["specification"] for row in rows[::2]]
    written: list[Any] = []
    for window in range(4):
        begin(loop, 2 * window)
        assert [each.value is None for each in loop.proposals] == [False, True]
        assert all(entry.provenance.writer == "shuffled" for entry in loop.pool.entries)
        written.append(close(loop, 2 * window, {}).proposals[0]["specification"])
        close(loop, 2 * window + 1, {})
    assert sorted(written) == sorted(texts)
    assert all(one != other for one, other in zip(written, texts, strict=True))


@pytest.mark.parametrize(
    ("run", "section", "sentence"),
    [
        ({}, {"recorded": None}, "task_writer.recorded: shuffled needs the folder of a run"),
        ({}, {"recorded": "nowhere"}, "task_writer.recorded: 'nowhere' is no folder of a run in which tasks were"),
        ({"update_every": 3}, {}, "task_writer.update_every: 2; set it to the 3 rounds of the windows of "),
        ({"windows": 3}, {}, "task_writer.recorded: "),
        ({}, {"specifications": 1}, "task_writer.specifications: 1 is given, and a window of "),
    ],
)
def test_a_recorded_run_that_does_not_fit_is_one_sentence(
    run: dict[str, Any], section: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    config = config_of(kind="shuffled", **{"recorded": str(record(tmp_path, **run)), **section})
    with pytest.raises(UserError) as caught:
        config.validate()
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    "line", ['{"round": 1, "drafts": [7]}', '{"round": "1", "drafts": []}', '{"round": 1, "drafts": {}}', "[1]", "{"]
)
def test_a_recorded_file_is_hostile_input(line: str, tmp_path: Path) -> None:
    folder = record(tmp_path)
    (folder / "drafts.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UserError):
        config_of(kind="shuffled", recorded=str(folder)).validate()


def test_one_window_is_too_few_to_be_shuffled(tmp_path: Path) -> None:
    config = config_of(kind="shuffled", recorded=str(record(tmp_path))).training(rounds=2)
    with pytest.raises(UserError, match="1 window is too few"):
        config.validate()
