"""The running batch of the transformers engine: rows join and leave between any two tokens.

A row's cache holds all its tokens but the last, which the next step feeds. Joining, and going on after an update of the
weights, are therefore the same computation: the cache of a row's tokens so far. Caches are padded on the left.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from policies.engine.transformers_model import ServedModel
from policies.engine.types import Finish, GenRequest, GenResult

_PREFILL_TOKENS = 8192
"""Tokens, padding included, that are prefilled at once; more would need memory for their attention masks."""


@dataclass(slots=True)
class Slot:
    """What a policy computes with: an adapter's slot of the model, and the version that its tokens carry."""

    name: str
    version: int


@dataclass(slots=True, eq=False)
class BatchRow:
    """A request while it is being sampled."""

    request: GenRequest
    slot: Slot
    future: Future[GenResult]
    noise: torch.Generator
    token_ids_T: list[int] = field(default_factory=list)
    sampled_logprobs_T: list[float] = field(default_factory=list)
    versions_T: list[int] = field(default_factory=list)

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.request.prompt_ids, *self.token_ids_T)

    @property
    def last_id(self) -> int:
        return self.token_ids_T[-1] if self.token_ids_T else self.request.prompt_ids[-1]

    @property
    def finish(self) -> Finish | None:
        if self.token_ids_T and self.token_ids_T[-1] in self.request.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if len(self.token_ids_T) == self.request.max_tokens else None

    def result(self) -> GenResult:
        assert self.finish is not None
        return GenResult(tuple(self.token_ids_T), tuple(self.sampled_logprobs_T), tuple(self.versions_T), self.finish)


class RunningBatch:
    """B rows with one cache. `mask_BT` is 1 where a row's cache holds one of its tokens."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._cache = DynamicCache()
        self._mask_BT = torch.zeros(0, 0, dtype=torch.long, device=model.device)
        self.rows: list[BatchRow] = []

    @torch.inference_mode()
    def join(self, rows: Sequence[BatchRow]) -> None:
        """Computes the rows' caches and takes them in."""
        for group in _groups(rows):
            layers, mask_BT = self._prefill(group)
            width = max(self._mask_BT.shape[1], mask_BT.shape[1])
            if self.rows:
                layers = [
                    (
                        torch.cat((_widened(keys, width), _widened(more_keys, width))),
                        torch.cat((_widened(values, width), _widened(more_values, width))),
                    )
                    for (keys, values), (more_keys, more_values) in zip(_layers(self._cache), layers, strict=True)
                ]
                mask_BT = torch.cat((_left(self._mask_BT, width), _left(mask_BT, width)))
            self._cache, self._mask_BT = DynamicCache(layers), mask_BT
            self.rows = [*self.rows, *group]

    def recompute(self) -> None:
        """Computes the caches anew, after the model's weights have changed."""
        rows, self.rows = self.rows, []
        self.join(rows)

    @torch.inference_mode()
    def advance(self) -> None:
        """Samples one token for each row."""
        ids_B1 = torch.tensor([[row.last_id] for row in self.rows], device=self._model.device)
        self._mask_BT = pad(self._mask_BT, (0, 1), value=1)
        logits_B1V = self._model.forward(
            ids_B1, [row.slot.name for row in self.rows], keep=1, cache=self._cache, mask_BT=self._mask_BT
        )
        _sample(self.rows, logits_B1V[:, 0])

    @torch.inference_mode()
    def drop(self) -> list[BatchRow]:
        """Removes the rows that are finished, which it returns, and those whose request was cancelled."""
        kept = [index for index, row in enumerate(self.rows) if row.finish is None and not row.future.done()]
        finished = [row for row in self.rows if row.finish is not None]
        if len(kept) == len(self.rows):
            return finished
        chosen = torch.tensor(kept, dtype=torch.long, device=self._model.device)
        self.rows = [self.rows[index] for index in kept]
        mask_BT = self._mask_BT[chosen]
        # Columns that only a longer, finished row needed.
        unused = int((mask_BT.sum(0) == 0).sum()) if kept else self._mask_BT.shape[1]
        self._mask_BT = mask_BT[:, unused:]
        layers = [(keys[chosen, :, unused:], values[chosen, :, unused:]) for keys, values in _layers(self._cache)]
        self._cache = DynamicCache(layers)
        return finished

    def _prefill(self, rows: Sequence[BatchRow]) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor]:
        """The rows' caches and mask. What several rows have alike, the prompt of many samples, is computed once."""
        width = max(_cached(row) for row in rows)
        places: dict[tuple[str, tuple[int, ...]], int] = {}
        chosen_B = [places.setdefault(_held(row), len(places)) for row in rows]
        ids_BT = torch.zeros(len(places), width, dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for (_, held), index in places.items():
            if held:
                ids_BT[index, -len(held) :] = torch.tensor(held)
                mask_BT[index, -len(held) :] = 1
        ids_BT, mask_BT = ids_BT.to(self._model.device), mask_BT.to(self._model.device)
        cache = DynamicCache()
        self._model.forward(ids_BT, [slot for slot, _ in places], keep=1, cache=cache, mask_BT=mask_BT)
        layers = _layers(cache)
        if len(places) < len(rows):
            layers = [(keys[chosen_B], values[chosen_B]) for keys, values in layers]
            mask_BT = mask_BT[chosen_B]
        return layers, mask_BT


def _sample(rows: Sequence[BatchRow], logits_BV: torch.Tensor) -> None:
    """Draws a token for each row from its own noise.

    The token is the winner of an exponential race, argmax p/e with e ~ Exp(1): unlike the inverse of a cumulative sum,
    it changes only where two tokens all but tie, so that the last bits, which depend on the batch, do not matter.
    """
    logits_BV = logits_BV.double()
    temperature_B1 = logits_BV.new_tensor([[row.request.temperature or 1.0] for row in rows])
    logprobs_BV = (logits_BV / temperature_B1).log_softmax(-1)
    top_p_B1 = logits_BV.new_tensor([[row.request.top_p if row.request.temperature else 1.0] for row in rows])
    if bool((top_p_B1 < 1).any()):
        logprobs_BV = _nucleus(logprobs_BV, top_p_B1)
    race_BV = logprobs_BV.clone()
    for index, row in enumerate(rows):
        if row.request.temperature:
            e_V = torch.empty_like(race_BV[index]).exponential_(generator=row.noise)
            race_BV[index] -= e_V.log()
    chosen_B = race_BV.argmax(-1)
    logprobs_B = logprobs_BV.gather(1, chosen_B[:, None])[:, 0]
    for row, token, logprob in zip(rows, chosen_B.tolist(), logprobs_B.tolist(), strict=True):
        row.token_ids_T.append(token)
        row.sampled_logprobs_T.append(logprob)
        row.versions_T.append(row.slot.version)


def _nucleus(logprobs_BV: torch.Tensor, top_p_B1: torch.Tensor) -> torch.Tensor:
    """The smallest set of likeliest tokens with at least mass top_p (Holtzman et al. 2020), renormalised."""
    sorted_BV, order_BV = logprobs_BV.sort(-1, descending=True)
    mass_BV = sorted_BV.exp()
    # A token is out if those before it have the mass already; a top_p of 1 leaves all in, whatever the rounding.
    out_BV = ((mass_BV.cumsum(-1) - mass_BV) >= top_p_B1) & (top_p_B1 < 1)
    kept_BV = logprobs_BV.masked_fill(torch.zeros_like(out_BV).scatter(1, order_BV, out_BV), -torch.inf)
    return kept_BV.log_softmax(-1)


def _groups(rows: Sequence[BatchRow]) -> Iterator[list[BatchRow]]:
    """Rows of like length together, so that little is padded."""
    group: list[BatchRow] = []
    computed: set[tuple[str, tuple[int, ...]]] = set()
    for row in sorted(rows, key=_cached):
        held = _held(row)
        computed.add(held)
        if group and len(computed) * _cached(row) > _PREFILL_TOKENS:
            yield group
            group, computed = [], {held}
        group.append(row)
    if group:
        yield group


def _held(row: BatchRow) -> tuple[str, tuple[int, ...]]:
    """What the row's cache is a function of."""
    return row.slot.name, row.ids[:-1]


def _cached(row: BatchRow) -> int:
    return max(1, len(row.request.prompt_ids) + len(row.token_ids_T) - 1)  # no forward pass takes an empty row


def _layers(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(keys, values) for keys, values, _ in cache]


def _widened(states_BHTD: torch.Tensor, width: int) -> torch.Tensor:
    return pad(states_BHTD, (0, 0, width - states_BHTD.shape[2], 0))


def _left(mask_BT: torch.Tensor, width: int) -> torch.Tensor:
    return pad(mask_BT, (width - mask_BT.shape[1], 0))
