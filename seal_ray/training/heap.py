"""Freed memory of the learner's process."""

import ctypes

import torch


def release_memory() -> None:
    """Returns free memory of glibc's heap, and of PyTorch's cache on GPUs, to the system.

    Tensors of micro-batches of different lengths leave gigabytes of gaps in the heap otherwise. It takes a tenth of a
    second for three gigabytes; `MALLOC_MMAP_THRESHOLD_` instead would slow steps down by up to a half. An engine on the
    same GPU may need the memory to restart.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
