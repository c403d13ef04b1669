"""Python imports this file at the start of each process that tests start, by `PYTHONPATH` (`tests/conftest.py`).

While PyTorch, RLlib and vLLM are imported the garbage collector goes through all that is there again and again, a fifth
of the time, and finds next to nothing. It still collects here, after more allocations.
"""

import gc

gc.set_threshold(100_000, 50, 100)
