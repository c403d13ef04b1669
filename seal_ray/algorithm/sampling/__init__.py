"""Playing a round: `plan.py` gives each group a task and an arm, `dispatch.py` sends groups to runners.

`groups.py` has the values: arm, plan, played group. `tasks.py` draws tasks. The runners of `runner.py` play against the
engine actors of `engine_actor.py`; `engine_pool.py` keeps these alive and delivers weights, `engines.py` starts them.
`stuck.py` ends dialogues that hang.
"""
