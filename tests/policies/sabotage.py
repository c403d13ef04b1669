"""A worker whose updates go wrong in one tensor: what the proof of delivery must notice."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from policies.engine.adapters import CONFIG_FILE, TENSOR_FILE
from policies.engine.stored import SHARED_MEMORY
from policies.engine.vllm_worker import WeightsExtension


class KeepsOneTensor(WeightsExtension):
    """Gives every update the tensor named by `keep_tensor` as that file has it; an empty name ends this."""

    _kept: tuple[str, torch.Tensor] | None = None

    def keep_tensor(self, path: str, name: str) -> None:
        from safetensors.torch import load_file

        self._kept = (name, load_file(path)[name]) if name else None

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().load(tensors if self._kept is None else {**tensors, self._kept[0]: self._kept[1]})


class SpoilsAdapters(KeepsOneTensor):
    """Changes the tensor named by `spoil_adapter` in its last bits, in every adapter; an empty name ends this.

    The name "alpha" stands for a scaling that is off by as little.
    """

    _spoiled = ""

    def spoil_adapter(self, name: str) -> None:
        self._spoiled = name

    def load_adapter(self, folder: str, name: str, number: int) -> None:
        from safetensors.torch import load_file, save_file

        if self._spoiled == "alpha":
            path = Path(folder) / CONFIG_FILE
            config = json.loads(path.read_text("utf-8"))
            path.write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] * (1 + 1e-6)}), "utf-8")
        elif self._spoiled:
            path = Path(folder) / TENSOR_FILE
            tensors = load_file(path)
            tensors[self._spoiled][-1, -1] *= 1 + 1e-6
            save_file(tensors, path)
        super().load_adapter(folder, name, number)


class SpoilsOneRank(WeightsExtension):
    """Changes a tensor in the last bits of its last value on rank 1 alone; an empty name ends this."""

    _spoiled = ""

    def spoil(self, name: str) -> None:
        self._spoiled = name if self.rank == 1 else ""

    def process_id(self) -> int:
        return os.getpid()

    def shared_files(self) -> list[str]:
        """The files in memory that would stay if the ranks were killed."""
        return [path.name for path in Path(SHARED_MEMORY).glob(os.environ["VLLM_DIST_IDENT"] + "-*")]

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().load(self._changed(tensors))

    def load_adapter(self, folder: str, name: str, number: int) -> None:
        from safetensors.torch import load_file, save_file

        with TemporaryDirectory() as own:
            shutil.copytree(folder, own, dirs_exist_ok=True)
            path = Path(own) / TENSOR_FILE
            save_file(dict(self._changed(load_file(path))), path)
            super().load_adapter(own, name, number)

    def _changed(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        if self._spoiled not in tensors:
            return tensors
        changed = tensors[self._spoiled].clone()
        changed.view(-1)[-1] *= 1 + 1e-6
        return {**tensors, self._spoiled: changed}
