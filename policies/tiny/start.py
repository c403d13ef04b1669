"""The tiny base's initial weights, in which two heads already look up tokens in the context.

Copying a value from a request into a call takes an induction head: it finds the earlier place of the current token, and
predicts the token after it (Olsson et al. 2022, arXiv 2209.11895). It needs two layers that are useless without each
other, which small models learn only after tens of millions of tokens. So they are initialised by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

_EMBEDDING = 0.06
"""Standard deviation of the embeddings. They are the output layer too: at this scale a copied token stands out."""
_FAST = 6
"""Rotary pairs that turn fast enough to distinguish neighbouring positions."""
_SLOW = 14
"""The first rotary pair that hardly turns over some hundred tokens, so that content is compared and not position."""
_BACK = 8.0
"""Strength of looking back by a fixed number of tokens."""
_MATCH = 2.2
"""Strength of looking for the same token."""
_KEEP = 0.12
"""Strength of the information about the tokens before a token."""
_SAY = 0.4
"""Strength of the prediction of a copied token."""


@torch.no_grad()
def put_copying_heads(model: Qwen2ForCausalLM, *, rope_theta: float) -> None:
    """Puts look-back heads into layer 0 and induction heads into layer 1. Uses torch's global random state."""
    config = model.config
    assert config.num_key_value_heads is not None, "the recipe sets it"
    hidden = config.hidden_size
    size = hidden // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    first, second = (model.model.layers[index].self_attn for index in (0, 1))
    model.model.embed_tokens.weight.normal_(0, _EMBEDDING)
    basis = torch.linalg.qr(torch.randn(hidden, hidden))[0]
    seen, before = torch.linalg.qr(torch.randn(hidden, hidden))[0][:size], basis[:size]

    # Layer 0, first group of heads: head h of it attends h + 1 tokens back, by its biases alone.
    frequencies = torch.tensor(rope_theta) ** (-torch.arange(size // 2) / (size // 2))
    first.k_proj.bias[:_FAST] = _BACK
    first.v_proj.weight[:size] = seen
    for head in range(group):
        phase = frequencies[:_FAST] * (head + 1)
        bias = first.q_proj.bias[head * size : (head + 1) * size]
        bias[:_FAST], bias[size // 2 : size // 2 + _FAST] = _BACK * phase.cos(), -_BACK * phase.sin()
        kept = basis[head * size : (head + 1) * size]
        first.o_proj.weight[:, head * size : (head + 1) * size] = _KEEP * kept.T

    # Layer 1, first head of each group: what stood before a token must be the token at hand.
    slow = torch.cat([torch.arange(_SLOW, size // 2), torch.arange(size // 2 + _SLOW, size)])
    said = torch.linalg.qr(torch.randn(hidden, hidden))[0]
    for key_head in range(config.num_key_value_heads):
        rows, queries = key_head * size, key_head * group * size
        second.k_proj.weight[rows + slow] = _MATCH * before[: len(slow)]
        second.q_proj.weight[queries + slow] = _MATCH * seen[: len(slow)]
        part = said[key_head * size : (key_head + 1) * size]
        second.v_proj.weight[rows : rows + size] = part
        second.o_proj.weight[:, queries : queries + size] = _SAY * part.T
