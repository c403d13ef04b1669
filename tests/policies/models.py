"""Tiny random models of the real architectures, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 512


def random_qwen2(folder: Path, *, seed: int, tied: bool = True) -> Path:
    """Saves a random two-layer Qwen2 whose every tensor matters, and returns its folder."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = Qwen2ForCausalLM(config).float()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def load(folder: Path) -> Qwen2ForCausalLM:
    model: Qwen2ForCausalLM = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]
    return model


@torch.no_grad()
def logprobs_of(model: Qwen2ForCausalLM, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
    """Log-probabilities of each response token under Hugging Face's forward pass."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0].log_softmax(-1)
    return [float(logits[len(prompt) + index - 1, token]) for index, token in enumerate(response)]


@torch.no_grad()
def greedy(model: Qwen2ForCausalLM, prompt: Sequence[int], length: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(length):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
