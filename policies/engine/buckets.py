"""Weights that learners and engines on the same machine exchange in shared buffers, a bucket of tensors at a time.

On a GPU an engine opens the learner's buffer by a handle of CUDA, which may be of another GPU, even one that its
process cannot see. Nothing passes through the host. On a CPU the buffer is a file in memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from policies.engine.requests import Shapes

BUCKET = 1 << 30
"""Largest number of bytes in a bucket, unless a layer or a tensor alone has more."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some of a model's tensors in equal buffers, one on each of the learners' devices.

    `shapes` are in the buffer's order. `handles` opens the buffer of each device (`device_names`), and `checksum` is
    the buffers'. A delivery is complete with `is_last`.
    """

    shapes: Shapes
    dtype: str
    checksum: int
    handles: Mapping[str, Sequence[Any]]
    is_last: bool


class SharedBuffer:
    """Tensors of one type in a buffer that other processes on its device can open until this object is dropped."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        import torch

        self._buffer = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors.values()])
        self.checksum = checksum(self._buffer)
        if self._buffer.is_cuda:
            # The first seven arguments are types and sizes, which `open_buffer` has from the shapes.
            _, arguments = _reductions().reduce_tensor(self._buffer)
            self.handle: Sequence[Any] = arguments[7:]
        else:
            from policies.engine.stored import store

            self._stored = store({"buffer": self._buffer})
            self.handle = (self._stored.path,)


def release_shared() -> None:
    """Frees the memory of dropped buffers that no other process has open any more."""
    import torch

    if torch.cuda.is_available():
        cuda: Any = torch.cuda
        cuda.ipc_collect()


def open_buffer(
    handle: Sequence[Any], shapes: Shapes, dtype: str, expected_checksum: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """The tensors of another process's buffer, not copied: views that are valid as long as the buffer is.

    Raises `RuntimeError` if they are not the ones that were sent.
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    sizes = [torch.Size(shape).numel() * kind.itemsize for shape in shapes.values()]
    if device.type == "cuda":
        layout = (torch.Tensor, (sum(sizes),), (1,), 0, torch.UntypedStorage, torch.uint8, device.index)
        buffer = _reductions().rebuild_cuda_tensor(*layout, *handle)
    else:
        from safetensors.torch import load_file

        (path,) = handle
        buffer = load_file(path)["buffer"]
    if len(buffer) != sum(sizes) or checksum(buffer) != expected_checksum:
        raise RuntimeError("the buffer does not hold the weights that were sent")
    parts = zip(shapes.items(), torch.split(buffer, sizes), strict=True)
    return {name: part.view(kind).view(shape) for (name, shape), part in parts}


def _reductions() -> Any:
    """PyTorch's functions for tensors in shared memory, which have no types."""
    from torch.multiprocessing import reductions

    return reductions


def checksum(tensor: torch.Tensor, *, chunk: int = 1 << 24) -> int:
    """A sum in which every two bytes count with their place, exact in any order of addition.

    It reads `chunk` values at a time, since it needs eight bytes for each.
    """
    import torch

    words = tensor.reshape(-1).view(torch.int16)
    places = torch.arange(1, min(len(words), chunk) + 1, device=words.device)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for number, part in enumerate(torch.split(words, chunk)):
        total += (part.long() * (places[: len(part)] + number * chunk)).sum()
    return int(total)


def bucket_names(shapes: Shapes, bytes_per_value: int, limit: int) -> list[list[str]]:
    """The names of a checkpoint's tensors by bucket. Modules that an engine loads at once are not divided."""
    modules: dict[str, list[str]] = defaultdict(list)
    for name in shapes:
        modules[loaded_module(name)].append(name)
    buckets: list[list[str]] = []
    filled = limit
    for names in modules.values():
        size = sum(math.prod(shapes[name]) for name in names) * bytes_per_value
        if filled + size > limit:
            buckets.append([])
            filled = 0
        buckets[-1] += names
        filled += size
    return buckets


def loaded_module(name: str) -> str:
    """The layer of a checkpoint's tensor, which has fused tensors; outside of layers the tensor's own module."""
    parts = name.split(".")
    layer = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts) - 2)
    return ".".join(parts[: layer + 1])
