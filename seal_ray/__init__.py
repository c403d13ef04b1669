"""The RLlib algorithm, all that uses Ray, and the command line.

Importing it limits the spinning of OpenMP's threads and the rate of garbage collections, unless the user has set them.
"""

import gc
import os

# Read by GNU's OpenMP when PyTorch is first imported, here and in processes of a cluster that is started here. Threads
# would spin for milliseconds on cores of other runs: a learner with two threads took up to ten times as long.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# Collections while PyTorch, RLlib and vLLM are imported take a tenth of the time, and find almost no garbage.
if gc.get_threshold() == (700, 10, 10):  # Python's default
    gc.set_threshold(50_000, 10, 10)
