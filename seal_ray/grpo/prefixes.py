"""Shared prefixes: tokens that rows of a group have in common from the first one on are laid out, and computed, once.

The rows of a group are a tree: each segment is a run of tokens that the same rows share, and its children are where
these rows part. A segment attends to its ancestors and to itself, which is just what each of its rows would have
attended to, so that nothing is approximated; gradients of shared tokens add up. The idea for one opening a group is
Prefix Grouper's (arXiv 2506.05433), for trees that of Tree Training (arXiv 2511.00413).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seal_ray.grpo.rows import Row


@dataclass(frozen=True, slots=True)
class Segment:
    """Places `begin` to `end` of a layout. Its descendants are at `end` to `subtree`, depth first."""

    begin: int
    end: int
    subtree: int
    ancestors: tuple[tuple[int, int], ...]
    """The places of each ancestor, the first one first: what its tokens see beside each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Groups of rows laid end to end, depth first: N tokens in all, each shared one once.

    `places` has, for each row in order, the place of each of its T tokens; `positions_N` are the tokens' positions in
    their rows, from 0.
    """

    token_ids_N: NDArray[np.int64]
    positions_N: NDArray[np.int64]
    segments: tuple[Segment, ...]
    places: list[NDArray[np.int64]]


def lay_out(groups: Sequence[Sequence[Row]]) -> Layout:
    """The layout of these groups. Rows share tokens with those of their group alone."""
    tokens: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    segments: list[Segment] = []
    places: list[NDArray[np.int64]] = []
    filled = 0
    for group in groups:
        mine = [np.empty(len(row), dtype=np.int64) for row in group]
        places += mine
        # Rows that share their tokens up to here: from the last one on, so that the first comes off first.
        waiting: list[tuple[list[int], int, tuple[tuple[int, int], ...]]] = [(list(range(len(group))), 0, ())]
        first = len(segments)
        while waiting:
            members, start, ancestors = waiting.pop()
            end = common_tokens([group[index] for index in members], start)
            if end > start:
                begin, filled = filled, filled + end - start
                tokens.append(group[members[0]].token_ids_T[start:end])
                positions.append(np.arange(start, end))
                segments.append(Segment(begin, filled, filled, ancestors))
                for index in members:
                    mine[index][start:end] = np.arange(begin, filled)
                ancestors = (*ancestors, (begin, filled))
            parting: dict[int, list[int]] = {}
            for index in members:
                if len(group[index]) > end:
                    parting.setdefault(int(group[index].token_ids_T[end]), []).append(index)
            waiting += [(each, end, ancestors) for each in reversed(parting.values())]
        segments[first:] = _with_subtrees(segments[first:])
    return Layout(np.concatenate(tokens), np.concatenate(positions), tuple(segments), places)


def common_tokens(rows: Sequence[Row], start: int = 0) -> int:
    """How many tokens these rows share from their first one on, given that they share the first `start`."""
    shortest = min(map(len, rows))
    for row in rows[1:]:
        differs = np.flatnonzero(row.token_ids_T[start:shortest] != rows[0].token_ids_T[start:shortest])
        shortest = start + int(differs[0]) if len(differs) else shortest
    return shortest


def in_order(group: Sequence[Row]) -> list[Row]:
    """The rows such that each shares most with those beside it: sorted by their tokens."""
    return sorted(group, key=lambda row: row.token_ids_T.astype(">i8").tobytes())


def added_tokens(rows: Sequence[Row]) -> list[int]:
    """How many tokens each row adds to a layout of those before it, for rows in the order of `in_order`."""
    shared = [0, *map(common_tokens, itertools.pairwise(rows))]
    return [len(row) - common for row, common in zip(rows, shared, strict=False)]


def _with_subtrees(segments: Sequence[Segment]) -> list[Segment]:
    """With the end of each one's subtree: where the next segment that is not below it begins."""
    ends: dict[int, int] = {}
    for segment in segments:
        for begin, _ in (*segment.ancestors, (segment.begin, segment.end)):
            ends[begin] = segment.end
    return [Segment(each.begin, each.end, ends[each.begin], each.ancestors) for each in segments]
