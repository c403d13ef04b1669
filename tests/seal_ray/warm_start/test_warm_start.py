"""A warm start: it learns, comes to the same weights when it is interrupted, and shows nothing of a test part."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from envs.errors import UserError
from envs.sources import get_source
from envs.task import Task, ToolCall
from policies.demonstrations import NO_TOOL
from policies.models import open_model
from policies.prompting import ChatFormat
from seal_ray.report.files import JsonLines
from seal_ray.warm_start.plan import Source, WarmStart, parse_sources
from seal_ray.warm_start.rows import batches, held_out_rows, is_within
from seal_ray.warm_start.run import METRICS, PICTURE, WORK, warm_start
from tests.command_line import Refusal, RunMain
from tests.policies.test_demonstrations import form
from tests.seal_ray.algorithm.configs import small_model

CONTEXT = 2048


def plan(**changes: Any) -> WarmStart:
    settings = ("solver.dtype=float32", "solver.context=2048", "training.lr=0.005", "training.warm_up=1")
    made = WarmStart(
        model=str(small_model()),
        sources=(Source("toolworld", 1.0),),
        difficulties=(None,),
        demonstrations="oracle",
        proposals=0.0,
        tokens=6000,
        batch_tokens=1000,
        evaluate_every=3,
        tasks=0,
        held_out=4,
        seed=3,
        overrides=settings,
    )
    return replace(made, **changes)


def quiet(*_: object) -> None:
    pass


def metrics(out: Path) -> list[dict[str, Any]]:
    """The metrics, without the times."""
    rows: list[dict[str, Any]] = [dict(row) for row in JsonLines(out / WORK / METRICS).rows()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


class Interrupted(Exception):
    pass


def test_it_learns_and_an_interrupted_one_comes_to_the_same_weights(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    warm_start(plan(), whole, quiet)
    rows = metrics(whole)
    assert [row["step"] for row in rows] == list(range(7))
    assert rows[-1]["held_out_loss"] < 0.8 * rows[0]["held_out_loss"]
    assert (whole / WORK / PICTURE).read_bytes().startswith(b"\x89PNG")

    def interrupt(stage: str, done: int, *_: object) -> None:
        if done == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        warm_start(plan(), parts, interrupt)
    assert not (parts / "config.json").exists()
    assert len(metrics(parts)) == 6
    warm_start(plan(), parts, quiet)
    assert metrics(parts) == rows
    ours, theirs = (load_file(each / "model.safetensors") for each in (parts, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert sorted(path.name for path in (parts / WORK).iterdir()) == [PICTURE, METRICS, "plan.json"]

    before = (parts / WORK / METRICS).read_bytes()
    warm_start(plan(), parts, quiet)
    assert (parts / WORK / METRICS).read_bytes() == before, "what is finished is left alone"
    with pytest.raises(UserError, match="with other settings"):
        warm_start(plan(tokens=7000), parts, quiet)
    assert "no task of a dev or test part was shown" in (parts / "README.md").read_text()


def test_the_loss_is_the_likelihood_of_what_is_said(tmp_path: Path) -> None:
    """The first reported loss, against Transformers' own on the same tokens."""
    asked = plan(tokens=1000)
    warm_start(asked, tmp_path / "out", quiet)
    found = open_model(str(small_model()))
    model = AutoModelForCausalLM.from_pretrained(found.path, dtype=torch.float32)
    total, count = 0.0, 0
    for row in held_out_rows(asked, ChatFormat.load(found.path, found.dialect), context=CONTEXT):
        tokens = torch.from_numpy(row.token_ids_T)
        labels = torch.where(torch.from_numpy(row.mask_T), tokens, -100)
        with torch.no_grad():
            loss = model(input_ids=tokens[None], labels=labels[None]).loss
        total, count = total + float(loss) * row.sampled_tokens, count + row.sampled_tokens
    assert metrics(tmp_path / "out")[0]["held_out_loss"] == pytest.approx(total / count, rel=1e-5)


def test_with_lora_the_adapter_lies_beside_the_merged_model_and_can_be_extracted_from_it(
    tmp_path: Path, run_main: RunMain
) -> None:
    from peft import PeftModel

    overrides = (*plan().overrides, "solver.lora_rank=4", "training.lr=2e-2")
    out = warm_start(plan(tokens=2000, overrides=overrides), tmp_path / "out", quiet)
    base = AutoModelForCausalLM.from_pretrained(small_model(), dtype=torch.float32)
    tokens = torch.arange(100, 140)[None]
    with torch.no_grad():
        first = base(tokens).logits
        adapted = PeftModel.from_pretrained(base, out / "adapter")(tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)(tokens).logits
    learnt, rounded = (adapted - first).abs().mean(), (merged - adapted).abs().mean()
    assert learnt > 0.05
    assert rounded < 0.2 * learnt, "merged weights are rounded to bfloat16"
    words = ("--base", str(small_model()), "--rank", "4", "--out", str(tmp_path / "extracted"))
    assert "rank 4" in run_main("extract-adapter", str(out), *words)
    base = AutoModelForCausalLM.from_pretrained(small_model(), dtype=torch.float32)
    with torch.no_grad():
        again = PeftModel.from_pretrained(base, tmp_path / "extracted")(tokens).logits
    assert (again - merged).abs().mean() < 0.2 * learnt


def test_batches_hold_each_demonstration_once_wherever_they_begin() -> None:
    asked = plan(sources=parse_sources(["toolworld", "bfcl:0.2"]), batch_tokens=3000)
    found = list(itertools.islice(batches(asked, form(), context=CONTEXT), 6))
    assert all(batch.tokens <= 3000 or len(batch.rows) == 1 for batch in found)
    again = list(itertools.islice(batches(asked, form(), context=CONTEXT, begin=found[2].next), 3))
    assert [[row.token_ids_T.tolist() for row in batch.rows] for batch in again] == [
        [row.token_ids_T.tolist() for row in batch.rows] for batch in found[3:]
    ]
    rows = [tuple(row.token_ids_T) for batch in found for row in batch.rows]
    assert len(set(rows)) == len(rows)


@pytest.mark.only_by(target="long")
def test_rare_behaviours_need_their_cue_and_a_curator_is_shown_among_them() -> None:
    asked = plan(demonstrations="rare", proposals=0.3, tokens=8000, batch_tokens=8000)
    found = list(itertools.islice(batches(asked, form(), context=CONTEXT), 12))
    again = list(itertools.islice(batches(asked, form(), context=CONTEXT, begin=found[3].next), 8))
    told = [[form().text(row.token_ids_T.tolist()) for row in batch.rows] for batch in found]
    assert [[form().text(row.token_ids_T.tolist()) for row in batch.rows] for batch in again] == told[4:]
    texts = [text for each in told for text in each]
    proposals = [text for text in texts if '"guidelines": [' in text]
    dialogues = [text for text in texts if text not in proposals]
    assert 0.2 < len(proposals) / len(texts) < 0.4
    abstaining = [text for text in dialogues if NO_TOOL in text]
    assert abstaining
    assert all("Guidelines:" in text for text in abstaining)
    others = itertools.islice(batches(replace(asked, demonstrations="behaviours"), form(), context=CONTEXT), 40)
    unasked = [form().text(row.token_ids_T.tolist()) for batch in others for row in batch.rows]
    assert any(NO_TOOL in text and "Guidelines:" not in text for text in unasked)


def test_tasks_that_show_the_same_tools_are_shown_together_and_computed_once() -> None:
    asked = plan(sources=(Source("bfcl", 1.0),), tokens=8000, batch_tokens=8000)
    found = list(itertools.islice(batches(asked, form(), context=8192), 10))
    assert sum(batch.tokens for batch in found) < 0.7 * sum(len(row) for batch in found for row in batch.rows)


@pytest.mark.parametrize("shown_source", ["bfcl", "bfcl-renamed"])
def test_nothing_of_a_test_or_dev_part_is_shown(shown_source: str) -> None:
    """Demonstrations of BFCL's training part have no text and no call sequence of a test or dev task.

    Texts of three words or fewer are left out: "Nvidia." is said in many a scenario.
    """
    asked = plan(sources=(Source(shown_source, 1.0),), tokens=8000, batch_tokens=8000)
    drawn = itertools.islice(batches(asked, form(), context=8192), 40)
    shown = [form().text(row.token_ids_T.tolist()) for batch in drawn for row in batch.rows]
    called = [form().dialect.parse(text).calls for text in shown]
    source = get_source("bfcl")
    others = [task for part in ("dev", "test") for task in source.split().part(part)]
    assert len(shown) > 50
    assert len(others) > 400
    for task in others:
        for turn in task.turns:
            if turn.user is not None and len(turn.user.split()) > 3:
                assert not any(turn.user in text for text in shown), task.id
        assert not any(is_within(calls(task), demonstrated) for demonstrated in called if calls(task)), task.id


def test_training_tasks_that_repeat_a_test_task_are_not_shown() -> None:
    """Two of the benchmark's scenarios make all calls of three of its test part's."""
    source = get_source("bfcl")
    split = source.split()
    repeated = {
        task.scenario
        for task in split.train
        if any(is_within(calls(other), calls(task)) for other in (*split.dev, *split.test) if calls(other))
    }
    assert repeated == {"137", "148"}
    asked = plan(sources=(Source("bfcl", 1.0),), tokens=8000, batch_tokens=8000)
    drawn = [row for batch in itertools.islice(batches(asked, form(), context=8192), 120) for row in batch.rows]
    texts = [form().text(row.token_ids_T.tolist()) for row in drawn]
    said = {task.id for task in split.train if any((task.turns[0].user or "") in text for text in texts)}
    assert len(said) > 150
    assert not {task.id for task in split.train if task.scenario in repeated} & said


def calls(task: Task) -> list[ToolCall]:
    return [call for turn in task.turns for call in turn.ground_truth]


def test_where_no_demonstration_fits_there_is_an_end() -> None:
    with pytest.raises(UserError, match=r"solver.context: of 300 demonstrations on end none fits 16 tokens"):
        held_out_rows(plan(), form(), context=16)


def test_shares_of_sources() -> None:
    assert parse_sources(["toolworld"]) == (Source("toolworld", 1.0),)
    assert parse_sources(["toolworld", "bfcl:0.25"]) == (Source("toolworld", 0.75), Source("bfcl", 0.25))
    assert parse_sources(["a.b:NAME"]) == (Source("a.b:NAME", 1.0),)
    for words in (["toolworld:0.5"], ["toolworld:2"], ["toolworld", "toolworld:0.5"], ["toolworld", "bfcl:1"]):
        with pytest.raises(UserError, match="--source"):
            parse_sources(words)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--demonstrations", "perfect"], "'perfect' is not known"),
        (["--tokens", "100"], "less than one step"),
        (["--difficulty", "hard"], "difficulty: 'hard' cannot be read"),
        (["--source", "bfcl", "--difficulty", "t2-3_c1-2_d1-3_s2-4"], "no source has one"),
        (["--source", "bfcl", "--demonstrations", "behaviours"], "behaviours are known for toolworld alone"),
        (["--demonstrations", "rare", "--difficulty", "long"], "rare have difficulties of their own"),
        (["--seed", "90000"], "--seed: 90000 is not possible; it must be from 0 to 89999"),
        (["--source", "nowhere"], "'nowhere'"),
        (["--source", "toolworld+bfcl"], "toolworld+bfcl is a mixture; give --source for each"),
        (["training.loss=grpo"], "training.loss: a warm start sets it itself"),
        (["solver.context=abc"], "solver.context: 'abc' does not fit"),
        (["--model", "/nowhere"], "is no folder"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, check_refused: Refusal) -> None:
    check_refused("warm-start", "--out", "out", *arguments, sentence=sentence)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="holds something else"):
        warm_start(plan(), tmp_path, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_command_evaluates_as_it_goes_and_its_model_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run_main(
        *("warm-start", "--model", "tiny", "--out", "out", "--tokens", "2000", "--batch-tokens", "1000"),
        *("--tasks", "4", "--held-out", "2", "--demonstrations", "behaviours"),
        *("solver.context=2048", "solver.response=64", "engine.kind=transformers", "training.lr=1e-5"),
    )
    assert "learning, steps: 2 of 2 loss" in said
    assert "model: out" in said
    last = metrics(Path("out"))[-1]
    assert 0 <= last["success/toolworld"] <= 1
    assert json.loads(Path("out/warm_start/plan.json").read_text())["tokens"] == 2000
    assert f"on {last['tokens']:,} tokens of demonstrations" in Path("out/README.md").read_text()
    assert open_model("out").dialect.name == "qwen"
