"""The learner's forward pass: log-probs of the sampled tokens of packed rows."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seal_ray.grpo.attention import SEGMENTS
from seal_ray.grpo.packing import Packed

LOGITS = 128 << 20
"""Bytes of float32 logits that are held at a time, without their gradient and softmax."""


def token_logprobs(model: nn.Module, packed: Packed, *, temperature: float = 1.0) -> Tensor:
    """`logprobs_M` (nats) of the sampled tokens under the model, at the temperature that they were sampled with.

    Logits are computed for sampled tokens only, in chunks, and again in the backward pass if the output layer learns.
    Their softmax is in float32, or float64 for a model in float64. Soft capping and scaling of logits are not applied.

    Args:
        model: A causal language model of Transformers, or a PEFT wrapper of one.
        packed: The rows, on the model's device.
        temperature: The sampling temperature.

    Raises:
        ValueError: If rows share tokens and the model does not attend to segments.
    """
    causal: Any = model
    if hasattr(causal, "get_base_model"):  # PEFT's wrapper; the adapters are inside the base's layers
        causal = causal.get_base_model()
    options = {"segments": packed.segments} if attends_to_segments(causal) else {}
    if not options and any(segment.ancestors for segment in packed.segments):
        raise ValueError("rows that share tokens need the attention over segments")
    hidden_1NH = causal.get_decoder()(
        input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False, **options
    ).last_hidden_state
    hidden_MH = hidden_1NH[0, packed.predicts_M]
    output = causal.get_output_embeddings()

    size = chunk_tokens(causal.config.vocab_size)
    chunks = list(zip(torch.split(hidden_MH, size), torch.split(packed.targets_M, size), strict=True))
    frozen = _is_frozen(output)
    if not torch.is_grad_enabled() or (len(chunks) == 1 and not frozen):
        return torch.cat([_score(output, hidden, targets, temperature) for hidden, targets in chunks])
    if frozen:
        weight_VH, device = output.weight, output.weight.device.type
        if torch.is_autocast_enabled(device):  # cast once for all chunks
            weight_VH = weight_VH.to(torch.get_autocast_dtype(device))
        return torch.cat([_Score.apply(hidden, weight_VH, targets, temperature) for hidden, targets in chunks])  # type: ignore[no-untyped-call]
    # Checkpoints, since the backward pass would otherwise keep every chunk's logits.
    return torch.cat(
        [checkpoint(_score, output, hidden, targets, temperature, use_reentrant=False) for hidden, targets in chunks]
    )


def attends_to_segments(model: nn.Module) -> bool:
    """Whether rows may share tokens in this model of Transformers, or PEFT wrapper of one."""
    config: Any = model.config
    return bool(config._attn_implementation == SEGMENTS)


def chunk_tokens(vocabulary: int) -> int:
    """Number of tokens whose logits are held at a time, for a vocabulary of this size."""
    return max(1, LOGITS // (4 * vocabulary))


def _score(output: nn.Module, hidden_MH: Tensor, targets_M: Tensor, temperature: float) -> Tensor:
    return _normalised(output(hidden_MH), temperature).gather(-1, targets_M[:, None])[:, 0]


def _normalised(logits_MV: Tensor, temperature: float) -> Tensor:
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    if temperature != 1.0:  # a pass over all logits, and one of the backward pass
        logits_MV = logits_MV / temperature
    return torch.log_softmax(logits_MV, dim=-1)


def _is_frozen(output: nn.Module) -> bool:
    """Whether the output layer is a plain matrix that does not learn and is not sharded."""
    plain = type(output) is nn.Linear and output.bias is None
    return plain and not output.weight.requires_grad and not hasattr(output.weight, "full_tensor")


class _Score(torch.autograd.Function):
    """As `_score` for an output layer w that does not learn, with the softmax p of its logits at the temperature T.

    The forward pass computes the derivative by the hidden state, (w_target - sum_v p_v w_v) / T; no logits are kept.
    """

    @staticmethod
    def forward(ctx: Any, hidden_MH: Tensor, weight_VH: Tensor, targets_M: Tensor, temperature: float) -> Tensor:
        logits_MV = nn.functional.linear(hidden_MH, weight_VH)
        logprobs_MV = _normalised(logits_MV, temperature)
        target_logprobs_M = logprobs_MV.gather(-1, targets_M[:, None])[:, 0]
        # Subtracted before rounding, since little is left for a likely token.
        slopes_MV = logprobs_MV.exp_()
        slopes_MV[torch.arange(len(targets_M), device=targets_M.device), targets_M] -= 1.0
        ctx.save_for_backward((slopes_MV.to(logits_MV.dtype) @ weight_VH).to(hidden_MH.dtype) / -temperature)
        return target_logprobs_M

    @staticmethod
    def backward(ctx: Any, gradient_M: Tensor) -> tuple[Tensor | None, ...]:
        (slopes_MH,) = ctx.saved_tensors
        return (gradient_M[:, None] * slopes_MH).to(slopes_MH.dtype), None, None, None
