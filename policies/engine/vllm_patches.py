"""Fixes of vLLM 0.32 inside a worker, each with its reason. Nothing is changed on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def apply_patches() -> None:
    """Patches this worker process; called once, before it serves."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _keep_generators_of_unfinished_prefills()
        keep_adapters_to_their_own_rows()
        compute_norms_in_one_operation()


def _keep_generators_of_unfinished_prefills() -> None:
    """Keeps a seeded request whose prefill is split from using up randomness before its first token.

    vLLM samples for such requests too, drops the token, and rewinds their generator by an offset that CPU generators do
    not have: the core dies with "CPU Generator does not use offset". Here the state is restored after sampling, and the
    generators are hidden while vLLM would rewind them.
    """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    sample, bookkeeping = GPUModelRunner._sample, GPUModelRunner._bookkeeping_sync

    def unfinished_generators(runner: Any) -> dict[int, torch.Generator]:
        mask = runner.discard_request_mask.np[: runner.input_batch.num_reqs]
        generators = runner.input_batch.generators
        return {index: generators[index] for index in mask.nonzero()[0].tolist() if index in generators}

    def sample_and_restore(runner: Any, *arguments: Any, **settings: Any) -> Any:
        states = [(generator, generator.get_state()) for generator in unfinished_generators(runner).values()]
        output = sample(runner, *arguments, **settings)
        for generator, state in states:
            generator.set_state(state)
        return output

    def bookkeeping_without_them(runner: Any, *arguments: Any, **settings: Any) -> Any:
        generators, hidden = runner.input_batch.generators, unfinished_generators(runner)
        for index in hidden:
            del generators[index]
        try:
            return bookkeeping(runner, *arguments, **settings)
        finally:
            generators.update(hidden)

    setattr(GPUModelRunner, sample.__name__, sample_and_restore)
    setattr(GPUModelRunner, bookkeeping.__name__, bookkeeping_without_them)


def keep_adapters_to_their_own_rows() -> None:
    """Keeps rows without an adapter from getting one, and rows with one from paying for a copy of it.

    Such rows have the slot -1, with which the reference operations index the stacked adapters: in a mixed batch, base
    requests get the output of the last slot (vLLM pull requests 48421 and 49656). Here each slot's rows are looked up
    once a step, and are one matrix product for each half of an adapter; rows without a slot are skipped.
    """
    import torch
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    update = PunicaWrapperCPU.update_metadata

    def update_and_find_rows(wrapper: Any, *arguments: Any, **settings: Any) -> None:
        update(wrapper, *arguments, **settings)
        slots = wrapper.token_lora_indices
        used = slots.unique().tolist()
        wrapper.rows_of_slots = {
            slot: None if len(used) == 1 else (slots == slot).nonzero().squeeze(1) for slot in used if slot >= 0
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


def compute_norms_in_one_operation() -> None:
    """Uses vLLM's kernel for RMS norms on CPU too: three to four times as fast.

    There vLLM computes a norm in some ten operations, for `torch.compile` to fuse. Compiling takes ten seconds of every
    start and is off here (`vllm_setup.py`). The kernel for SwiGLU is slower than the operations.
    """
    import torch
    from vllm.model_executor.layers.layernorm import RMSNorm

    kernels, native = torch.ops._C, RMSNorm.forward_native

    def normed(
        layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        inputs = [x] if residual is None else [x, residual]
        fits = layer.has_weight and layer.variance_size_override is None
        if not fits or any(one.dtype != layer.weight.dtype or not one.is_contiguous() for one in inputs):
            plain: torch.Tensor | tuple[torch.Tensor, torch.Tensor] = native(layer, x, residual)
            return plain
        if residual is None:
            output = torch.empty_like(x)
            kernels.rms_norm(output, x, layer.weight.data, layer.variance_epsilon)
            return output
        kernels.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)  # into both of them
        return x, residual

    setattr(RMSNorm, native.__name__, normed)
