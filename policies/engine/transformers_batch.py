"""The running batch of the transformers engine: rows join and leave between any two tokens.

A row's cache holds all its tokens but the last, which the next step feeds. Joining, and continuing after an update of
the weights, are therefore the same computation: the cache of a row's tokens so far. Caches are padded on the left.
"""

from asyncio import Future
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad
from transformers import DynamicCache

from policies.engine import Finish, GenRequest, GenResult
from policies.engine.transformers_model import ServedModel

_PREFILL_TOKENS = 8192
"""Tokens, padding included, that are prefilled at once; more would need memory for their attention masks."""


@dataclass(slots=True)
class Slot:
    """A policy's slot of adapters in the model, and the version that its tokens carry."""

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
    def cached(self) -> int:
        """Tokens in the cache; 1 at least, since no forward pass takes an empty row."""
        return max(1, len(self.request.prompt_ids) + len(self.token_ids_T) - 1)

    @property
    def cache_key(self) -> tuple[str, tuple[int, ...]]:
        """The slot and the tokens that determine the row's cache."""
        return self.slot.name, self.ids[:-1]

    @property
    def finish(self) -> Finish | None:
        if self.token_ids_T and self.token_ids_T[-1] in self.request.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if len(self.token_ids_T) == self.request.max_tokens else None

    def result(self) -> GenResult:
        assert self.finish is not None
        return GenResult(tuple(self.token_ids_T), tuple(self.sampled_logprobs_T), tuple(self.versions_T), self.finish)


class RunningBatch:
    """B rows with one cache. `mask_BT` is 1 at a row's own tokens in the cache."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._cache = DynamicCache()
        self._mask_BT = torch.zeros(0, 0, dtype=torch.long, device=model.device)
        self.rows: list[BatchRow] = []

    @torch.inference_mode()
    def join(self, rows: Sequence[BatchRow]) -> None:
        """Computes the rows' caches and adds the rows."""
        for group in _prefill_groups(rows):
            layers, mask_BT = self._prefill(group)
            width = max(self._mask_BT.shape[1], mask_BT.shape[1])
            if self.rows:
                layers = [
                    (_padded_cat(keys, more_keys, width), _padded_cat(values, more_values, width))
                    for (keys, values), (more_keys, more_values) in zip(_layers(self._cache), layers, strict=True)
                ]
                mask_BT = torch.cat([pad(mask, (width - mask.shape[1], 0)) for mask in (self._mask_BT, mask_BT)])
            self._cache, self._mask_BT = DynamicCache(layers), mask_BT
            self.rows = [*self.rows, *group]

    def recompute(self) -> None:
        """Computes all caches again, after the model's weights have changed."""
        rows, self.rows = self.rows, []
        self.join(rows)

    @torch.inference_mode()
    def advance(self) -> None:
        """Samples one token for each row."""
        last = [[(row.token_ids_T or row.request.prompt_ids)[-1]] for row in self.rows]
        ids_B1 = torch.tensor(last, device=self._model.device)
        self._mask_BT = pad(self._mask_BT, (0, 1), value=1)
        logits_B1V = self._model.forward(
            ids_B1, [row.slot.name for row in self.rows], keep=1, cache=self._cache, mask_BT=self._mask_BT
        )
        _sample(self.rows, logits_B1V[:, 0])

    @torch.inference_mode()
    def drop(self) -> list[BatchRow]:
        """Removes finished rows, which it returns, and those whose request was cancelled."""
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
        """The rows' caches and mask. What rows have in common, the prompt of many samples, is computed once."""
        width = max(row.cached for row in rows)
        places: dict[tuple[str, tuple[int, ...]], int] = {}
        chosen_B = [places.setdefault(row.cache_key, len(places)) for row in rows]
        ids_BT = torch.zeros(len(places), width, dtype=torch.long)
        mask_BT = torch.zeros_like(ids_BT)
        for (_, tokens), index in places.items():
            if tokens:
                ids_BT[index, -len(tokens) :] = torch.tensor(tokens)
                mask_BT[index, -len(tokens) :] = 1
        ids_BT, mask_BT = ids_BT.to(self._model.device), mask_BT.to(self._model.device)
        cache = DynamicCache()
        self._model.forward(ids_BT, [slot for slot, _ in places], keep=1, cache=cache, mask_BT=mask_BT)
        return [(keys[chosen_B], values[chosen_B]) for keys, values in _layers(cache)], mask_BT[chosen_B]


def _sample(rows: Sequence[BatchRow], logits_BV: torch.Tensor) -> None:
    """Draws a token for each row from its own noise.

    The token is the winner of an exponential race, argmax p/e with e ~ Exp(1). Unlike the inverse of a cumulative sum,
    it changes only if two tokens all but tie, so that the last bits, which depend on the batch, do not matter.
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
    # A token is out if the likelier ones have the mass already; a top_p of 1 keeps all, whatever the rounding.
    out_BV = ((mass_BV.cumsum(-1) - mass_BV) >= top_p_B1) & (top_p_B1 < 1)
    kept_BV = logprobs_BV.masked_fill(torch.zeros_like(out_BV).scatter(1, order_BV, out_BV), -torch.inf)
    return kept_BV.log_softmax(-1)


def _prefill_groups(rows: Sequence[BatchRow]) -> Iterator[list[BatchRow]]:
    """Groups of rows of similar length, so that little is padded."""
    group: list[BatchRow] = []
    computed: set[tuple[str, tuple[int, ...]]] = set()
    for row in sorted(rows, key=lambda row: row.cached):
        computed.add(row.cache_key)
        if group and len(computed) * row.cached > _PREFILL_TOKENS:
            yield group
            group, computed = [], {row.cache_key}
        group.append(row)
    if group:
        yield group


def _layers(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(keys, values) for keys, values, _ in cache]


def _padded_cat(first_BHTD: torch.Tensor, second_BHTD: torch.Tensor, width: int) -> torch.Tensor:
    states = (pad(states_BHTD, (0, 0, width - states_BHTD.shape[2], 0)) for states_BHTD in (first_BHTD, second_BHTD))
    return torch.cat(tuple(states))
