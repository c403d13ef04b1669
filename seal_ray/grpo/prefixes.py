"""Shared prefixes: tokens that rows of a group share from the first one on are laid out, and computed, once.

The rows of a group are a tree: a segment is a run of tokens that the same rows share, and its children continue these
rows. A segment attends to its ancestors and itself, as each of its rows would, so that nothing is approximated. Prefix
Grouper (arXiv 2506.05433) does so for one opening a group, Tree Training (arXiv 2511.00413) for trees.
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


def sorted_categories(group: Sequence[Row]) -> list[Row]:
    """The rows sorted by their tokens, so that neighbours share most."""
    return sorted(group, key=lambda row: row.token_ids_T.astype(">i8").tobytes())


def added_tokens(rows: Sequence[Row]) -> list[int]:
    """Number of tokens that each row adds to a layout of the rows before it, in the order of `sorted_categories`."""
    shared = [0, *map(common_tokens, itertools.pairwise(rows))]
    return [len(row) - common for row, common in zip(rows, shared, strict=False)]


def _with_subtrees(segments: Sequence[Segment]) -> list[Segment]:
    """The segments with the ends of their subtrees."""
    ends: dict[int, int] = {}
    for segment in segments:
        for begin, _ in (*segment.ancestors, (segment.begin, segment.end)):
            ends[begin] = segment.end
    return [Segment(each.begin, each.end, ends[each.begin], each.ancestors) for each in segments]
