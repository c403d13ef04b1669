"""The RLlib algorithm, everything Ray, and the command line."""

import os

# Read by GNU's OpenMP when PyTorch is first imported, here and in the processes of a cluster that is started here. By
# itself a thread that waits for the others of an operation spins for milliseconds, on cores that other runs or engines
# need: a learner with two threads then took up to ten times as long. So many turns cost an idle machine nothing.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
