"""The attention of the learner's model: over segments that share their ancestors, and no dense mask anywhere.

It uses Transformers' attention interface. On CPUs PyTorch's flash kernel computes blocks, which are merged by their
log-sum-exp (as in ring attention, arXiv 2310.01889). On GPUs the kernel of `flash-attn`, or else PyTorch's, takes
sequences that have fewer queries than keys, causal from the bottom right.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from envs.errors import UserError
from seal_ray.grpo.packing import Segment

Attention = Literal["seal_ray_segments", "sdpa"]
SEGMENTS: Attention = "seal_ray_segments"
_WINDOWED = frozenset({"sliding_attention", "chunked_attention"})

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def choose_attention(config: Any, device: torch.device, *, half: bool) -> Attention:
    """The attention for a model of this Transformers `config` that computes on `device`, in half precision or not.

    It is Transformers' "sdpa", without shared tokens, if the kernels cannot be used: for float32 on a GPU, and for
    layers with sliding windows. Raises `UserError` for convolutions and recurrences, which would mix packed rows.
    """
    kinds = getattr(config, "layer_types", None) or ()
    others = sorted({*kinds} - {"full_attention", *_WINDOWED})
    if others:
        raise UserError(f"solver.model: {config.model_type} has layers of {others[0]}; such models cannot learn here.")
    windowed = not _WINDOWED.isdisjoint(kinds) if kinds else bool(getattr(config, "sliding_window", None))
    if windowed or (device.type == "cuda" and not half):
        return "sdpa"
    from transformers import AttentionInterface

    AttentionInterface.register(SEGMENTS, attend)
    return SEGMENTS


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
    # With mixed precision the rotated queries and keys are float32, and the values are not.
    query_1HND, key_1KND = query_1HND.to(value_1KND.dtype), key_1KND.to(value_1KND.dtype)
    scale = query_1HND.shape[-1] ** -0.5 if scaling is None else scaling
    if query_1HND.device.type == "cpu":
        attended: Tensor = _OnCPU.apply(query_1HND, key_1KND, value_1KND, segments, scale)  # type: ignore[no-untyped-call]
        return attended.transpose(1, 2), None
    query_NHD, key_NKD, value_NKD = (each[0].transpose(0, 1) for each in (query_1HND, key_1KND, value_1KND))
    return varlen(_kernel(), query_NHD, key_NKD, value_NKD, segments, scale)[None], None


class _OnCPU(torch.autograd.Function):
    """Attention over segments by the `blocks`, merged by their log-sum-exp. No block is kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, query_1HND: Tensor, key_1KND: Tensor, value_1KND: Tensor, segments: Sequence[Segment], scale: float
    ) -> Tensor:
        times = query_1HND.shape[1] // key_1KND.shape[1]
        # For half precision, which needs a CPU with matrix units (AMX), the kernel's sums are in float32.
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
        # In half precision the kernel is no faster, and up to five times slower for blocks of up to 200 tokens.
        query, key, value = _for_kernel(query_1HND, key_1KND, value_1KND, times=times, kind=total.dtype)
        gradient, out = gradient.to(query.dtype), out.to(query.dtype)
        sums = [torch.zeros_like(each, dtype=total.dtype) for each in (query, key, value)]
        for queries, keys, causal in blocks(ctx.segments):
            of_queries = (each[:, :, queries] for each in (gradient, query, out, total))
            gradient_B, query_B, out_B, total_B = of_queries
            values = (gradient_B, query_B, key[:, :, keys], value[:, :, keys], out_B, total_B)
            parts = _flash_backward(*values, 0.0, causal, scale=ctx.scale)
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
    """The tensors in the kernel's dtype, with keys and values repeated for each query head."""
    repeated_key, repeated_value = (each.to(kind).repeat_interleave(times, dim=1) for each in (key, value))
    return query.to(kind), repeated_key, repeated_value


def blocks(segments: Sequence[Segment]) -> list[tuple[slice, slice, bool]]:
    """The places of each block's queries and keys, and whether it is causal.

    A segment has a causal block with itself, and one of all its descendants' queries with its own keys.
    """
    places = []
    for segment in segments:
        own, below = slice(segment.begin, segment.end), slice(segment.end, segment.subtree)
        places.append((own, own, True))
        if below.start < below.stop:
            places.append((below, own, False))
    return places


def varlen(
    kernel: Any, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, segments: Sequence[Segment], scale: float
) -> Tensor:
    """`attended_NHD` by a kernel for sequences of unequal lengths, causal from the bottom right.

    Each segment is a sequence of its own queries, and of its ancestors' keys before its own.
    """
    layout = _sequences(segments, query_NHD.device)
    seen: list[Tensor] = [_Gather.apply(each, layout.places) for each in (key_NKD, value_NKD)]  # type: ignore[no-untyped-call]
    attended: Tensor = kernel(query_NHD, *seen, layout.queries, layout.keys, layout.most, layout.most_keys, scale)
    return attended


class _Gather(torch.autograd.Function):
    """Rows by their places, which can repeat. Their gradients are added up in float32 at least."""

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
    """Segments as a kernel takes them: places of all keys, sequence by sequence, and the start of each sequence."""

    segments: Sequence[Segment]
    places: Tensor
    queries: Tensor
    keys: Tensor
    most: int
    most_keys: int


_latest: dict[torch.device, _Sequences] = {}
"""The last segments on each device: all layers have the same, and copies to a GPU are slow."""


def _sequences(segments: Sequence[Segment], device: torch.device) -> _Sequences:
    layout = _latest.get(device)
    if layout is None or layout.segments != segments:  # FSDP gives each layer a copy of them
        seen = [[*segment.ancestors, (segment.begin, segment.end)] for segment in segments]
        places = np.concatenate([np.arange(begin, end) for ranges in seen for begin, end in ranges])
        lengths = [segment.end - segment.begin for segment in segments]
        key_lengths = [sum(end - begin for begin, end in ranges) for ranges in seen]
        queries, keys = (
            torch.tensor([0, *np.cumsum(each)], dtype=torch.int32, device=device) for each in (lengths, key_lengths)
        )
        most, most_keys = max(lengths), max(key_lengths)
        layout = _Sequences(segments, torch.from_numpy(places).to(device), queries, keys, most, most_keys)
        _latest[device] = layout
    return layout


@functools.cache
def _kernel() -> Any:
    """FlashAttention's kernel, or PyTorch's. vLLM has a part of that package under its name, without this function."""
    try:
        from flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from torch.nn.attention.varlen import varlen_attn

        return lambda *values: varlen_attn(*values[:-1], scale=values[-1], window_size=(-1, 0), enable_gqa=True)
    return lambda *values: flash_attn_varlen_func(*values[:-1], softmax_scale=values[-1], causal=True)
