"""The mathematics of GRPO with SEAL's reweighting, in plain torch and numpy, without Ray.

`rewards.py`, `advantages.py` and `reweighting.py` lead from rollouts to advantages; `packing.py`, `attention.py`,
`forward.py`, `losses.py` and `schedule.py` lead to a gradient. `posterior.py` compares arms.
"""
