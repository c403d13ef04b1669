"""`StoredWeights`: named tensors in memory that all processes of a machine share, as a file that they map.

Engine actors import this file before anything is served: PyTorch, more than a second of a core, is imported with the
first tensor.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from safetensors import SafetensorError, safe_open

if TYPE_CHECKING:
    import torch

    Tensors = Mapping[str, torch.Tensor]
else:
    Tensors = Mapping

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder in it gets a random name and is ours alone
PROCESSES = Path("/proc")
"""Linux's list of the files that each process has open."""
_MARK = "mark"


class StoredWeights(Tensors):
    """Tensors by name, in a safetensors file in memory. Pickled it is the file's path: no tensor is copied.

    They are mapped, and must not be written to. The file is removed with the object that `store` has returned. `digest`
    is that of the tensors. Reading raises `OSError` or `SafetensorError` if `is_here` is false.
    """

    def __init__(self, path: str, mark: str, digest: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path = path
        self.digest = digest
        self.shapes = shapes
        self._mark = mark

    def __reduce__(self) -> Any:
        return StoredWeights, (self.path, self._mark, self.digest, self.shapes)

    def is_here(self) -> bool:
        """Whether this process can read them: it runs on their machine, and the file still exists."""
        try:
            with safe_open(self.path, framework="numpy") as file:  # no tensor is read
                return (file.metadata() or {}).get(_MARK) == self._mark
        except (OSError, SafetensorError):
            return False

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        with safe_open(self.path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def store(weights: Mapping[str, torch.Tensor]) -> StoredWeights:
    """Copies the tensors into memory that this machine's processes share; `StoredWeights` are returned as they are.

    Raises `OSError` or `SafetensorError` if there is no room.
    """
    from safetensors.torch import save_file

    from policies.models.writing import unshared

    if isinstance(weights, StoredWeights):
        return weights
    tensors = unshared({name: tensor.detach().cpu() for name, tensor in weights.items()})
    mark, shapes = uuid.uuid4().hex, {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    folder = Path(tempfile.mkdtemp(dir=shared_memory(sum(tensor.nbytes for tensor in tensors.values()))))
    path: Path = folder / "weights"
    free: Callable[[], None] = partial(rmtree, folder, ignore_errors=True)
    try:
        save_file(tensors, path, metadata={_MARK: mark})
        descriptors = PROCESSES / str(os.getpid()) / "fd"
        if descriptors.is_dir():
            # Without a name the file ends with this process, however that ends.
            descriptor = os.open(path, os.O_RDONLY)
            free()
            path, free = descriptors / str(descriptor), partial(os.close, descriptor)
    except BaseException:
        free()
        raise
    stored = StoredWeights(str(path), mark, digest(tensors), shapes)
    weakref.finalize(stored, free)
    return stored


def shared_memory(size: int) -> str | None:
    """The folder in memory for a file of so many bytes; None, the folder of temporary files, if it has no room."""
    return SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) and disk_usage(SHARED_MEMORY).free > size else None


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A fingerprint of named tensors: names, types, shapes and every byte (BLAKE3)."""
    import torch

    total = blake3(max_threads=blake3.AUTO)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
