"""`seal-ray exam` with the small model on transformers: files, going on after signals, mistakes."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from envs.task import JSON
from seal_ray.report.files import JsonLines
from tests.command_line import Refusal, RunMain
from tests.envs.apibank.fake import write_folder
from tests.processes import PROGRAM

SUITE = "tests.seal_ray.exams.arithmetic:Arithmetic"
OPTIONS = ["tiny", "--suite", SUITE, "--engine", "transformers", "--response", "24"]


def rows_of(out: Path) -> list[dict[str, JSON]]:
    return JsonLines(out / "model" / "arithmetic" / "answers.jsonl").rows()


def test_two_suites_a_base_and_a_second_call_that_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    data, out = write_folder(tmp_path / "api-bank"), tmp_path / "out"
    folders = ("--data", str(data), "--out", str(out))
    arguments = ("exam", *OPTIONS, "--suite", "api-bank", "--base", "tiny", *folders, "--trust")
    said = run_main(*arguments)
    assert "tiny: arithmetic: 14 items" in said
    document = json.loads((out / "exam.json").read_text())
    assert set(document["suites"]) == {"arithmetic", "api-bank"}
    whole = document["suites"]["api-bank"]["all"]
    assert (whole["items"], whole["difference"]["share"], whole["p_mcnemar"]) == (6, 0.0, 1.0)
    assert document["suites"]["arithmetic"]["all"]["items"] == 13
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    logs = {path.relative_to(out).as_posix() for path in files if "inspect" in path.parts}
    assert {log.partition("inspect")[0] for log in logs} == {
        f"{who}/{s}/" for who in ("model", "base") for s in ("arithmetic", "api-bank")
    }
    assert len(logs) == 4
    assert {path.relative_to(out).as_posix() for path in files} - logs == {
        *("exam.md", "exam.json"),
        *(f"{who}/{s}/{f}" for who in ("model", "base") for s in ("arithmetic", "api-bank") for f in FILES),
    }
    monkeypatch.setattr("seal_ray.cli.exam.start_engine", None)
    again = run_main(*arguments)
    assert "14 items, 14 were already there" in again
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
    run_main("exam", *OPTIONS, "--out", str(out))  # suites and the base can be named or left out
    assert set(json.loads((out / "exam.json").read_text())["suites"]) == {"arithmetic"}
    other = run_main(*arguments, "--seed", "1", code=2)
    assert "holds another exam" in other


FILES = ("answers.jsonl", "settings.json")


def test_stopped_and_killed_it_goes_on_where_it_was(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "out"
    options = [*OPTIONS, "--concurrent", "1", "--out", str(out)]
    kept: list[dict[str, JSON]] = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        running = subprocess.Popen(
            [*PROGRAM, "exam", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(6000):
            if len(rows_of(out)) >= len(kept) + 3 or running.poll() is not None:
                break
            time.sleep(0.02)
        running.send_signal(number)
        _, errors = running.communicate(timeout=120)
        assert running.returncode == code, errors[-2000:]
        before, kept = kept, rows_of(out)
        assert kept[: len(before)] == before
        assert len(before) + 3 <= len(kept) < 14
        assert not (out / "exam.md").exists(), "half an exam has no scores"
    said = run_main("exam", *options)
    assert f"14 items, {len(kept)} were already there" in said
    after = rows_of(out)
    assert after[: len(kept)] == kept
    assert len({row["item"] for row in after}) == len(after) == 14
    assert re.search(r"\| arithmetic \| all \| 13 \|", (out / "exam.md").read_text())


REFUSED: dict[tuple[str, ...], str] = {
    ("nowhere", "--suite", SUITE): "model: 'nowhere' is no folder",
    ("tiny", "--suite", "api-bnak"): "suite: 'api-bnak' is not known; did you mean 'api-bank'?",
    ("tiny", "--suite", "api-bank", "--data", "nowhere"): "api-bank: nowhere has no folder apis",
    ("tiny", "--suite", "bfcl-v4-memory-vector"): "bfcl-v4-memory-vector needs a model that makes vectors of texts",
    ("tiny", "--suite", SUITE, "--embeddings", "nowhere"): "embeddings: 'nowhere' is no folder and no hub's OWNER/NAME",
    ("tiny", "--suite", SUITE, "--category", "smal"): "category: 'smal' is not known; did you mean 'small'?",
    ("tiny", "--suite", SUITE, "--context", "99999999"): "context: 99999999 is more than the",
    ("tiny", "--suite", SUITE, "--out", __file__): "is a file; give a folder",
    ("tiny", "--suite", SUITE, "--suite", f"{SUITE}Again"): "suite: two of them have the same name",
}


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: " ".join(options[-2:])[:30])
def test_a_mistake_is_one_sentence_before_anything_starts(options: tuple[str, ...], check_refused: Refusal) -> None:
    check_refused("exam", *options, sentence=f"{REFUSED[options]}")
