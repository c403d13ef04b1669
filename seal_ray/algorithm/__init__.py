"""SEAL as an RLlib algorithm: `config.py`, `checks.py` and `memory_estimate.py` before a run, then `seal.py`.

`co_evolution.py` is one round from top to bottom, and `report.py` its result.
"""
