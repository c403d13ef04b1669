"""Tiny random models of the real architectures, for tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from policies.engine import Adapter

VOCABULARY = 512


_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def random_qwen2(folder: Path, *, seed: int, tied: bool = True, **shape: int) -> Path:
    """Saves a random Qwen2 whose every tensor matters, of two layers if not told otherwise, and returns its folder."""
    torch.manual_seed(seed)
    tokens = {"bos_token_id": 0, "eos_token_id": 1}
    config = Qwen2Config(**{**_SHAPE, **tokens, **shape}, tie_word_embeddings=tied)
    return _saved(Qwen2ForCausalLM(config), folder)


def random_llama(folder: Path, *, seed: int) -> Path:
    """Saves a random two-layer Llama with an output layer of its own, and returns its folder."""
    torch.manual_seed(seed)
    config = LlamaConfig(**_SHAPE, tie_word_embeddings=False)
    return _saved(LlamaForCausalLM(config), folder)


@torch.no_grad()
def _saved(model: PreTrainedModel, folder: Path) -> Path:
    model = model.float()
    for parameter in model.parameters():
        parameter.normal_(0, 0.2) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def load(folder: Path) -> Qwen2ForCausalLM:
    model: Qwen2ForCausalLM = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
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


ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def random_adapter(folder: Path, *, seed: int, modules: Sequence[str] = ADAPTED, **config: Any) -> Adapter:
    """A random LoRA adapter of the model in `folder`, strong enough to change its tokens, as PEFT would save it."""
    torch.manual_seed(seed)
    settings = {"r": 8, "lora_alpha": 12, "target_modules": list(modules), "lora_dropout": 0.0, **config}
    model = get_peft_model(load(folder), LoraConfig(**settings))
    tensors = get_peft_model_state_dict(model)
    for tensor in tensors.values():
        tensor.copy_(torch.randn_like(tensor) * 0.1)
    return Adapter(model.peft_config["default"].to_dict(), tensors)


def load_adapted(folder: Path, adapter: Adapter) -> Qwen2ForCausalLM:
    """Hugging Face's model of `folder` with PEFT's adapter on it."""
    model: Any = get_peft_model(load(folder), LoraConfig(**{**adapter.config, "base_model_name_or_path": None}))
    missed: Any = set_peft_model_state_dict(model, dict(adapter.tensors))
    assert not missed.unexpected_keys
    adapted: Qwen2ForCausalLM = model.eval()
    return adapted


def byte_tokenizer(folder: Path) -> None:
    """Gives the model in `folder` a tokenizer of its vocabulary: end of sequence at 1, a token per byte, fillers.

    The first token has the name that transformers would add for this architecture, beyond the vocabulary.
    """
    alphabet = sorted(ByteLevel.alphabet())
    fillers = (f"<filler-{index}>" for index in range(VOCABULARY - 2 - len(alphabet)))
    words = ["<|endoftext|>", "</s>", *alphabet, *fillers]
    tokenizer = Tokenizer(BPE({word: index for index, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([words[0], words[1], *words[2 + len(alphabet) :]])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=words[0], eos_token=words[1])
    fast.save_pretrained(folder)
