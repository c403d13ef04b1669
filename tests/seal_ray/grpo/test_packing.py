"""Rows, bins, shards and what they are collated to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seal_ray.grpo.packing import collate, pack, shard
from seal_ray.grpo.rows import make_row
from tests.seal_ray.grpo.models import random_rows

LENGTHS = st.lists(st.integers(1, 60), max_size=40)


@given(LENGTHS, st.integers(1, 50))
def test_bins_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    bins = pack(lengths, budget)
    assert sorted(index for each in bins for index in each) == list(range(len(lengths)))
    filled = [sum(lengths[index] for index in each) for each in bins]
    assert all(tokens <= budget or len(each) == 1 for each, tokens in zip(bins, filled, strict=True))
    assert pack(lengths, budget) == bins
    # Two bins that would go into one would be a waste that first fit does not make.
    assert sum(2 * tokens <= budget for tokens in filled) <= 1


def test_first_fit_in_falling_length() -> None:
    assert pack([3, 9, 4, 5, 6, 1], 10) == [[1, 5], [4, 2], [3, 0]]
    assert pack([12, 2, 2], 4) == [[0], [1, 2]]
    with pytest.raises(ValueError, match="budget"):
        pack([1], 0)


@given(LENGTHS, st.integers(1, 8))
def test_shards_are_balanced(lengths: list[int], shards: int) -> None:
    parts = shard(lengths, shards)
    assert len(parts) == shards
    assert all(part == sorted(part) for part in parts)
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    tokens = [sum(lengths[index] for index in part) for part in parts]
    # The last row put on the fullest went where there was least; each row of it fits in the difference.
    fullest = parts[int(np.argmax(tokens))]
    assert max(tokens) - min(tokens) <= min((lengths[index] for index in fullest), default=0)
    assert shard(lengths, shards) == parts


def test_no_shards_raise() -> None:
    with pytest.raises(ValueError, match="0 shards"):
        shard([1], 0)


def test_collate_by_hand() -> None:
    first = make_row([5, 6, 7, 8], [False, True, False, True], [0, -0.5, 0, -0.25], 2.0)
    second = make_row([9, 1], [False, True], [math.nan, -1.5], -1.0)
    packed = collate([first, second])
    assert packed.token_ids_1N.tolist() == [[5, 6, 7, 8, 9, 1]]
    assert packed.position_ids_1N.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert packed.predicts_M.tolist() == [0, 2, 4]
    assert packed.targets_M.tolist() == [6, 8, 1]
    assert packed.sampled_logprobs_M.tolist() == [-0.5, -0.25, -1.5]
    assert packed.advantages_M.tolist() == [2.0, 2.0, -1.0]
    assert packed.row_M.tolist() == [0, 0, 1]
    assert packed.sampled_logprobs_M.dtype == packed.advantages_M.dtype == torch.float32
    moved = packed.to("meta")
    assert {getattr(moved, name).device.type for name in type(moved).__slots__} == {"meta"}
    with pytest.raises(ValueError, match="nothing to pack"):
        collate([])


@given(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.integers(0, 1000))
def test_what_is_scored_is_what_was_sampled(lengths: list[int], seed: int) -> None:
    rows = random_rows(seed, tuple(lengths))
    packed = collate(rows)
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
