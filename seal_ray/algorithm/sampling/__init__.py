"""Playing a round: `groups.py` draws tasks and gives each group one and an arm, `dispatch.py` sends groups to runners.

The runners of `runner.py` play against the engine actors of `engine_pool.py`, which keeps these alive and delivers
weights.
"""
