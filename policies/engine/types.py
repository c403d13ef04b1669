"""The values of an engine's interface: requests, results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from envs.errors import SealError

if TYPE_CHECKING:
    import torch

BASE = "base"
"""The policy that is the base model alone, with no adapter."""
LEAST_TEMPERATURE = 0.01
"""The least that is not greedy: vLLM would sample at this one for any between 0 and it."""


class BadRequest(SealError, ValueError):
    """The request cannot be served (too long, an unknown token or policy). The engine is as healthy as before."""


class EngineDead(SealError, RuntimeError):
    """The engine's process has ended or cannot go on. `restart` brings it back with the last weights."""


class DeliveryError(SealError, RuntimeError):
    """Weights were sent but the engine does not compute with them. It must not sample before it has been restarted."""


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """A stop token was sampled; it is the last token of the result."""
    LENGTH = "length"
    """`max_tokens` were sampled."""


@dataclass(frozen=True, slots=True)
class GenRequest:
    """One completion to sample.

    `prompt_ids` is the whole context as token ids; nothing is ever tokenised by an engine. `seed` makes the sample
    repeatable, alone or among others. `temperature` 0 is greedy. `policy` names an adapter, or `BASE`.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    policy: str = BASE
    json_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GenResult:
    """A sampled completion of T tokens.

    `token_ids_T` are the tokens as sampled, a stop token included. `sampled_logprobs_T` are their log-probabilities
    (nats) under the distribution they were sampled from, temperature and top-p included; if greedy, under the model's
    own. `versions_T` is the version of the policy's weights at each token. `masked` says that a grammar restricted the
    sampling, so that `sampled_logprobs_T` are not the model's own. `cached_tokens` counts prompt tokens from the cache.
    """

    token_ids_T: tuple[int, ...]
    sampled_logprobs_T: tuple[float, ...]
    versions_T: tuple[int, ...]
    finish: Finish
    masked: bool = False
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A LoRA adapter as PEFT saves it: `config` is its adapter_config.json, `tensors` its safetensors file.

    Names are PEFT's, for instance `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` of shape (r, in) and
    `….lora_B.weight` of shape (out, r).
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What an engine holds: kind, model folder, computing type, policy → version of its weights, context in tokens."""

    kind: str
    model: str
    dtype: str
    versions: Mapping[str, int]
    context: int
