"""Rows, micro-batches and shards; tokens that rows share are computed once, and nothing else changes."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from seal_ray.grpo import attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import Packed, Segment, collate, lay_out, pack, shard
from seal_ray.grpo.rows import Row, make_row
from tests.seal_ray.grpo.models import alone, dense_mask, random_group, tiny_model, with_adapter


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


@settings(max_examples=40)
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


def test_a_group_that_is_too_long_is_cut_and_shares_in_each_part() -> None:
    group = [_row([7] * 10 + [number] * 5) for number in range(6)]
    assert [[len(part) for part in each] for each in pack([group], 40)] == [[6]]
    assert [[len(part) for part in each] for each in pack([group], 25)] == [[3], [3]]


@settings(max_examples=40)
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
    assert packed.sampled_logprobs_M.dtype == packed.advantages_M.dtype == torch.float32
    assert [str(each.dtype) for each in (first.token_ids_T, first.mask_T)] == ["int64", "bool"]
    assert (len(first), first.sampled_tokens) == (4, 2)
    moved = packed.to("meta")
    values = [getattr(moved, name) for name in type(moved).__slots__]
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert moved.segments == packed.segments
    with pytest.raises(ValueError, match="nothing to pack"):
        collate([])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (([1, 2], [False], [0.0, 0.0], 1.0), "2 tokens, 1 of the mask"),
        (([], [], [], 1.0), "without tokens"),
        (([1, 2], [True, True], [0.0, 0.0], 1.0), "first token"),
        (([1, 2], [False, True], [0.0, -math.inf], 1.0), "not finite"),
        (([1, 2], [False, True], [0.0, -1.0], math.nan), "not finite"),
    ],
)
def test_rows_that_are_none_raise(values: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_row(*values)


KINDS = ("qwen2", "llama", "qwen3")


@settings(max_examples=40)
@given(groups_of_rows().filter(bool))
def test_each_token_sees_what_its_row_has_before_it(groups: list[list[Row]]) -> None:
    layout = lay_out(groups)
    assert len(layout.token_ids_N) == sum(map(tree_size, groups))
    sees = {}
    for segment in layout.segments:
        before = [place for begin, end in segment.ancestors for place in range(begin, end)]
        for place in range(segment.begin, segment.end):
            before.append(place)
            sees[place] = list(before)
    rows = [row for group in groups for row in group]
    for row, places in zip(rows, layout.places, strict=True):
        assert layout.token_ids_N[places].tolist() == row.token_ids_T.tolist()
        assert layout.positions_N[places].tolist() == list(range(len(row)))
        assert sees[int(places[-1])] == places.tolist()
    for segment in layout.segments:
        below = [each for each in layout.segments if (segment.begin, segment.end) in each.ancestors]
        assert [(each.begin, each.end) for each in below] == [
            (each.begin, each.end) for each in layout.segments if segment.end <= each.begin < segment.subtree
        ]


def step(model: nn.Module, batches: Sequence[Packed]) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs row by row, and the gradient of a loss in which every token has its weight."""
    model.zero_grad()
    found = []
    for packed in batches:
        logprobs_M = token_logprobs(model, packed)
        (logprobs_M * packed.advantages_M).sum().backward()  # type: ignore[no-untyped-call]
        found.append(logprobs_M.detach())
    return torch.cat(found), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def differences(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Relative, by parameter."""
    assert found.keys() == expected.keys()
    return {name: float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected}


CASES = [*itertools.product(KINDS, (False, True), ((2, 1), (16, 1), (3, 700))), ("qwen2", True, (2, 4000))]
"""Kind of model, whether with an adapter, and (rows, tokens of their common opening)."""


@pytest.mark.parametrize(("kind", "lora", "sizes"), CASES)
def test_gradients_are_those_of_separate_rows(kind: str, lora: bool, sizes: tuple[int, int]) -> None:
    size, opening = sizes
    model: Any = tiny_model(kind)
    model = (with_adapter(model) if lora else model).float()
    rows = random_group(opening, size, opening=opening)
    assert not any(rows[0].mask_T)
    shared, apart = collate([rows]), collate(alone(rows))
    assert shared.token_ids_1N.shape[1] <= apart.token_ids_1N.shape[1] - (size - 1) * opening
    logprobs_M, gradients = step(model, [shared])
    expected_M, expected = step(model, [apart])
    torch.testing.assert_close(logprobs_M, expected_M, rtol=1e-5, atol=5e-5)
    assert max(differences(gradients, expected).values()) < 1e-5


def test_a_group_may_be_cut_and_layers_checkpointed() -> None:
    model: Any = tiny_model("qwen2")
    groups = [random_group(1, 8, opening=40), random_group(2, 5, opening=20)]
    _, expected = step(model, [collate(alone(groups[0] + groups[1]))])
    cut = pack(groups, 100)
    assert len(cut) > 2
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    _, gradients = step(model, [collate(each) for each in cut])
    # Transformers' norms are in float32, whatever the model is in.
    assert max(differences(gradients, expected).values()) < 1e-6


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_kernels_are_attention_with_the_dense_mask(dtype: torch.dtype, times: int) -> None:
    segments = lay_out([random_group(4, 5, opening=20), random_group(5, 1, opening=9)]).segments
    length = segments[-1].end
    generator = torch.Generator().manual_seed(0)
    query, key, value, upstream = (
        torch.randn(1, heads, length, 16, generator=generator).to(dtype) for heads in (2 * times, 2, 2, 2 * times)
    )
    mask = dense_mask(segments)

    def outcome(attend: Any) -> list[Tensor]:
        inputs = [each.detach().clone().requires_grad_() for each in (query, key, value)]
        out = attend(*inputs)
        out.backward(upstream.transpose(1, 2))
        return [out.detach(), *(each.grad for each in inputs)]

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (each.repeat_interleave(times, dim=1).float() for each in (key, value))
        return functional.scaled_dot_product_attention(query.float(), key, value, attn_mask=mask).transpose(1, 2)

    def on_gpu(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
        return attention.varlen(from_the_bottom_right, query, key, value, segments, 0.25)[None]

    def on_cpu(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.attend(nn.Identity(), query, key, value, None, segments=segments)[0]

    expected = outcome(lambda *inputs: dense(*inputs).to(dtype))
    tolerance = 2e-5 if dtype == torch.float32 else 3e-2
    for way in (on_cpu, on_gpu):
        for found, right in zip(outcome(way), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=tolerance, atol=tolerance)


def test_each_layout_is_attended_as_its_own() -> None:
    """The stored part of a layout for the next layer is not used for another layout."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(48, 2, 8, generator=generator) for _ in range(3))
    for first in (12, 20, 12):
        segments = (Segment(0, first, 48, ()), Segment(first, 48, 48, ((0, first),)))
        found = attention.varlen(from_the_bottom_right, query, key, value, segments, 0.25)
        whole = attention.varlen(from_the_bottom_right, query, key, value, (Segment(0, 48, 48, ()),), 0.25)
        torch.testing.assert_close(found, whole)
        apart = (Segment(0, first, first, ()), Segment(first, 48, 48, ()))
        found = attention.varlen(from_the_bottom_right, query, key, value, apart, 0.25)
        assert not torch.allclose(found[first:], whole[first:], atol=1e-2)


def test_gradients_of_a_shared_opening_are_added_up_in_float32() -> None:
    """In bfloat16 a sum of ones ends at 256."""
    rests = (Segment(place, place + 1, place + 1, ((0, 4),)) for place in range(4, 4 + 1023))
    segments = (Segment(0, 4, 4 + 1023, ()), *rests)
    keys = torch.zeros(4 + 1023, 1, 1, dtype=torch.bfloat16, requires_grad=True)

    def kernel(_: Tensor, key: Tensor, *__: Any) -> Tensor:
        return key

    attention.varlen(kernel, keys.detach(), keys, keys.detach(), segments, 1.0).sum().backward()  # type: ignore[no-untyped-call]
    assert keys.grad is not None
    assert keys.grad.flatten().tolist() == [1024.0] * 4 + [1.0] * 1023


def from_the_bottom_right(
    query: Tensor, key: Tensor, value: Tensor, queries: Tensor, keys: Tensor, most: int, most_keys: int, scale: float
) -> Tensor:
    """What FlashAttention's kernel for sequences of unequal lengths computes, one sequence at a time."""
    times = query.shape[1] // key.shape[1]
    assert (most, most_keys) == (int(queries.diff().max()), int(keys.diff().max()))
    found = []
    for mine, theirs in zip(queries.unfold(0, 2, 1).tolist(), keys.unfold(0, 2, 1).tolist(), strict=True):
        q = query[slice(*mine)].transpose(0, 1)
        k, v = (each[slice(*theirs)].transpose(0, 1).repeat_interleave(times, dim=0) for each in (key, value))
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        found.append(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(0, 1))
    return torch.cat(found)


def test_a_mask_or_dropout_is_refused() -> None:
    zeros, segments = torch.zeros(1, 2, 3, 8), (Segment(0, 3, 3, ()),)
    with pytest.raises(ValueError, match="mask"):
        attention.attend(nn.Identity(), zeros, zeros, zeros, torch.ones(3, 3), segments=segments)
    with pytest.raises(ValueError, match="dropout"):
        attention.attend(nn.Identity(), zeros, zeros, zeros, None, segments=segments, dropout=0.1)


@given(st.integers(0, 100))
def test_a_round_of_rows_is_the_same_in_any_order(seed: int) -> None:
    rows = random_group(seed, 6, opening=4)
    assert [each.token_ids_1N.tolist() for each in map(collate, pack([rows], 1000))] == [
        each.token_ids_1N.tolist() for each in map(collate, pack([rows[::-1]], 1000))
    ]
