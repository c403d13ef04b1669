"""The attention of the learner's model: over segments that share their ancestors, and no dense mask anywhere.

It goes through Transformers' attention interface, so that a causal model takes it unchanged. On CPUs what a segment's
tokens see is computed piece by piece by PyTorch's flash kernel, and the pieces are merged by their log-sum-exp (as in
ring attention, arXiv 2310.01889). On GPUs FlashAttention's kernel takes sequences that have fewer queries than keys,
causal from the bottom right; it is the package `flash-attn`'s or else PyTorch's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from envs.errors import UserError
from seal_ray.grpo.prefixes import Segment

Attention = Literal["seal_ray_segments", "sdpa"]
SEGMENTS: Attention = "seal_ray_segments"
_WINDOWED = frozenset({"sliding_attention", "chunked_attention"})

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def choose_attention(config: Any, device: torch.device, *, half: bool) -> Attention:
    """The attention for a model of this Transformers `config` that computes on `device`, in half precision or not.

    Transformers' "sdpa", which shares nothing and masks what lies between rows, is left for what the kernels cannot
    do: float32 on a GPU, and layers that see a window of tokens only. Raises `UserError` for layers of other kinds,
    such as convolutions and recurrences: they would carry a row's tokens on into the next.
    """
    kinds = getattr(config, "layer_types", None) or ()
    others = sorted({*kinds} - {"full_attention", *_WINDOWED})
    if others:
        raise UserError(f"solver.model: {config.model_type} has layers of {others[0]}; such models cannot learn here.")
    windowed = not _WINDOWED.isdisjoint(kinds) if kinds else bool(getattr(config, "sliding_window", None))
    if windowed or (device.type == "cuda" and not half):
        return "sdpa"
    _register()
    return SEGMENTS


@functools.cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(SEGMENTS, attend)


def attend(
    module: torch.nn.Module,
    query_1HND: Tensor,
    key_1KND: Tensor,
    value_1KND: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Sequence[Segment],
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Transformers' attention function: `attended_1NHD`. K divides H: each key head serves as many query heads.

    Raises `ValueError` for a mask or for dropout.
    """
    del module
    if attention_mask is not None or dropout:
        raise ValueError("attention over segments takes neither a mask nor dropout")
    # With mixed precision values come as matrix products do, and what was rotated in float32.
    query_1HND, key_1KND = query_1HND.to(value_1KND.dtype), key_1KND.to(value_1KND.dtype)
    scale = query_1HND.shape[-1] ** -0.5 if scaling is None else scaling
    if query_1HND.device.type == "cpu":
        found: Tensor = _OnCPU.apply(query_1HND, key_1KND, value_1KND, segments, scale)  # type: ignore[no-untyped-call]
        return found.transpose(1, 2), None
    query_NHD, key_NKD, value_NKD = (each[0].transpose(0, 1) for each in (query_1HND, key_1KND, value_1KND))
    return varlen(_kernel(), query_NHD, key_NKD, value_NKD, segments, scale)[None], None


class _OnCPU(torch.autograd.Function):
    """Attention over segments by blocks: each segment's own, causal; and all below a segment on that segment, whole.

    A block's softmax is put right by `logsumexp`, of the block and of all that a token sees. The backward pass of a
    block needs the latter alone, and no block is kept for it.
    """

    @staticmethod
    def forward(
        ctx: Any, query_1HND: Tensor, key_1KND: Tensor, value_1KND: Tensor, segments: Sequence[Segment], scale: float
    ) -> Tensor:
        times = query_1HND.shape[1] // key_1KND.shape[1]
        # The kernel's sums are in float32 for half precision, which it takes only where the CPU has matrix units (AMX).
        wide = torch.promote_types(query_1HND.dtype, torch.float32)
        kind = query_1HND.dtype if torch.cpu._is_amx_tile_supported() else wide
        query, key, value = _for_kernel(query_1HND, key_1KND, value_1KND, times=times, kind=kind)
        total = torch.full(query.shape[:3], -torch.inf, dtype=wide, device=query.device)
        merged = torch.zeros_like(query, dtype=wide)
        for queries, keys, causal in blocks(segments):
            part, lse = _flash(query[:, :, queries], key[:, :, keys], value[:, :, keys], 0.0, causal, scale=scale)
            before = total[:, :, queries]
            after = torch.logaddexp(before, lse)
            merged[:, :, queries] *= (before - after).exp()[..., None]
            merged[:, :, queries] += part * (lse - after).exp()[..., None]
            total[:, :, queries] = after
        out = merged.to(query_1HND.dtype)
        ctx.save_for_backward(query_1HND, key_1KND, value_1KND, out, total)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query_1HND, key_1KND, value_1KND, out, total = ctx.saved_tensors
        heads = key_1KND.shape[1]
        times = query_1HND.shape[1] // heads
        # In half precision the kernel takes as long over long blocks, and three to five times as long over those of up
        # to 200 tokens, with matrix units as without.
        query, key, value = _for_kernel(query_1HND, key_1KND, value_1KND, times=times, kind=total.dtype)
        gradient, out = gradient.to(query.dtype), out.to(query.dtype)
        sums = [torch.zeros_like(each, dtype=total.dtype) for each in (query, key, value)]
        for queries, keys, causal in blocks(ctx.segments):
            parts = _flash_backward(
                gradient[:, :, queries],
                query[:, :, queries],
                key[:, :, keys],
                value[:, :, keys],
                out[:, :, queries],
                total[:, :, queries],
                0.0,
                causal,
                scale=ctx.scale,
            )
            for whole, part, places in zip(sums, parts, (queries, keys, keys), strict=True):
                whole[:, :, places] += part
        by_query, by_key, by_value = sums
        return (
            by_query.to(query_1HND.dtype),
            *(each.view(1, heads, times, *each.shape[2:]).sum(2).to(key_1KND.dtype) for each in (by_key, by_value)),
            None,
            None,
        )


def _for_kernel(
    query: Tensor, key: Tensor, value: Tensor, *, times: int, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernel takes, in this type: keys and values for each query head."""
    return (
        query.to(kind),
        key.to(kind).repeat_interleave(times, dim=1),
        value.to(kind).repeat_interleave(times, dim=1),
    )


def blocks(segments: Sequence[Segment]) -> list[tuple[slice, slice, bool]]:
    """The places of a block's queries and of its keys, and whether it is causal."""
    blocks = []
    for each in segments:
        own, below = slice(each.begin, each.end), slice(each.end, each.subtree)
        blocks.append((own, own, True))
        if below.start < below.stop:
            blocks.append((below, own, False))
    return blocks


def varlen(
    kernel: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, segments: Sequence[Segment], scale: float
) -> Tensor:
    """`attended_NHD` by a kernel for sequences of unequal lengths, causal from the bottom right.

    Each segment is a sequence of its own queries, and of its ancestors' keys before its own.
    """
    of = _sequences(segments, query_NHD.device)
    seen: list[Tensor] = [_Seen.apply(each, of.places) for each in (key_NKD, value_NKD)]  # type: ignore[no-untyped-call]
    found: Tensor = kernel(query_NHD, *seen, of.queries, of.keys, of.most, of.most_keys, scale)
    return found


class _Seen(torch.autograd.Function):
    """Rows by their places, of which some come often. Their gradients are added up in float32 at least."""

    @staticmethod
    def forward(ctx: Any, values_NKD: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(values_NKD)
        return values_NKD.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        kind = torch.promote_types(gradient.dtype, torch.float32)
        sums = gradient.new_zeros(ctx.rows, *gradient.shape[1:], dtype=kind)
        return sums.index_add_(0, places, gradient.to(kind)).to(gradient.dtype), None


@dataclass(frozen=True, slots=True, eq=False)
class _Sequences:
    """Segments as a kernel takes them: the places of all keys, one sequence after the other, and where each begins."""

    segments: Sequence[Segment]
    places: Tensor
    queries: Tensor
    keys: Tensor
    most: int
    most_keys: int


_latest: dict[torch.device, _Sequences] = {}
"""Of the last segments on each device: all layers have the same, and copies to a GPU are slow."""


def _sequences(segments: Sequence[Segment], device: torch.device) -> _Sequences:
    found = _latest.get(device)
    if found is None or found.segments != segments:  # FSDP gives each layer a copy of them
        seen = [[*each.ancestors, (each.begin, each.end)] for each in segments]
        places = np.concatenate([np.arange(begin, end) for ranges in seen for begin, end in ranges])
        of_queries = [each.end - each.begin for each in segments]
        of_keys = [sum(end - begin for begin, end in ranges) for ranges in seen]
        queries, keys = (
            torch.tensor([0, *np.cumsum(each)], dtype=torch.int32, device=device) for each in (of_queries, of_keys)
        )
        found = _Sequences(segments, torch.from_numpy(places).to(device), queries, keys, max(of_queries), max(of_keys))
        _latest[device] = found
    return found


@functools.cache
def _kernel() -> Any:
    """FlashAttention's where it is installed: vLLM has a part of that package under its name, without this function."""
    try:
        from flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return _of_torch
    return functools.partial(_flash_attn, flash_attn_varlen_func)


def _flash_attn(
    function: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    most: int,
    most_keys: int,
    scale: float,
) -> Any:
    return function(query, key, value, of_queries, of_keys, most, most_keys, softmax_scale=scale, causal=True)


def _of_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    most: int,
    most_keys: int,
    scale: float,
) -> Any:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(
        query,
        key,
        value,
        of_queries,
        of_keys,
        most,
        most_keys,
        scale=scale,
        window_size=(-1, 0),
        enable_gqa=True,
    )
