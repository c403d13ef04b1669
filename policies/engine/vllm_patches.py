"""What has to be mended in vLLM 0.32 inside a worker, each with its reason. Nothing is changed on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def apply_patches() -> None:
    """Mends this worker process; called once, before it serves."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _keep_generators_of_unfinished_prefills()
        _keep_adapters_to_their_own_rows()
        _compute_norms_in_one_operation()


def _keep_generators_of_unfinished_prefills() -> None:
    """A seeded request whose prefill is split must not use up randomness before its first token.

    vLLM samples for such requests too, throws the token away, and winds their generator back by an offset that CPU
    generators do not have: the core dies with "CPU Generator does not use offset". Here their state is put back after
    sampling, and they are out of sight while vLLM would wind them back.
    """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    sample, bookkeeping = GPUModelRunner._sample, GPUModelRunner._bookkeeping_sync

    def unfinished(runner: Any) -> list[int]:
        mask = runner.discard_request_mask.np[: runner.input_batch.num_reqs]
        return [int(index) for index in mask.nonzero()[0] if int(index) in runner.input_batch.generators]

    def sample_and_put_back(runner: Any, *arguments: Any, **settings: Any) -> Any:
        generators = runner.input_batch.generators
        states = {index: generators[index].get_state() for index in unfinished(runner)}
        output = sample(runner, *arguments, **settings)
        for index, state in states.items():
            generators[index].set_state(state)
        return output

    def bookkeeping_without_them(runner: Any, *arguments: Any, **settings: Any) -> Any:
        generators = runner.input_batch.generators
        hidden = {index: generators.pop(index) for index in unfinished(runner)}
        try:
            return bookkeeping(runner, *arguments, **settings)
        finally:
            generators.update(hidden)

    setattr(GPUModelRunner, sample.__name__, sample_and_put_back)
    setattr(GPUModelRunner, bookkeeping.__name__, bookkeeping_without_them)


def _keep_adapters_to_their_own_rows() -> None:
    """Rows without an adapter must not get one.

    Such rows have the slot -1, and the reference operations index the stacked adapters with it: in a mixed batch, base
    requests then get the output of the last slot (vLLM pull requests 48421 and 49656). Here each slot's rows are one
    matrix product, and rows without a slot are left alone. No copy of an adapter per row is made either, which is why
    this is also two to three times faster.
    """
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    def products(
        inputs: torch.Tensor, weights: torch.Tensor, slot_per_row: torch.Tensor, dtype: torch.dtype
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for slot in set(slot_per_row.tolist()):
            if slot >= 0:
                rows = (slot_per_row == slot).nonzero().squeeze(1)
                weight = weights[slot].view(weights.shape[-2:]).to(dtype)
                yield rows, inputs[rows].to(dtype) @ weight.T

    def bgmv_shrink(
        inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, scaling: float = 1.0
    ) -> None:
        for rows, product in products(inputs, weights, slots, output.dtype):
            output[rows, : product.shape[1]] = scaling * product

    def bgmv_expand_slice(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        slots: torch.Tensor,
        offset: int,
        size: int,
        add_inputs: bool = True,
    ) -> None:
        part = output[:, offset : offset + size]
        for rows, product in products(inputs, weights, slots, output.dtype):
            # The model and the adapter may be padded differently.
            width = min(part.shape[1], product.shape[1])
            before = part[rows, :width] if add_inputs else 0
            part[rows, :width] = before + product[:, :width]

    def bgmv_expand(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        slots: torch.Tensor,
        add_inputs: bool = True,
    ) -> None:
        bgmv_expand_slice(inputs, weights, output, slots, 0, output.shape[1], add_inputs)

    for replacement in (bgmv_shrink, bgmv_expand_slice, bgmv_expand):
        for module in (lora_ops, punica_cpu):  # the second has its own references to them
            setattr(module, replacement.__name__, replacement)


def _compute_norms_in_one_operation() -> None:
    """RMS norms take vLLM's own kernel, which it has for CPUs too: three to four times as fast.

    On CPU it computes a norm in some ten operations and leaves it to `torch.compile` to join them. Compiling takes ten
    seconds of every start and is off here (`vllm_setup.py`). Its kernel for SwiGLU is slower than the operations.
    """
    import torch
    from vllm.model_executor.layers.layernorm import RMSNorm

    kernels, native = torch.ops._C, RMSNorm.forward_native

    def normed(
        layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        given = [x] if residual is None else [x, residual]
        fits = layer.has_weight and layer.variance_size_override is None
        if not fits or any(each.dtype != layer.weight.dtype or not each.is_contiguous() for each in given):
            return native(layer, x, residual)
        if residual is None:
            output = torch.empty_like(x)
            kernels.rms_norm(output, x, layer.weight.data, layer.variance_epsilon)
            return output
        kernels.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)  # into both of them
        return x, residual

    setattr(RMSNorm, native.__name__, normed)
