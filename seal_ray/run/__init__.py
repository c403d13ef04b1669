"""A training run: `recorder.py` trains and records rounds, `checkpoints.py` stores the state to resume from.

`export.py` writes models for others, `storage.py` copies run folders, `cluster.py` connects to Ray.
"""
