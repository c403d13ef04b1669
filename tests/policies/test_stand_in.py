"""Stand-ins for published models: what a rehearsal takes for them."""

from pathlib import Path
from statistics import median

import pytest
from transformers import AutoTokenizer

from envs.bfcl.tasks import load_tasks
from policies.engine.requests import checkpoint_shapes
from policies.models import open_model
from policies.models.stand_in import BACKBONES, Backbone, write_shape, write_stand_in


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "Team-ACE/ToolACE-2-Llama-3.1-8B"])
def test_a_stand_in_has_the_vocabulary_the_dialect_and_openings_as_long_as_the_real_ones(
    tmp_path: Path, name: str
) -> None:
    model = open_model(str(write_stand_in(tmp_path / "model", BACKBONES[name])))
    assert model.dialect.name == BACKBONES[name].dialect
    assert checkpoint_shapes(model.path)["model.embed_tokens.weight"] == (BACKBONES[name].vocabulary, 64)
    tokenizer = AutoTokenizer.from_pretrained(model.path)
    assert len(tokenizer) == BACKBONES[name].vocabulary
    tasks = list(load_tasks().values())[::40]
    lengths = [len(tokenizer.encode(model.dialect.render_tools(task.tools))) for task in tasks]
    assert 4_000 < median(lengths) < 8_000


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen2.5-7B-Instruct", 7.6), ("Qwen/Qwen2.5-3B-Instruct", 3.1)])
def test_sizes_are_computed_from_the_true_shape(tmp_path: Path, name: str, billions: float) -> None:
    folder = write_shape(tmp_path / "shape", BACKBONES[name])
    sizes = [shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in checkpoint_shapes(folder).values()]
    assert sum(sizes) / 1e9 == pytest.approx(billions, abs=0.05)


def test_the_shape_of_a_folder_is_that_of_its_config() -> None:
    found = Backbone.from_model(open_model("tiny"))
    assert found.vocabulary == open_model("tiny").config["vocab_size"]
    assert found.config()["hidden_size"] == open_model("tiny").config["hidden_size"]
