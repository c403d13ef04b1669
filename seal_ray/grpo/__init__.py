"""The mathematics of GRPO with SEAL's reweighting, in plain torch and numpy. No Ray.

From judged rollouts to advantages: `rewards/`, `baselines/` and `advantages/` (a group's rewards made relative), and
`reweighting.py` (diagnoses to weights, weights to advantages). `arms.py` compares interfaces.

From advantages to a gradient: `rows.py` (what the learner needs of a trajectory), `packing.py` (rows laid end to end),
`attention.py` (which kernel), `forward.py` (log-probs of what was sampled), `losses/` (of each sampled token) and
`schedule.py` (the learning rate). Rewards, baselines, advantages and losses are found by name: `docs/extending.md`.
"""
