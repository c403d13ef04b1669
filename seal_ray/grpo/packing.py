"""Rows of tokens, packed into micro-batches in which tokens that rows of a group share are laid out once."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seal_ray.grpo.rows import Row


@dataclass(frozen=True, slots=True)
class Segment:
    """Places `begin` to `end` of a layout. Its descendants are at `end` to `subtree`, depth first.

    `ancestors` are the places of each ancestor, from the root.
    """

    begin: int
    end: int
    subtree: int
    ancestors: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Groups of rows laid end to end, depth first: N tokens, shared ones once.

    `places` has the places of each row's T tokens; `positions_N` are the tokens' positions in their rows.
    """

    token_ids_N: NDArray[np.int64]
    positions_N: NDArray[np.int64]
    segments: tuple[Segment, ...]
    places: list[NDArray[np.int64]]


def lay_out(groups: Sequence[Sequence[Row]]) -> Layout:
    """The layout of these groups. Rows share tokens only within their group."""
    tokens: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    segments: list[Segment] = []
    places: list[NDArray[np.int64]] = []
    filled = 0
    for group in groups:
        row_places = [np.empty(len(row), dtype=np.int64) for row in group]
        places += row_places
        # Stack of rows that share their tokens up to a place, with that place and the ancestors.
        stack: list[tuple[list[int], int, tuple[tuple[int, int], ...]]] = [(list(range(len(group))), 0, ())]
        first = len(segments)
        while stack:
            members, start, ancestors = stack.pop()
            end = common_tokens([group[index] for index in members], start)
            if end > start:
                begin, filled = filled, filled + end - start
                tokens.append(group[members[0]].token_ids_T[start:end])
                positions.append(np.arange(start, end))
                segments.append(Segment(begin, filled, filled, ancestors))
                for index in members:
                    row_places[index][start:end] = np.arange(begin, filled)
                ancestors = (*ancestors, (begin, filled))
            branches: dict[int, list[int]] = {}
            for index in members:
                if len(group[index]) > end:
                    branches.setdefault(int(group[index].token_ids_T[end]), []).append(index)
            stack += [(branch, end, ancestors) for branch in reversed(branches.values())]
        segments[first:] = _with_subtrees(segments[first:])
    return Layout(np.concatenate(tokens), np.concatenate(positions), tuple(segments), places)


def common_tokens(rows: Sequence[Row], start: int = 0) -> int:
    """Number of tokens that these rows share from the first one on, if they share the first `start`."""
    shortest = min(map(len, rows))
    for row in rows[1:]:
        differs = np.flatnonzero(row.token_ids_T[start:shortest] != rows[0].token_ids_T[start:shortest])
        shortest = start + int(differs[0]) if len(differs) else shortest
    return shortest


def sorted_by_tokens(group: Sequence[Row]) -> list[Row]:
    """The rows sorted by their tokens, so that neighbours share most."""
    return sorted(group, key=lambda row: row.token_ids_T.astype(">i8").tobytes())


def added_tokens(rows: Sequence[Row]) -> list[int]:
    """Number of tokens that each row adds to a layout of the rows before it, in the order of `sorted_by_tokens`."""
    shared = [0, *map(common_tokens, itertools.pairwise(rows))]
    return [len(row) - common for row, common in zip(rows, shared, strict=False)]


def _with_subtrees(segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the ends of their subtrees."""
    ends: dict[int, int] = {}
    for segment in segments:
        for begin, _ in (*segment.ancestors, (segment.begin, segment.end)):
            ends[begin] = segment.end
    return [Segment(each.begin, each.end, ends[each.begin], each.ancestors) for each in segments]


Groups = list[list[Row]]


def pack(groups: Sequence[Sequence[Row]], budget: int) -> list[Groups]:
    """Micro-batches of at most `budget` tokens, by first fit in decreasing length; deterministic.

    A longer group is cut, and a longer row gets its own micro-batch.
    """
    parts = [part for group in groups for part in _cut(sorted_by_tokens(group), budget)]
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

    With fewer rows than learners some get none.
    """
    ordered = [sorted_by_tokens(group) for group in groups]
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

    The logits at the places `predicts_M` score the sampled `targets_M`, row by row; `stripped_M` is whether a
    token's row is hint-stripped. `position_ids_1N` are positions in rows.
    """

    token_ids_1N: Tensor
    position_ids_1N: Tensor
    predicts_M: Tensor
    targets_M: Tensor
    sampled_logprobs_M: Tensor
    advantages_M: Tensor
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
