"""Weight and adapter updates inside a vLLM worker.

vLLM loads this class into its worker process (`worker_extension_cls`); the engine calls its methods by
`collective_rpc`. Weights travel as a safetensors file or in buckets, adapters as a folder in PEFT's format. Each
tensor-parallel rank has a worker, which reads all tensors and proves its own slices. Written for vLLM 0.32.
"""

import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from policies.engine.adapters import TENSOR_FILE
from policies.engine.buckets import loaded_module, open_buffer
from policies.engine.delivery import RankSlicer, fused_parts, is_tied, stale_adapter_modules, stale_modules
from policies.engine.stored import SHARED_MEMORY, digest
from policies.engine.vllm_patches import apply_patches

apply_patches()  # this module is imported by workers only


class WeightsExtension:
    """Mixed into vLLM's worker. Updates return the names of modules that do not compute with the new tensors."""

    model_runner: Any
    vllm_config: Any
    parallel_config: Any
    rank: int

    def end_with_core(self) -> None:
        """Ends this worker's process, and the memory that it shares with other ranks, when the core ends.

        vLLM sends SIGTERM, without effect while the worker waits for another rank.
        """
        if name := os.environ.get("VLLM_DIST_IDENT"):  # on CPUs
            for path in Path(SHARED_MEMORY).glob(f"{name}-*"):
                path.unlink(missing_ok=True)  # the ranks have mapped it
        core = multiprocessing.parent_process()
        assert core is not None

        def wait() -> None:
            core.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()

    def update_full_weights(self, path: str, expected_digest: str) -> list[str]:
        """Loads a file of weights. Raises `RuntimeError` if it is not the one that was sent."""
        tensors = load_file(path)
        if digest(tensors) != expected_digest:
            raise RuntimeError("the weight file is not the one that was sent")
        return self._load_and_prove(tensors)

    def update_bucket(
        self, handles: Sequence[Sequence[Any]], shapes: Mapping[str, tuple[int, ...]], dtype: str, expected: int
    ) -> list[str]:
        """Loads the bucket of this rank's device. Raises `RuntimeError` if it is not the one that was sent."""
        device = next(self.model_runner.model.parameters()).device
        handle = handles[self.rank % len(handles)]  # on a CPU all ranks have the same
        return self._load_and_prove(open_buffer(handle, shapes, dtype, expected, device))

    def _load_and_prove(self, tensors: Mapping[str, torch.Tensor]) -> list[str]:
        self.load(tensors)
        return stale_modules(self.model_runner.model, tensors, self._slicer())

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Loads checkpoint tensors into the running model; modules without any keep theirs."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.model_executor.model_loader.reload import layerwise

        model = self.model_runner.model
        modules = [model.get_submodule(name) for name in dict.fromkeys(map(loaded_module, tensors))]
        with torch.device(next(model.parameters()).device):
            for module in modules:
                layerwise.initialize_layerwise_reload(module)
            model.load_weights(iter(tensors.items()))
            for module in modules:
                layerwise.finalize_layerwise_reload(module, self.vllm_config.model_config)
        for module in model.modules():
            if isinstance(module, ParallelLMHead) and is_tied(model):
                # It is not loaded, so it is not packed again and would compute with the old weights.
                module.quant_method.process_weights_after_loading(module)

    def adaptable_modules(self) -> list[str]:
        """The modules that can be adapted, by their names in a checkpoint."""
        from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA

        model = self.model_runner.model
        named = model.named_modules()
        linear = [name for name, module in named if isinstance(module, BaseLinearLayerWithLoRA)]
        return [part for name in linear for part in fused_parts(model, name)]

    def update_adapter(self, folder: str, name: str, number: int, expected_digest: str, scaling: float) -> list[str]:
        """Loads an adapter. Raises `RuntimeError` if its file is not the one that was sent, or if there is no room."""
        tensors = load_file(Path(folder) / TENSOR_FILE)
        if digest(tensors) != expected_digest:
            raise RuntimeError("the adapter file is not the one that was sent")
        slots = self.model_runner.lora_manager._adapter_manager.lora_index_to_id
        if None not in slots:
            raise RuntimeError("no slot is free; vLLM would drop an adapter that is in use")
        self.load_adapter(folder, name, number)
        if number not in slots:
            raise RuntimeError("vLLM has put the adapter into no slot")
        return stale_adapter_modules(self.model_runner.model, slots.index(number), tensors, scaling, self._slicer())

    def _slicer(self) -> RankSlicer:
        return RankSlicer(self.rank, self.parallel_config.tensor_parallel_size)

    def load_adapter(self, folder: str, name: str, number: int) -> None:
        """Loads the folder into a free slot, under this name and number."""
        from vllm.lora.request import LoRARequest

        self.model_runner.add_lora(LoRARequest(lora_name=name, lora_int_id=number, lora_path=folder))
