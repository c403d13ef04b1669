"""Rows, micro-batches, shards and what they are collated to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seal_ray.grpo.packing import collate, pack, shard
from seal_ray.grpo.rows import Row, make_row
from tests.seal_ray.grpo.models import alone, random_rows


@st.composite
def groups_of_rows(draw: st.DrawFn) -> list[list[Row]]:
    """Groups of rows over few tokens, so that many share some."""
    tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)
    groups = draw(st.lists(st.lists(tokens, min_size=1, max_size=6), max_size=6))
    return [[_row(each) for each in group] for group in groups]


def _row(token_ids: list[int]) -> Row:
    return make_row(token_ids, [place > 0 for place in range(len(token_ids))], [-1.0] * len(token_ids), 1.0)


def tree_size(rows: Sequence[Row]) -> int:
    """How many different starts the rows have: a tree of their tokens has a node for each."""
    return len({tuple(row.token_ids_T[:end]) for row in rows for end in range(1, len(row) + 1)})


def ids(rows: Iterable[Row]) -> list[int]:
    return sorted(map(id, rows))


@given(groups_of_rows(), st.integers(1, 40))
def test_bins_hold_every_row_once_within_the_budget(groups: list[list[Row]], budget: int) -> None:
    bins = pack(groups, budget)
    assert ids(row for each in bins for part in each for row in part) == ids(row for group in groups for row in group)
    of_group = {id(row): number for number, group in enumerate(groups) for row in group}
    assert all(len({of_group[id(row)] for row in part}) == 1 for each in bins for part in each)
    filled = [sum(map(tree_size, each)) for each in bins]
    assert all(tokens <= budget or sum(map(len, each)) == 1 for each, tokens in zip(bins, filled, strict=True))
    assert [[ids(part) for part in each] for each in pack(groups, budget)] == [[ids(p) for p in each] for each in bins]
    # Two bins that would go into one would be a waste that first fit does not make.
    assert sum(2 * tokens <= budget for tokens in filled) <= 1


def test_first_fit_in_falling_length() -> None:
    rows = {length: _row([length] * length) for length in (3, 9, 4, 5, 6, 1)}
    found = pack([[row] for row in rows.values()], 10)
    assert [[len(part[0]) for part in each] for each in found] == [[9, 1], [6, 4], [5, 3]]
    assert [len(each) for each in pack([[_row([0] * 12)], [rows[3]], [rows[1]]], 4)] == [1, 2]
    with pytest.raises(ValueError, match="budget"):
        pack([[rows[1]]], 0)


def test_a_group_that_is_too_long_is_cut_and_shares_in_each_part() -> None:
    group = [_row([7] * 10 + [number] * 5) for number in range(6)]
    assert [[len(part) for part in each] for each in pack([group], 40)] == [[6]]
    assert [[len(part) for part in each] for each in pack([group], 25)] == [[3], [3]]


@given(groups_of_rows(), st.integers(1, 5))
def test_shards_are_balanced(groups: list[list[Row]], shards: int) -> None:
    parts = shard(groups, shards)
    assert len(parts) == shards
    assert ids(row for each in parts for part in each for row in part) == ids(row for group in groups for row in group)
    # A learner has its share but for half a row at each end, and once more what a group shares that was cut there.
    share = sum(map(tree_size, groups)) / shards
    longest = max((len(row) for group in groups for row in group), default=0)
    for each in parts:
        assert sum(map(tree_size, each)) <= share + 2 * longest
    assert sum(map(len, parts)) <= len(groups) + shards - 1


def test_no_shards_raise() -> None:
    with pytest.raises(ValueError, match="0 shards"):
        shard([[_row([1])]], 0)


def test_collate_by_hand() -> None:
    first = make_row([5, 6, 7, 8], [False, True, False, True], [0, -0.5, 0, -0.25], 2.0)
    second = make_row([9, 1], [False, True], [math.nan, -1.5], -1.0)
    packed = collate([[first, second]])
    assert packed.token_ids_1N.tolist() == [[5, 6, 7, 8, 9, 1]]
    assert packed.position_ids_1N.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert packed.predicts_M.tolist() == [0, 2, 4]
    assert packed.targets_M.tolist() == [6, 8, 1]
    assert packed.sampled_logprobs_M.tolist() == [-0.5, -0.25, -1.5]
    assert packed.advantages_M.tolist() == [2.0, 2.0, -1.0]
    assert packed.row_M.tolist() == [0, 0, 1]
    assert packed.sampled_logprobs_M.dtype == packed.advantages_M.dtype == torch.float32
    moved = packed.to("meta")
    values = [getattr(moved, name) for name in type(moved).__slots__]
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert moved.segments == packed.segments
    with pytest.raises(ValueError, match="nothing to pack"):
        collate([])


@given(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.integers(0, 1000))
def test_what_is_scored_is_what_was_sampled(lengths: list[int], seed: int) -> None:
    rows = random_rows(seed, tuple(lengths))
    packed = collate(alone(rows))
    flat = packed.token_ids_1N[0]
    assert (flat[packed.predicts_M + 1] == packed.targets_M).all()
    for number, row in enumerate(rows):
        start = sum(lengths[:number])
        mine = packed.row_M == number
        assert (packed.predicts_M[mine] - start + 1).tolist() == np.flatnonzero(row.mask_T).tolist()
        assert (packed.advantages_M[mine] == row.advantage).all()
        assert packed.position_ids_1N[0, start : start + lengths[number]].tolist() == list(range(lengths[number]))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (([1, 2], [False], [0.0, 0.0], 1.0), "2 tokens, 1 of the mask"),
        (([1, 2], [False, True], [0.0], 1.0), "1 log-probs"),
        (([], [], [], 1.0), "without tokens"),
        (([1, 2], [True, True], [0.0, 0.0], 1.0), "first token"),
        (([1, 2], [False, True], [0.0, 0.0], math.nan), "not finite"),
        (([1, 2], [False, True], [0.0, -math.inf], 1.0), "not finite"),
    ],
)
def test_rows_that_are_none_raise(values: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_row(*values)


def test_a_row_has_its_types() -> None:
    row = make_row([1, 2, 3], [0, 1, 1], [0.0, -1.0, -2.0], 1)  # type: ignore[list-item]
    assert [str(each.dtype) for each in (row.token_ids_T, row.mask_T, row.sampled_logprobs_T)] == [
        "int64",
        "bool",
        "float32",
    ]
    assert (len(row), row.sampled_tokens) == (3, 2)
