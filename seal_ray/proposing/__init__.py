"""Proposers in a run: `loop.py` is what a curator (`curator.py`) and a task writer (`task_writer.py`) share.

A curator's proposals become arms (`selection.py`), of which `arms.py` keeps statistics. A task writer's proposals
become tasks of a pool (`task_pool.py`). Their values are in `curator_rewards.py` and `task_rewards.py`.
"""
