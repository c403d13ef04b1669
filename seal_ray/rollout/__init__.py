"""Playing a round: `planner.py` gives each group of `groups.py` a task and an arm, `dispatch.py` sends them to runners.

`sampler.py` chooses among the tasks, and `waves.py` replaces groups that teach nothing.

The runners of `runner.py` play against the engine actors of `engine_actor.py`, which `engine_pool.py` keeps alive and
gives their weights.
"""
