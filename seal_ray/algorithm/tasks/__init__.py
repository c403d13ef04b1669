"""Written tasks in a run: who writes them, the pool that holds them, and what a writer is paid.

`difficulty.py` p̂ and its interval; `pool.py` the tasks that were written; `rewards/` what a written task is worth to
its writer; `held_out.py` tasks that tell what a window has done; `recorded.py` the specifications of another run;
`authorship.py` the writer's side of a run. What a writer learns from rewards is in `seal_ray/grpo/writer_updates/`.
"""
