"""The engine interface: token ids in, sampled token ids with log-probs out, weights in with proof of delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from policies.engine.types import Adapter, EngineReport, GenRequest, GenResult

if TYPE_CHECKING:
    import torch


class Engine(Protocol):
    """One model served for sampling. All methods are safe to await concurrently; batching is the engine's own."""

    async def generate(self, request: GenRequest) -> GenResult:
        """Samples one completion. Raises `BadRequest` or `EngineDead`."""
        ...

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str) -> tuple[float, ...]:
        """Log-probabilities (nats, temperature 1) of `token_ids[start:]`, each given all tokens before it."""
        ...

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Replaces the base model's weights, named and shaped as in its folder's checkpoint.

        Running completions are kept and go on with the new weights; their later tokens carry the new version. The
        prefix cache is emptied. Raises `BadRequest` for wrong names or shapes, before anything is touched, and
        `DeliveryError` where the engine does not compute with what it was sent.
        """
        ...

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        """Serves `adapter` on top of the base as `policy`, in place of an earlier one of that name.

        Requests of other policies are not disturbed, and running requests of this policy end with the adapter they
        began with. Raises `BadRequest` for an adapter that does not fit the model (or the name `BASE`), before anything
        is touched, and `DeliveryError` where the engine does not compute with what it was sent.
        """
        ...

    async def restart(self) -> None:
        """Starts the engine anew and gives it the weights and adapters that it held last."""
        ...

    def report(self) -> EngineReport:
        """What the engine holds."""
        ...

    async def close(self) -> None:
        """Ends the engine and its processes."""
        ...
