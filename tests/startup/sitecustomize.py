"""Python imports this file at the start of each process that tests start, by `PYTHONPATH` (`tests/conftest.py`).

While PyTorch, RLlib and vLLM are imported the garbage collector goes through all that is there again and again, a fifth
of the time, and finds next to nothing. It still collects here, after more allocations.
"""

import gc
import os
import sys

gc.set_threshold(100_000, 50, 100)

if (address := os.environ.get("SEAL_RAY_TESTS_PRELOADED")) and len(sys.orig_argv) > 2:
    import preloaded_client  # type: ignore[import-not-found]  # it is in this folder

    if preloaded_client.is_served(sys.orig_argv):
        preloaded_client.take_over(address)
