"""Tiny random models whose every weight matters, and random rows for them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from seal_ray.grpo.attention import SEGMENTS, choose_attention
from seal_ray.grpo.packing import Row, Segment, make_row

VOCABULARY = 100
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}


def tiny_model(kind: str, *, attention: str = SEGMENTS, seed: int = 0) -> PreTrainedModel:
    """A random "qwen2" (tied embeddings), "llama" or "qwen3" (own output layers) in float64, in training mode."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {**_SHAPE, "attn_implementation": attention, "tie_word_embeddings": kind == "qwen2"}
    architectures: dict[str, Any] = {
        "qwen2": (Qwen2ForCausalLM, Qwen2Config),
        "llama": (LlamaForCausalLM, LlamaConfig),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config),
    }
    architecture, config = architectures[kind]
    assert choose_attention(config(**shape), torch.device("cpu"), half=False) == SEGMENTS  # makes it known
    model: PreTrainedModel = architecture(config(**shape))
    # The usual spread of 0.02 leaves attention so flat that a leak between rows would hardly show.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.double().train()


def with_adapter(model: PreTrainedModel) -> PeftModel:
    """The model with a LoRA adapter that already does something."""
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=modules, lora_dropout=0.0))
    assert isinstance(adapted, PeftModel)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    return adapted.double()


def random_rows(seed: int, lengths: tuple[int, ...] = (9, 2, 17, 12, 3)) -> list[Row]:
    """Rows of random tokens, sampled in stretches, with log-probs of -1 and advantages of both signs."""
    numbers = np.random.default_rng(seed)
    rows = []
    for number, length in enumerate(lengths):
        mask_T = numbers.random(length) < 0.6
        mask_T[0], mask_T[-1] = False, True
        token_ids_T = numbers.integers(0, VOCABULARY, length)
        rows.append(make_row(token_ids_T, mask_T, np.full(length, -1.0), (-1.0) ** number * (0.5 + number / 4)))
    return rows


def random_group(
    seed: int, size: int, *, opening: int, rests: tuple[int, int] = (0, 30), shared_rest: int = 5
) -> list[Row]:
    """Rows with a common opening; every second one shares some tokens more with its like, and the first no sampled one.

    Rests are of random lengths between these two.
    """
    numbers = np.random.default_rng(seed)
    start, more = numbers.integers(0, VOCABULARY, opening), numbers.integers(0, VOCABULARY, shared_rest)
    rows = []
    for number in range(size):
        rest = numbers.integers(0, VOCABULARY, numbers.integers(*rests, endpoint=True))
        token_ids_T = np.concatenate([start, more, rest] if number % 2 else [start, rest])
        mask_T = numbers.random(len(token_ids_T)) < 0.6
        mask_T[:opening] = False
        mask_T[:] &= number > 0
        rows.append(
            make_row(token_ids_T, mask_T, np.full(len(token_ids_T), -1.0), (-1.0) ** number * (0.5 + number / 4))
        )
    return rows


def dense_mask(segments: Sequence[Segment]) -> Tensor:
    """What each token of a layout sees, as one matrix."""
    length = segments[-1].end
    mask = torch.zeros(length, length, dtype=torch.bool)
    for each in segments:
        for begin, end in each.ancestors:
            mask[each.begin : each.end, begin:end] = True
        own = each.end - each.begin
        mask[each.begin : each.end, each.begin : each.end] = torch.ones(own, own, dtype=torch.bool).tril()
    return mask


def alone(rows: Sequence[Row]) -> list[list[Row]]:
    """Each row as a group of its own, so that none shares tokens."""
    return [[row] for row in rows]
