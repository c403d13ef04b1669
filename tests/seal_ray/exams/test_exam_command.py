"""`seal-ray exam` with the small model on transformers: files, going on after signals, mistakes."""

import json
from pathlib import Path

import pytest

from tests.command_line import Refusal, RunMain
from tests.envs.apibank.fake import write_folder

SUITE = "tests.seal_ray.exams.arithmetic:Arithmetic"
OPTIONS = ["tiny", "--suite", SUITE, "--engine", "transformers", "--response", "24"]


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


REFUSED: dict[tuple[str, ...], str] = {
    ("nowhere", "--suite", SUITE): "model: 'nowhere' is no folder",
    ("tiny", "--suite", "api-bnak"): "suite: 'api-bnak' is not known; did you mean 'api-bank'?",
    ("tiny", "--suite", "api-bank", "--data", "nowhere"): "api-bank: nowhere has no folder apis",
    ("tiny", "--suite", "bfcl-v4-memory-vector"): "bfcl-v4-memory-vector needs a model that makes vectors of texts",
    ("tiny", "--suite", SUITE, "--embeddings", "nowhere"): "embeddings: 'nowhere' is no folder and no hub's OWNER/NAME",
    ("tiny", "--suite", SUITE, "--category", "smal"): "category: 'smal' is not known; did you mean 'small'?",
    ("tiny", "--suite", SUITE, "--out", __file__): "is a file; give a folder",
    ("tiny", "--suite", SUITE, "--suite", f"{SUITE}Again"): "suite: two of them have the same name",
}


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: " ".join(options[-2:])[:30])
def test_a_mistake_is_one_sentence_before_anything_starts(options: tuple[str, ...], check_refused: Refusal) -> None:
    check_refused("exam", *options, sentence=f"{REFUSED[options]}")
