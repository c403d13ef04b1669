"""Packing: groups of rows without padding, distributed over micro-batches and learners by their tokens.

Tokens that rows of a group share count once (`prefixes.py`) in each part of a group that is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seal_ray.grpo.prefixes import Segment, added_tokens, common_tokens, lay_out, sorted_categories
from seal_ray.grpo.rows import Row

Groups = list[list[Row]]


def pack(groups: Sequence[Sequence[Row]], budget: int) -> list[Groups]:
    """Micro-batches of at most `budget` tokens, by first fit in decreasing length; deterministic.

    A longer group is cut, and a longer row gets its own micro-batch. Raises `ValueError` for a budget below 1.
    """
    if budget < 1:
        raise ValueError(f"a budget of {budget} tokens holds no row")
    parts = [part for group in groups for part in _cut(sorted_categories(group), budget)]
    bins: list[Groups] = []
    filled: list[int] = []
    for tokens, rows in sorted(parts, key=lambda part: -part[0]):
        for number, already in enumerate(filled):
            if already + tokens <= budget:
                bins[number].append(rows)
                filled[number] += tokens
                break
        else:
            bins.append([rows])
            filled.append(tokens)
    return bins


def shard(groups: Sequence[Sequence[Row]], shards: int) -> list[Groups]:
    """The groups of each learner, with about equal numbers of tokens; deterministic, and few groups are cut.

    With fewer rows than learners some get none. Raises `ValueError` for fewer than one learner.
    """
    if shards < 1:
        raise ValueError(f"{shards} shards")
    ordered = [sorted_categories(group) for group in groups]
    total = sum(sum(added_tokens(rows)) for rows in ordered)
    parts: list[Groups] = [[] for _ in range(shards)]
    done = 0
    for rows in ordered:
        cut: dict[int, list[Row]] = {}
        for row, tokens in zip(rows, added_tokens(rows), strict=True):
            # By the middle of the row.
            learner = min(shards - 1, (2 * done + tokens) * shards // (2 * total))
            cut.setdefault(learner, []).append(row)
            done += tokens
        for learner, mine in cut.items():
            parts[learner].append(mine)
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Groups of rows laid end to end: N tokens, shared ones once, and M sampled ones.

    The logits at the places `predicts_M` score the sampled `targets_M`, row by row; `row_M` is the row of each, and
    `stripped_M` whether it is hint-stripped. `position_ids_1N` are positions in rows.
    """

    token_ids_1N: Tensor
    position_ids_1N: Tensor
    predicts_M: Tensor
    targets_M: Tensor
    sampled_logprobs_M: Tensor
    advantages_M: Tensor
    row_M: Tensor
    stripped_M: Tensor
    segments: tuple[Segment, ...]

    def to(self, device: torch.device | str) -> Self:
        """The same on a device, as `Tensor.to`."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        moved: Any = {key: value.to(device) for key, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


def collate(groups: Sequence[Sequence[Row]]) -> Packed:
    """The groups, packed in this order: int64 indices and float32 values. Raises `ValueError` without rows."""
    rows = [row for group in groups for row in group]
    if not rows:
        raise ValueError("nothing to pack")
    layout = lay_out(groups)
    sampled = [np.flatnonzero(row.mask_T) for row in rows]
    row_M = np.repeat(np.arange(len(rows)), [len(each) for each in sampled])
    advantages = np.array([row.advantage for row in rows], dtype=np.float32)
    stripped = np.array([row.stripped_of is not None for row in rows])

    def flat(parts: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts))

    return Packed(
        token_ids_1N=torch.from_numpy(layout.token_ids_N)[None],
        position_ids_1N=torch.from_numpy(layout.positions_N)[None],
        # No row's first token is sampled.
        predicts_M=flat([places[each - 1] for places, each in zip(layout.places, sampled, strict=True)]),
        targets_M=flat([row.token_ids_T[row.mask_T] for row in rows]),
        sampled_logprobs_M=flat([row.sampled_logprobs_T[row.mask_T] for row in rows]),
        advantages_M=torch.from_numpy(advantages[row_M]),
        row_M=torch.from_numpy(row_M),
        stripped_M=torch.from_numpy(stripped[row_M]),
        segments=layout.segments,
    )


def _cut(rows: Sequence[Row], budget: int) -> list[tuple[int, list[Row]]]:
    """The rows of a group in parts of at most `budget` tokens, each with its number of tokens."""
    parts: list[tuple[int, list[Row]]] = []
    for row in rows:
        if parts:
            tokens, mine = parts[-1]
            more = tokens + len(row) - common_tokens([mine[-1], row])
            if more <= budget:
                parts[-1] = (more, [*mine, row])
                continue
        parts.append((len(row), [row]))
    return parts
