"""Playing a round: `planner.py` plans groups and replaces equal ones, `dispatch.py` sends them to runners.

The runners of `runner.py` play against the engine actors of `engine_actor.py`, which `engine_pool.py` restarts and
gives their weights.
"""
