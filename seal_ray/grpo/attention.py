"""Which attention kernel the learner's model runs on."""

from __future__ import annotations

import importlib.util
from typing import Literal

import torch

Attention = Literal["flash_attention_2", "sdpa"]


def choose_attention() -> Attention:
    """FlashAttention 2 where it is installed and there is a GPU for it, else torch's own.

    The first never computes what lies between packed rows; the second masks it and pays for it all the same. The first
    needs a model in bfloat16 or float16.
    """
    if torch.cuda.is_available() and importlib.util.find_spec("flash_attn") is not None:
        return "flash_attention_2"
    return "sdpa"
