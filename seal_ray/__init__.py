"""The RLlib algorithm, everything Ray, and the command line.

Importing it sets two things of the whole process, before PyTorch, Ray or vLLM are imported: how long threads of OpenMP
spin, and how often garbage is collected. What the user has set stays.
"""

import gc
import os

# Read by GNU's OpenMP when PyTorch is first imported, here and in the processes of a cluster that is started here. By
# itself a thread that waits for the others of an operation spins for milliseconds, on cores that other runs or engines
# need: a learner with two threads then took up to ten times as long. So many turns cost an idle machine nothing.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# While PyTorch, RLlib and vLLM are imported, the collector goes through all that is there again and again, a tenth of
# the time, and finds next to nothing.
if gc.get_threshold() == (700, 10, 10):  # as Python has it
    gc.set_threshold(50_000, 10, 10)
