"""The learner's forward pass: log-probs of the sampled tokens of packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seal_ray.grpo.attention import SEGMENTS
from seal_ray.grpo.packing import Packed

LOGITS = 128 << 20
"""Bytes of float32 logits that are held at a time, not counting their gradient and softmax."""


def token_logprobs(model: nn.Module, packed: Packed, *, temperature: float = 1.0) -> Tensor:
    """`logprobs_M` (nats) of the sampled tokens under the model, at the temperature that they were sampled with.

    `model` is a causal language model of Transformers, or a PEFT wrapper of one; `packed` lies on its device. Logits
    are computed where they score a sampled token and nowhere else, some at a time, and again for the backward pass;
    their softmax is in float32, or in float64 for a model in float64. What a model does to its logits after the output
    layer (soft capping, scaling) is not reproduced.

    A token sees what its row has before it: attention over segments (`attention.py`) is told them. Transformers' own
    finds rows by the positions that start over, and takes rows that share nothing: `ValueError` for others.
    """
    causal: Any = model
    # A PEFT wrapper's forward takes what its base takes, but the base has the parts; the adapters are inside of these.
    if hasattr(causal, "get_base_model"):
        causal = causal.get_base_model()
    told = {"segments": packed.segments} if attends_to_segments(causal) else {}
    if not told and any(segment.ancestors for segment in packed.segments):
        raise ValueError("rows that share tokens need the attention over segments")
    hidden_1NH = causal.get_decoder()(
        input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False, **told
    ).last_hidden_state
    hidden_MH = hidden_1NH[0, packed.predicts_M]
    output = causal.get_output_embeddings()

    size = chunk_tokens(causal.config.vocab_size)
    chunks = list(zip(torch.split(hidden_MH, size), torch.split(packed.targets_M, size), strict=True))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([_score(output, hidden, targets, temperature) for hidden, targets in chunks])
    # Without checkpoints every chunk's logits would be kept for the backward pass, and chunks would save nothing.
    return torch.cat(
        [checkpoint(_score, output, hidden, targets, temperature, use_reentrant=False) for hidden, targets in chunks]
    )


def attends_to_segments(model: nn.Module) -> bool:
    """Whether rows may share tokens in this model of Transformers, or PEFT wrapper of one."""
    config: Any = model.config
    return bool(config._attn_implementation == SEGMENTS)


def chunk_tokens(vocabulary: int) -> int:
    """How many tokens' logits are held at a time, for a vocabulary of this size."""
    return max(1, LOGITS // (4 * vocabulary))


def _score(output: nn.Module, hidden_MH: Tensor, targets_M: Tensor, temperature: float) -> Tensor:
    logits_MV = output(hidden_MH)
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    if temperature != 1.0:  # a pass over all logits, and one of the backward pass
        logits_MV = logits_MV / temperature
    return torch.log_softmax(logits_MV, dim=-1).gather(-1, targets_M[:, None])[:, 0]
