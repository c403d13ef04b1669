"""The mathematics of GRPO with SEAL's reweighting, in plain torch and numpy. No Ray.

From judged rollouts to advantages: `progress.py` (an optional dense reward), `advantages.py` (a group's rewards made
relative) and `reweighting.py` (diagnoses to weights, weights to advantages).

From advantages to a gradient: `rows.py` (what the learner needs of a trajectory), `packing.py` (rows laid end to end),
`attention.py` (which kernel), `forward.py` (log-probs of what was sampled), `loss.py` (the clipped surrogate and the KL
to the reference) and `schedule.py` (the learning rate).
"""
