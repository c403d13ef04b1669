"""A worker whose updates go wrong in one tensor: what the proof of delivery must notice."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from policies.engine.vllm_worker import WeightsExtension


class KeepsOneTensor(WeightsExtension):
    """Gives every update the tensor named by `keep_tensor` as that file has it; an empty name ends this."""

    _kept: tuple[str, torch.Tensor] | None = None

    def keep_tensor(self, path: str, name: str) -> None:
        from safetensors.torch import load_file

        self._kept = (name, load_file(path)[name]) if name else None

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().load(tensors if self._kept is None else {**tensors, self._kept[0]: self._kept[1]})
