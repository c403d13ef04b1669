"""Packing: rows laid end to end without padding, and shared out among micro-batches and learners by their tokens."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seal_ray.grpo.rows import Row


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Bins of row indices with at most `budget` tokens each, by first fit in falling length; the same every time.

    A row longer than the budget has a bin to itself. Raises `ValueError` for a budget below 1.
    """
    if budget < 1:
        raise ValueError(f"a budget of {budget} tokens holds no row")
    bins: list[list[int]] = []
    filled: list[int] = []
    for index in _longest_first(lengths):
        for number, tokens in enumerate(filled):
            if tokens + lengths[index] <= budget:
                bins[number].append(index)
                filled[number] += lengths[index]
                break
        else:
            bins.append([index])
            filled.append(lengths[index])
    return bins


def shard(lengths: Sequence[int], shards: int) -> list[list[int]]:
    """Row indices for each of so many learners, each in rising order, with token sums that differ by a row at most.

    Each row goes to the learner with the fewest tokens yet, the longest row first; the same every time. With fewer rows
    than learners some get none. Raises `ValueError` for fewer than one learner.
    """
    if shards < 1:
        raise ValueError(f"{shards} shards")
    parts: list[list[int]] = [[] for _ in range(shards)]
    emptiest = [(0, number) for number in range(shards)]
    for index in _longest_first(lengths):
        tokens, number = heapq.heappop(emptiest)
        parts[number].append(index)
        heapq.heappush(emptiest, (tokens + lengths[index], number))
    return [sorted(part) for part in parts]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Rows laid end to end: N tokens in all, M of them sampled.

    `predicts_M` are the places n (rising) whose next token was sampled, so that the logits at n score `targets_M`;
    `row_M` says which row each belongs to. `position_ids_1N` start at 0 in each row, which is how the attention tells
    rows apart.
    """

    token_ids_1N: Tensor
    position_ids_1N: Tensor
    predicts_M: Tensor
    targets_M: Tensor
    sampled_logprobs_M: Tensor
    advantages_M: Tensor
    row_M: Tensor

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return type(self)(*(getattr(self, each.name).to(device) for each in fields(self)))


def collate(rows: Sequence[Row]) -> Packed:
    """The rows, packed in this order: int64 indices and float32 values. Raises `ValueError` where there are none."""
    if not rows:
        raise ValueError("nothing to pack")
    lengths = [len(row) for row in rows]
    mask_N = np.concatenate([row.mask_T for row in rows])
    # No row's first token is sampled, so that the place before a sampled token lies in the same row.
    sampled_M = np.flatnonzero(mask_N)
    token_ids_N = np.concatenate([row.token_ids_T for row in rows])
    row_M = np.repeat(np.arange(len(rows)), lengths)[sampled_M]
    advantages = np.array([row.advantage for row in rows], dtype=np.float32)
    return Packed(
        token_ids_1N=torch.from_numpy(token_ids_N)[None],
        position_ids_1N=torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))[None],
        predicts_M=torch.from_numpy(sampled_M - 1),
        targets_M=torch.from_numpy(token_ids_N[sampled_M]),
        sampled_logprobs_M=torch.from_numpy(np.concatenate([row.sampled_logprobs_T for row in rows])[sampled_M]),
        advantages_M=torch.from_numpy(advantages[row_M]),
        row_M=torch.from_numpy(row_M),
    )


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
