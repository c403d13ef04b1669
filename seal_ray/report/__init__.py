"""The files of a run and their presentation: metrics, interfaces, profiles, trajectories, tables and pictures. No Ray.

`files.py` defines the run folder, `trackers.py` writes to TensorBoard and wandb, `drawing.py` draws the picture of a
run; `arms.py` and `pool.py` present the proposals of a curator and a task writer.
"""
