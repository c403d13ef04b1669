"""The learner's forward pass: log-probs of the sampled tokens of packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seal_ray.grpo.packing import Packed

CHUNK = 2048
"""Sampled tokens whose logits are held at a time: with a vocabulary of 152,064 they take 1.2 GB in float32."""


def token_logprobs(model: nn.Module, packed: Packed, *, temperature: float = 1.0) -> Tensor:
    """`logprobs_M` (nats) of the sampled tokens under the model, at the temperature that they were sampled with.

    `model` is a causal language model of Transformers, or a PEFT wrapper of one; `packed` lies on its device. Logits
    are computed where they score a sampled token and nowhere else, and their softmax in float32, or in float64 for a
    model in float64. What a model does to its logits after the output layer (soft capping, scaling) is not reproduced.

    Rows do not see each other. Transformers finds them by the positions that start over, given that the batch is one
    sequence without an attention mask and without a cache; it builds the mask for "sdpa" and "eager", and gives
    "flash_attention_2" the rows' bounds.
    """
    causal: Any = model
    # A PEFT wrapper's forward takes what its base takes, but the base has the parts; the adapters are inside of these.
    if hasattr(causal, "get_base_model"):
        causal = causal.get_base_model()
    hidden_1NH = causal.get_decoder()(
        input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False
    ).last_hidden_state
    hidden_MH = hidden_1NH[0, packed.predicts_M]
    output = causal.get_output_embeddings()

    chunks = list(zip(torch.split(hidden_MH, CHUNK), torch.split(packed.targets_M, CHUNK), strict=True))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([_score(output, hidden, targets, temperature) for hidden, targets in chunks])
    # Without checkpoints every chunk's logits would be kept for the backward pass, and chunks would save nothing.
    return torch.cat(
        [checkpoint(_score, output, hidden, targets, temperature, use_reentrant=False) for hidden, targets in chunks]
    )


def _score(output: nn.Module, hidden_MH: Tensor, targets_M: Tensor, temperature: float) -> Tensor:
    logits_MV = output(hidden_MH)
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32)) / temperature
    return torch.log_softmax(logits_MV, dim=-1).gather(-1, targets_M[:, None])[:, 0]
