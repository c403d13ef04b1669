"""Adapters extracted from what changed in a model, and merged into it again."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from envs.errors import UserError
from policies.engine.adapters import lora_tensor_names, read_adapter, write_adapter
from policies.models.merging import extracted, merged
from tests.command_line import Refusal
from tests.policies.models import random_llama

MATRICES = [f"model.layers.{layer}.{name}" for layer in (0, 1) for name in ("self_attn.q_proj", "mlp.down_proj")]
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return random_llama(tmp_path / "base", seed=1)


def changed(base: Path, out: Path, *, rank: int, embedding: float = 0.0) -> dict[str, torch.Tensor]:
    """Writes the model with changes of that rank in some matrices, in float32, and returns its tensors."""
    generator = torch.Generator().manual_seed(rank)
    tensors = {name: tensor.float() for name, tensor in load_file(base / "model.safetensors").items()}
    for name in MATRICES:
        rows, columns = tensors[f"{name}.weight"].shape
        left, right = (torch.randn(size, rank, generator=generator) for size in (rows, columns))
        tensors[f"{name}.weight"] = tensors[f"{name}.weight"] + 0.1 * left @ right.T
    tensors[EMBEDDING] = tensors[EMBEDDING] + embedding
    out.mkdir()
    save_file(tensors, out / "model.safetensors")
    return tensors


def test_a_change_of_low_rank_is_extracted_whole_and_merges_to_the_same_weights(base: Path, tmp_path: Path) -> None:
    tuned = changed(base, tmp_path / "tuned", rank=3)
    adapter, share = extracted(base, tmp_path / "tuned", rank=4)
    assert share == pytest.approx(1.0, abs=1e-5)
    assert set(adapter.tensors) == {half for name in MATRICES for half in lora_tensor_names(name)}
    write_adapter(adapter, tmp_path / "adapter", base="base")
    again = merged(base, read_adapter(tmp_path / "adapter"))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    by_peft = PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload()
    assert set(again) == set(tuned)
    for name, tensor in tuned.items():
        torch.testing.assert_close(again[name], tensor, rtol=0, atol=2e-3)
        torch.testing.assert_close(by_peft.get_parameter(name), tensor, rtol=0, atol=2e-3)


def test_what_is_lost_is_told(base: Path, tmp_path: Path) -> None:
    changed(base, tmp_path / "more", rank=8)
    shares = [extracted(base, tmp_path / "more", rank=rank)[1] for rank in (1, 4, 8)]
    assert 0.1 < shares[0] < shares[1] < 0.95 < shares[2]
    changed(base, tmp_path / "embedding", rank=2, embedding=1.0)
    assert extracted(base, tmp_path / "embedding", rank=2)[1] < 0.5


def test_what_cannot_be_extracted_is_refused(base: Path, tmp_path: Path) -> None:
    changed(base, tmp_path / "tuned", rank=1)
    with pytest.raises(UserError, match=r"no matrix of .* differs"):
        extracted(base, base, rank=1)
    with pytest.raises(UserError, match="--rank: 4096 is more"):
        extracted(base, tmp_path / "tuned", rank=4096)
    (tmp_path / "other").mkdir()
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "other" / "model.safetensors")
    with pytest.raises(UserError, match="of another shape"):
        extracted(base, tmp_path / "other", rank=1)


@pytest.mark.parametrize(("out", "sentence"), [("..", "exists"), ("new", "'tuned' is no folder")])
def test_a_mistake_is_one_sentence(out: str, sentence: str, check_refused: Refusal) -> None:
    check_refused("extract-adapter", "tuned", "--base", "tiny", "--out", out, sentence=sentence)
