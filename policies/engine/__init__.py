"""The engine interface: token ids in, sampled token ids with log-probs out, weights in with proof of delivery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from envs.errors import SealError

if TYPE_CHECKING:
    import torch

BASE = "base"
"""The policy that is the base model alone, with no adapter."""
LEAST_TEMPERATURE = 0.01
"""The lowest temperature that is not greedy: vLLM samples at this one for any value between 0 and it."""


class BadRequest(SealError, ValueError):
    """The request cannot be served (too long, an unknown token or policy). The engine stays healthy."""


class EngineDead(SealError, RuntimeError):
    """The engine's process has ended or is unusable. `restart` brings it back with the last weights."""


class DeliveryError(SealError, RuntimeError):
    """The engine does not compute with the weights that were sent. It must not sample before a restart."""


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """A stop token was sampled; it is the last token of the result."""
    LENGTH = "length"
    """`max_tokens` were sampled."""


@dataclass(frozen=True, slots=True)
class GenRequest:
    """One completion to sample.

    `prompt_ids` is the whole context as token ids; an engine never tokenises. `seed` makes the sample repeatable, alone
    or in a batch. `temperature` 0 is greedy. `policy` names an adapter, or `BASE`.
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
    """A sampled completion of T tokens, the stop token included.

    `sampled_logprobs_T` are log-probabilities (nats) under the distribution that was sampled from, temperature and
    top-p included; if greedy, under the model's own. `versions_T` is the version of the policy's weights at each token.
    If `masked`, a grammar restricted the sampling, and the log-probs are not the model's own. `cached_tokens` counts
    the prompt tokens that came from the cache.
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
    """Kind, model folder, computing type, policy → version of its weights, and context in tokens of an engine."""

    kind: str
    model: str
    dtype: str
    versions: Mapping[str, int]
    context: int


class Sampler(Protocol):
    """One model served for sampling. All methods are safe to await concurrently; the engine batches by itself."""

    async def generate(self, request: GenRequest) -> GenResult:
        """Samples one completion. Raises `BadRequest` or `EngineDead`."""

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str) -> tuple[float, ...]:
        """Log-probabilities (nats, temperature 1) of `token_ids[start:]`, each given all tokens before it."""

    async def restart(self) -> None:
        """Restarts the engine with the last weights and adapters; after buckets with its folder's, at version 0."""


class Engine(Sampler, Protocol):
    """A sampler that takes weights."""

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Replaces the base model's weights, named and shaped as in its folder's checkpoint.

        Running completions continue with the new weights; their later tokens carry the new version. The prefix cache is
        emptied.

        Raises:
            BadRequest: Names or shapes are wrong; nothing was changed.
            DeliveryError: The engine does not compute with the new weights.
        """

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        """Serves `adapter` on top of the base as `policy`, and replaces an earlier one of that name.

        Other policies are not disturbed; running requests of this policy end with the adapter they started with.

        Raises:
            BadRequest: The adapter does not fit the model, or the name is `BASE`; nothing was changed.
            DeliveryError: The engine does not compute with the adapter.
        """

    async def sleep(self) -> None:
        """Releases the GPU's memory, if it was started so, until the next request or update; none may be under way."""

    def report(self) -> EngineReport: ...

    async def close(self) -> None:
        """Ends the engine and its processes."""
