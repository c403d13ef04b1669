"""SEAL as an RLlib algorithm.

`seal.py` is a round from top to bottom, over the agents of `agent.py`. `sampling/` plays groups of dialogues,
`learning/` turns them into gradient steps, and `curation/` proposes and compares interfaces. `config.py` is RLlib's
config, `checks.py` checks that its settings fit together, and `objects.py` makes the objects that they name.
`rllib.py` has all of RLlib's private names that are used.
"""
