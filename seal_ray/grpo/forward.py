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
    are computed where they score a sampled token and nowhere else, some at a time, and again for the backward pass
    where the output layer learns; their softmax is in float32, or in float64 for a model in float64. What a model does
    to its logits after the output layer (soft capping, scaling) is not reproduced.

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
    frozen = _is_frozen(output)
    if not torch.is_grad_enabled() or (len(chunks) == 1 and not frozen):
        return torch.cat([_score(output, hidden, targets, temperature) for hidden, targets in chunks])
    if frozen:
        weight_VH = _as_computed(output.weight)
        return torch.cat([_Score.apply(hidden, weight_VH, targets, temperature) for hidden, targets in chunks])  # type: ignore[no-untyped-call]
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
    return _normalised(output(hidden_MH), temperature).gather(-1, targets_M[:, None])[:, 0]


def _normalised(logits_MV: Tensor, temperature: float) -> Tensor:
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    if temperature != 1.0:  # a pass over all logits, and one of the backward pass
        logits_MV = logits_MV / temperature
    return torch.log_softmax(logits_MV, dim=-1)


def _is_frozen(output: nn.Module) -> bool:
    """Whether the output layer is a plain matrix that does not learn, and is here as a whole."""
    plain = type(output) is nn.Linear and output.bias is None
    return plain and not output.weight.requires_grad and not hasattr(output.weight, "full_tensor")


def _as_computed(weight: Tensor) -> Tensor:
    """In the precision of matrix products, so that it is cast once and not for each chunk."""
    device = weight.device.type
    return weight.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else weight


class _Score(torch.autograd.Function):
    """As `_score` for an output layer w that does not learn, with the softmax p of its logits at the temperature T.

    The derivative of a log-prob by the hidden state, (w_target - sum_v p_v w_v) / T, comes with the forward pass: no
    logits are kept, and none are computed again.
    """

    @staticmethod
    def forward(ctx: Any, hidden_MH: Tensor, weight_VH: Tensor, targets_M: Tensor, temperature: float) -> Tensor:
        logits_MV = nn.functional.linear(hidden_MH, weight_VH)
        logprobs_MV = _normalised(logits_MV, temperature)
        found_M = logprobs_MV.gather(-1, targets_M[:, None])[:, 0]
        # The target's share is taken off before anything is rounded: of a likely token little is left.
        slopes_MV = logprobs_MV.exp_()
        slopes_MV[torch.arange(len(targets_M), device=targets_M.device), targets_M] -= 1.0
        ctx.save_for_backward((slopes_MV.to(logits_MV.dtype) @ weight_VH).to(hidden_MH.dtype) / -temperature)
        return found_M

    @staticmethod
    def backward(ctx: Any, gradient_M: Tensor) -> tuple[Tensor | None, ...]:
        (slopes_MH,) = ctx.saved_tensors
        return (gradient_M[:, None] * slopes_MH).to(slopes_MH.dtype), None, None, None
