"""SEAL as an RLlib algorithm.

`seal.py` is a round from top to bottom, over the agents of `agent.py`. `sampling/` plays groups of dialogues,
`learning/` turns them into gradient steps, and `curation/` proposes and compares interfaces. `measures.py` counts, and
`rllib.py` has all that is touched of RLlib's private names.
"""
