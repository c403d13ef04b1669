"""The RLlib algorithm, all that uses Ray, and the command line.

`SealConfig` is imported on first use. Importing the package limits the spinning of OpenMP's threads and the rate of
garbage collections, unless the user has set them.
"""

import gc
import os
from typing import Any

# Read by GNU's OpenMP when PyTorch is first imported, here and in processes of a cluster that is started here. Threads
# would spin for milliseconds on cores of other runs: a learner with two threads took up to ten times as long.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Collections while PyTorch, RLlib and vLLM are imported take a tenth of the time, and find almost no garbage.
if gc.get_threshold() == (700, 10, 10):  # Python's default
    gc.set_threshold(50_000, 10, 10)


def __getattr__(name: str) -> Any:
    if name != "SealConfig":
        raise AttributeError(f"module 'seal_ray' has no attribute {name!r}")
    from seal_ray.algorithm.config import SealConfig

    return SealConfig
