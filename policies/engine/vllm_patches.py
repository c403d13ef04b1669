"""What has to be mended in vLLM 0.32 inside a worker, each with its reason. Nothing is changed on GPUs."""

from __future__ import annotations

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
    """Rows without an adapter must not get one, and rows with one must not pay for a copy of it.

    Such rows have the slot -1, and the reference operations index the stacked adapters with it: in a mixed batch, base
    requests then get the output of the last slot (vLLM pull requests 48421 and 49656). Here each slot's rows are found
    once a step, and are one matrix product for each half of an adapter; rows without a slot are left alone.
    """
    import torch
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    update = PunicaWrapperCPU.update_metadata

    def update_and_find_rows(wrapper: Any, *arguments: Any, **settings: Any) -> None:
        update(wrapper, *arguments, **settings)
        slots = wrapper.token_lora_indices
        found = slots.unique().tolist()
        wrapper.rows_of_slots = {
            slot: None if len(found) == 1 else (slots == slot).nonzero().squeeze(1) for slot in found if slot >= 0
        }

    def add_lora_linear(
        wrapper: Any,
        output: torch.Tensor,
        x: torch.Tensor,
        halves_a: tuple[torch.Tensor, ...],
        halves_b: tuple[torch.Tensor, ...],
        scale: float,
        sizes: tuple[int, ...],
        **_: Any,
    ) -> None:
        output, x = output.view(-1, output.shape[-1]), x.view(-1, x.shape[-1])
        for slot, rows in wrapper.rows_of_slots.items():
            inputs = x if rows is None else x[rows]
            for half_a, half_b, part in zip(halves_a, halves_b, torch.split(output, list(sizes), dim=1), strict=True):
                shrunk, expansion = inputs @ half_a[slot, 0].T, half_b[slot, 0].T
                if rows is None:
                    part.addmm_(shrunk, expansion, alpha=scale)
                else:
                    part.index_add_(0, rows, shrunk @ expansion, alpha=scale)

    setattr(PunicaWrapperCPU, update.__name__, update_and_find_rows)
    setattr(PunicaWrapperCPU, add_lora_linear.__name__, add_lora_linear)


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
            plain: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = native(layer, x, residual)
            return plain
        if residual is None:
            output = torch.empty_like(x)
            kernels.rms_norm(output, x, layer.weight.data, layer.variance_epsilon)
            return output
        kernels.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)  # into both of them
        return x, residual

    setattr(RMSNorm, native.__name__, normed)
