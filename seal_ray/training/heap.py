"""How the learner's process gives memory back that it has freed."""

from __future__ import annotations

import ctypes

import torch


def release_memory() -> None:
    """Has glibc give the system back whatever lies free in its heap, below blocks that stay as well.

    Micro-batches differ in length, and tensors of ever new sizes leave gaps in the heap that stay resident: gigabytes,
    more from round to round. It takes a tenth of a second for three of them. Having glibc map large blocks one by one
    (`MALLOC_MMAP_THRESHOLD_`) keeps memory lower within a step too, and takes up to half as long again, in page faults.
    Nothing is done where the C library is another one. On GPUs PyTorch gives back what it keeps for later tensors: an
    engine that shares the GPU may have to be started again.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
