"""What has to be mended in vLLM 0.32 inside a worker, each with its reason. Nothing is changed on GPUs."""

from __future__ import annotations

from typing import Any


def apply_patches() -> None:
    """Mends this worker process; called once, before it serves."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _keep_generators_of_unfinished_prefills()


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
