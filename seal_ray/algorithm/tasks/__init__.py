"""Written tasks in a run: the pool that holds them, what a writer is paid, and how it learns. No Ray.

`difficulty.py` p̂ and its interval; `pool.py` the tasks that were written; `rewards/` what a written task is worth to
its writer; `updates/` how rewards become what the writer learns from.
"""
