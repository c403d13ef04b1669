"""SEAL as an RLlib algorithm: one round after the other.

`seal.py` is the algorithm and its phases. `tasks.py` draws tasks, `round_plan.py` shares groups out over interfaces,
`dispatch.py` sends them to the runners of `runner.py`, which play against the engines of `engine_actor.py` through
`engine_pool.py`. `gradient.py` turns groups into rows, `learner.py` and `learner_group.py` learn from them with the
model in `module.py`, and `weights.py` names what crosses from learner to engine.
"""
