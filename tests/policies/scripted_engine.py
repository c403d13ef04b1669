"""An engine without a model: what it samples is a pure function of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from policies.engine import BASE, Adapter, BadRequest, EngineDead, EngineReport, Finish, GenRequest, GenResult
from policies.engine.buckets import Bucket, open_buffer
from policies.engine.requests import RequestChecker

if TYPE_CHECKING:
    import torch


class ScriptedEngine:
    """An `Engine` that follows a script and records every request and update.

    `answer(request)` is what would be sampled if nothing stopped it; it is cut at `max_tokens`, or after the first stop
    token. `logprob(request, token)` is the log-probability (nats) of a token after `request.prompt_ids`; None is 0 for
    all. Both are pure functions, so that the order of requests changes nothing.
    """

    def __init__(
        self,
        answer: Callable[[GenRequest], Sequence[int]],
        *,
        logprob: Callable[[GenRequest, int], float] | None = None,
        context: int = 4096,
        vocabulary: int = 1 << 20,
    ) -> None:
        self._answer = answer
        self._logprob = logprob
        self._checker = RequestChecker(vocabulary, context)
        self._versions = {BASE: 0}
        self._alive_for: int | None = None
        self._closed = False
        self.requests: list[GenRequest] = []
        """Every request in order, refused ones included."""
        self.weight_updates: list[tuple[Mapping[str, torch.Tensor], int]] = []
        """Weights and version of every full update."""
        self._opened: dict[str, torch.Tensor] = {}
        self.adapter_updates: list[tuple[str, Adapter, int]] = []
        """Policy, adapter and version of every adapter update."""
        self.restarts = 0

    def die_after(self, n: int) -> None:
        """Lets the `n`-th `generate` from now on (1 is the next) and all later ones fail, until `restart`."""
        if n < 1:
            raise ValueError(f"n: {n} is not possible; the next generate is 1.")
        self._alive_for = n - 1

    async def generate(self, request: GenRequest) -> GenResult:
        self.requests.append(request)
        self._checker.check(request, self._versions)
        self._check_alive()
        if self._alive_for is not None:
            self._alive_for -= 1
        await asyncio.sleep(0)  # other requests run meanwhile, as with a real engine
        tokens, finish = self.cut(request)
        return GenResult(
            token_ids_T=tokens,
            sampled_logprobs_T=self._logprobs(request, request.prompt_ids + tokens, len(request.prompt_ids)),
            versions_T=(self._versions[request.policy],) * len(tokens),
            finish=finish,
            masked=request.json_schema is not None,
        )

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        self._checker.check_scored(token_ids, start, policy, self._versions)
        self._check_alive()
        await asyncio.sleep(0)
        return self._logprobs(GenRequest(token_ids, max_tokens=1, policy=policy), token_ids, start)

    def _logprobs(self, request: GenRequest, token_ids: tuple[int, ...], start: int) -> tuple[float, ...]:
        """The log-prob of each token from `start` on, as the next one of the request with the prompt before it."""
        places = range(start, len(token_ids))
        if self._logprob is None:
            return (0.0,) * len(places)
        return tuple(self._logprob(replace(request, prompt_ids=token_ids[:at]), token_ids[at]) for at in places)

    async def update_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        self._check_alive()
        self.weight_updates.append((weights, version))
        self._versions[BASE] = version

    async def update_bucket(self, bucket: Bucket, handles: Sequence[Sequence[Any]], version: int) -> None:
        import torch

        device = torch.device("cpu")
        opened = open_buffer(handles[0], bucket.shapes, bucket.dtype, bucket.checksum, device)
        self._opened |= {name: tensor.clone() for name, tensor in opened.items()}
        if bucket.is_last:
            whole, self._opened = self._opened, {}
            await self.update_weights(whole, version)

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        if policy == BASE:
            raise BadRequest(f"policy: {BASE!r} is the model itself; an adapter needs a name of its own.")
        self._check_alive()
        self.adapter_updates.append((policy, adapter, version))
        self._versions[policy] = version

    async def sleep(self) -> None:
        self._check_alive()

    async def restart(self) -> None:
        self.restarts += 1
        self._alive_for = None
        self._closed = False

    def report(self) -> EngineReport:
        return EngineReport("scripted", "scripted", "none", dict(self._versions), self._checker.context)

    async def close(self) -> None:
        self._closed = True

    def cut(self, request: GenRequest) -> tuple[tuple[int, ...], Finish]:
        """The scripted tokens up to a stop token or the limit, and why they end there. Raises `ValueError`."""
        tokens = tuple(self._answer(request))[: request.max_tokens]
        for index, token in enumerate(tokens):
            if token in request.stop_token_ids:
                return tokens[: index + 1], Finish.STOP
        if len(tokens) < request.max_tokens:
            # No real engine ends like this: a result ends in a stop token or has max_tokens.
            raise ValueError(
                f"answer: {len(tokens)} tokens without a stop token of {request.stop_token_ids} are too few; "
                f"max_tokens is {request.max_tokens}."
            )
        return tokens, Finish.LENGTH

    def _check_alive(self) -> None:
        if self._closed:
            raise EngineDead("the engine is closed")
        if self._alive_for == 0:
            raise EngineDead("the script has reached the engine's death")
