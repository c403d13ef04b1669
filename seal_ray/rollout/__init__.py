"""Playing a round: `planner.py` plans groups, `dispatch.py` sends them to runners, `waves.py` replaces equal groups.

The runners of `runner.py` play against the engine actors of `engine_actor.py`, which `engine_pool.py` restarts and
gives their weights.
"""
