"""The curator and the task writer of a run, both a `ProposalLoop`.

A curator's proposals become arms with statistics (`arms.py`); a task writer's proposals become tasks of a pool
(`task_pool.py`). `curator_rewards.py` and `task_rewards.py` have their values.
"""
