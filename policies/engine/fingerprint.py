"""The fingerprint of a set of named tensors, by which sender and receiver of weights compare what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A fingerprint of named tensors: names, types, shapes and every byte."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return total.hexdigest()
