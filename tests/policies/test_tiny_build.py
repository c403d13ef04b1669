"""Building the tiny base: the same recipe gives the same files, also after an interruption; and what is shipped."""

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from envs.errors import UserError
from envs.specifications import writable
from policies import tiny
from policies.engine.choice import start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.proposer import Proposal
from policies.tiny import training
from policies.tiny.build import MAX_BYTES, STATE, build, only_writes, write_writer_card
from policies.tiny.demonstrations import demonstrations
from policies.tiny.measure_writer import AT_ONCE, WriterMeasured, counted, made_up_profiles, measure_writer
from policies.tiny.tokenizer import train_tokenizer
from policies.tiny.training import RARE_RECIPE, WRITER_RECIPE, Phase, Recipe

SMALL = Recipe(
    vocabulary=400,
    layers=2,
    hidden=128,
    intermediate=128,
    tokenizer_demonstrations=20,
    phases=(Phase(8 * 1024, 1e-3), Phase(4 * 1024, 5e-4, short=True, proposals=0.3, rounded=True)),
    batch_tokens=1024,
)


SOURCE = writable("toolworld")
GOOD = '{"category": "base", "scenes": ["files"], "turns": [["files.show"]]}'


def quiet(seen: int, loss: float) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BUFFER", 16)
        yield


def test_a_model_that_starts_from_a_shipped_one_has_its_tokens_and_other_weights(tmp_path: Path) -> None:
    build(tmp_path, replace(RARE_RECIPE, phases=(Phase(2 * 2048, 1e-4, rounded=True),)), progress=quiet)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        assert (tmp_path / name).read_bytes() == (tiny.FOLDER / name).read_bytes(), name
    one, other = (load_file(folder / "model.safetensors") for folder in (tmp_path, tiny.FOLDER))
    moved = max((one[name].float() - other[name].float()).abs().max() for name in one)
    assert 0 < moved < 0.01, "a step's length, not a model of its own"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, quick: None) -> Path:
    """The small model, built at once."""
    del quick
    folder = tmp_path_factory.mktemp("whole")
    build(folder, SMALL, progress=quiet)
    return folder


class Steps(list[int]):
    """The steps of builds; the build is interrupted at this number of them."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, seen: int, loss: float) -> None:
        self.append(seen // SMALL.batch_tokens)
        if len(self) == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("at", "resumed"), [(8, 7), (12, 12)])
def test_one_recipe_gives_one_model_also_when_interrupted(
    at: int, resumed: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", 3)
    steps, parts = Steps(at), tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        build(parts, SMALL, progress=steps)
    assert (parts / STATE).exists()
    build(parts, SMALL, progress=steps)
    assert steps == [*range(1, at + 1), *range(resumed, 13)], "it resumes after the last saved step"
    assert not (parts / STATE).exists()
    build(parts, SMALL, progress=lambda seen, loss: pytest.fail("a model that is whole is not trained again"))
    for name in ("model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja", "recipe.json"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name


def test_another_recipes_state_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", 1)
    other = replace(SMALL, seed=7, phases=(Phase(2 * 1024, 1e-3),))
    build(tmp_path / "whole", other, progress=quiet)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "mixed", SMALL, progress=Steps(at=2))
    assert (tmp_path / "mixed" / STATE).exists()
    build(tmp_path / "mixed", other, progress=quiet)
    paths = [tmp_path / name / "model.safetensors" for name in ("whole", "mixed")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(UserError, match="holds something else"):
        build(tmp_path, SMALL, progress=quiet)
    with pytest.raises(UserError, match="is a file"):
        build(tmp_path / "thesis.txt", SMALL, progress=quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("name", "recipe"), [(tiny.NAME, Recipe()), (tiny.RARE, RARE_RECIPE), (tiny.TASK_WRITER, WRITER_RECIPE)]
)
def test_a_shipped_model_is_small_and_says_what_it_is(name: str, recipe: Recipe) -> None:
    folder = tiny.SHIPPED[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MAX_BYTES
    assert sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values()) <= 4_000_000
    assert open_model(name).config["architectures"] == ["Qwen2ForCausalLM"]
    built = json.loads((folder / "recipe.json").read_text())
    assert built == json.loads(json.dumps(asdict(recipe))), "built by the recipe in the code"
    template = Path(tiny.__file__).with_name("chat_template.jinja").read_text()
    assert (folder / "chat_template.jinja").read_text() == template, "built with the template in the code"
    card = " ".join((folder / "README.md").read_text().split())
    assert "It is no language model" in card
    assert "seal-ray tiny build" in card
    assert ("do some things wrong on purpose" in card) == (name != tiny.TASK_WRITER)


@pytest.mark.only_by(target="long")
def test_tiny_writer_writes_specifications_that_have_tasks_and_differ() -> None:
    """Without a grammar, with no second try, as a run samples: on an empty profile and on ones it has not seen."""
    model = open_model(tiny.TASK_WRITER)
    form = ChatFormat.load(model.path, model.dialect)

    async def measured() -> WriterMeasured:
        engine = await start_engine("transformers", model, context=4096, dtype="float32", concurrent=AT_ONCE, threads=1)
        try:
            return await measure_writer(engine, form, made_up_profiles(4))
        finally:
            await engine.close()

    found = asyncio.run(measured())
    assert found.read.needed == 4 * AT_ONCE
    assert found.read.share >= 0.7, found.reasons
    assert found.made.share >= 0.6, found.reasons
    assert found.distinct >= 0.9 * found.made.right
    assert len(found.categories) >= 3
    assert set(found.depths) == {1, 2}


def test_a_writers_card_has_what_was_measured(tmp_path: Path) -> None:
    recipe = json.dumps(asdict(WRITER_RECIPE))
    (tmp_path / "recipe.json").write_text(recipe, encoding="utf-8")
    good = SOURCE.read(GOOD)
    proposals = [Proposal(good), Proposal(good), Proposal(good, "no"), Proposal(None, "no")]
    write_writer_card(tmp_path, {"made up": counted(proposals)})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| made up | 4 | 75.0 [30.1, 95.4] | 50.0 [15.0, 85.0] | 1 |" in card
    assert "| made up | 100 | 0 | 0 | 0 | 100 |" in card
    assert only_writes(tmp_path)
    assert not only_writes(tiny.FOLDER)
    assert not only_writes(tmp_path / "nowhere")


def test_the_shipped_tokenizer_is_the_same_by_whichever_class_it_is_loaded() -> None:
    """Transformers replaces the pre-tokenizer of a Qwen2 model's tokenizer; with ours this changes nothing."""
    loaded = (AutoTokenizer.from_pretrained(tiny.FOLDER), PreTrainedTokenizerFast.from_pretrained(tiny.FOLDER))
    assert {len(tokenizer) for tokenizer in loaded} == {Recipe().vocabulary}
    shown = [text for each in islice(demonstrations(21, split="dev"), 60) for text in each.completions]
    odd = ("naïve café — 漢字 🙂", "a\t\tb\r\n\n  c", "CamelCase_and_snake", "it's 3.14!?", "<|end|> <tool_call>")
    for text in (*shown, *odd):
        one, other = (tokenizer.encode(text, add_special_tokens=False) for tokenizer in loaded)
        assert one == other


@pytest.mark.parametrize("heads", [True, False])
def test_an_untrained_model_copies_by_its_heads(heads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repeated random text, it proposes the repetition at a share of the positions."""
    if not heads:
        monkeypatch.setattr(training, "put_copying_heads", lambda model, rope_theta: None)
    recipe = Recipe()
    model = training.model_for(recipe, train_tokenizer(["a b c"], recipe.vocabulary)).eval()
    rng = random.Random(0)
    right = 0
    for _ in range(4):
        text, middle = (rng.sample(range(10, recipe.vocabulary), size) for size in (60, 150))
        tokens = [*text, *middle, *text]
        with torch.no_grad():
            proposed = model(torch.tensor([tokens])).logits[0].argmax(-1).tolist()
        right += sum(proposed[place] == tokens[place + 1] for place in range(212, 269))
    share = right / (4 * 57)
    assert share > 0.3 if heads else share < 0.05
