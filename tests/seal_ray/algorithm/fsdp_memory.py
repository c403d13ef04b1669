"""Prints the peak of a learner's memory in forward and backward pass, in bytes, by PyTorch's tracker on fake tensors.

    python -m tests.seal_ray.algorithm.fsdp_memory MODEL,LAYERS,LEARNERS,TOKENS,CHECKPOINTS,RANK …

Weights, gradients, activations and what FSDP holds whole count; the optimizer does not. With RANK 0 all weights learn.
"""

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from policies.models.stand_in import BACKBONES
from seal_ray.config.resolve import LORA_TARGETS
from seal_ray.grpo.forward import token_logprobs
from seal_ray.training.fsdp import shard_module

SAMPLED = 1024


def config_of(model: str, layers: int) -> PretrainedConfig:
    """The true shapes of a model with so many layers."""
    (backbone,) = [each for name, each in BACKBONES.items() if f"-{model}" in name.lower()]
    config: PretrainedConfig = AutoConfig.for_model(**backbone.config(num_hidden_layers=layers))
    config._attn_implementation = "sdpa"
    return config


class Learning(nn.Module):
    """What `LMModule` holds, without its files."""

    def __init__(self, config: PretrainedConfig, *, checkpoints: bool, rank: int) -> None:
        super().__init__()
        self.__dict__["half"] = True  # which `nn.Module` has as a method
        model: Any = _frozen(config) if rank else AutoModelForCausalLM.from_config(config)
        if checkpoints:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        if checkpoints and rank:
            model.enable_input_require_grads()
        lora = LoraConfig(r=rank, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM") if rank else None
        self.language_model: Any = get_peft_model(model, lora) if lora else model
        self.reference = None if rank else _frozen(config).requires_grad_(False)
        self.reshard_reference: Any = lambda: None

    def forward(self, packed: Any) -> Any:
        logprobs = token_logprobs(self.language_model, packed)
        base = nullcontext() if self.reference else self.language_model.disable_adapter()
        with torch.no_grad(), base:
            reference = token_logprobs(self.reference or self.language_model, packed)
            self.reshard_reference()
        return logprobs.sum() - reference.sum()


def _faked(module: nn.Module) -> nn.Module:
    """The module with tensors of this mode instead of its own. PEFT cannot make its layers in this mode."""
    made: dict[Any, Any] = {}
    for part in module.modules():
        for name, own in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if own not in made:
                tensor = torch.empty(own.shape, dtype=own.dtype)
                is_learnt = own.requires_grad
                made[own] = nn.Parameter(tensor, is_learnt) if isinstance(own, nn.Parameter) else tensor
            setattr(part, name, made[own])
    return module


def _frozen(config: PretrainedConfig) -> Any:
    """A model whose matrices are bfloat16, and its embeddings float32."""
    torch.set_default_dtype(torch.bfloat16)
    model = AutoModelForCausalLM.from_config(config)
    torch.set_default_dtype(torch.float32)
    embedding = nn.Embedding(config.vocab_size, config.hidden_size)
    model.set_input_embeddings(embedding)
    if config.tie_word_embeddings:
        model.get_output_embeddings().weight = embedding.weight
    return model


def peak(model: str, layers: int, learners: int, tokens: int, checkpoints: int, rank: int) -> int:
    dist.init_process_group("fake", rank=0, world_size=learners, store=FakeStore())
    mesh = init_device_mesh("cpu", (learners,))
    with torch.device("meta"):
        learning = Learning(config_of(model, layers), checkpoints=bool(checkpoints), rank=rank)
    with FakeTensorMode(allow_non_fake_inputs=True):
        module: Any = _faked(learning)
        shard_module(module, mesh)
        packed = SimpleNamespace(
            token_ids_1N=torch.zeros(1, tokens, dtype=torch.long),
            position_ids_1N=torch.arange(tokens)[None],
            segments=(),
            predicts_M=torch.arange(SAMPLED),
            targets_M=torch.zeros(SAMPLED, dtype=torch.long),
        )
        tracker = FSDPMemTracker(module)
        tracker.track_inputs(())
        with tracker:
            for _ in range(2):
                module(packed).backward()
                module.zero_grad()
                tracker.reset_mod_stats()
        found = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    dist.destroy_process_group()
    return int(found)


if __name__ == "__main__":
    for words in sys.argv[1:]:
        name, *numbers = words.split(",")
        print(peak(name, *map(int, numbers)), flush=True)
