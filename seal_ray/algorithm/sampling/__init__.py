"""Playing a round: `tasks.py` draws tasks, `groups.py` gives each group one and an arm, `dispatch.py` sends groups to
runners. The runners of `runner.py` play against the engine actors of `engine_pool.py`, which keeps these alive and
delivers weights.
"""
